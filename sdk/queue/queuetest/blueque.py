"""Obeys a Go test with the real Blueque package: commands come in as JSON lines, each is answered by one.

The process ends with its standard input, and so with the test, however that ends.
"""

import json
import os
import queue as fifo
import sys
import threading

import blueque

FIELDS = ("id", "status", "queue", "parameters", "result", "error", "node", "pid", "created", "updated")

client = blueque.Client(sys.argv[1])
listeners = {}  # by queue: Blueque has one a process and queue
processors = {}  # by task ID
worked = []  # IDs that the threads of work() have completed


def attributes(task):
    return None if task is None else {field: getattr(task, field) for field in FIELDS}


def listener(queue):
    if queue not in listeners:
        listeners[queue] = client.get_listener(queue)
    return listeners[queue]


def enqueue(queue, parameters):
    return client.get_queue(queue).enqueue(parameters)


def schedule(queue, parameters, eta):
    return client.get_queue(queue).schedule(parameters, eta)


def enqueue_due_tasks(queue):
    client.get_queue(queue).enqueue_due_tasks()


def get_task(id):
    return attributes(client.get_task(id))


def delete_task(queue, id):
    client.get_queue(queue).delete_task(client.get_task(id))


def register(queue):
    return listener(queue)._name


def listen(queue):
    task = listener(queue).listen()
    processors[task.id] = client.get_processor(task)
    return attributes(task)


def claim_orphan(queue):
    return attributes(listener(queue).claim_orphan())


def start(id, pid):
    processors[id].start(pid)


def complete(id, result):
    processors[id].complete(result)


def fail(id, error):
    processors[id].fail(error)


def work(queue):
    mine = listener(queue)

    def loop():
        while True:
            task = mine.listen()
            processor = client.get_processor(task)
            processor.start(os.getpid())
            processor.complete("python " + task.parameters)
            worked.append(task.id)

    threading.Thread(target=loop, daemon=True).start()


def get_worked():
    return list(worked)


COMMANDS = {
    command.__name__: command
    for command in (
        enqueue, schedule, enqueue_due_tasks, get_task, delete_task, register, listen, claim_orphan,
        start, complete, fail, work, get_worked,
    )
}


def obey(line):
    name, arguments = json.loads(line)
    try:
        return {"value": COMMANDS[name](*arguments)}
    except Exception as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}


def read():
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)  # also while a command waits


lines = fifo.SimpleQueue()
threading.Thread(target=read, daemon=True).start()
while True:
    print(json.dumps(obey(lines.get())), flush=True)
