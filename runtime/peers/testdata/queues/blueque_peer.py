"""Blueque: `fill KIND N TEXT` enqueues, `wait N` prints when each task was done and one result, `work` runs tasks, each in a
process of its own, until it is ended."""

import json
import os
import sys
import time

import blueque
import redis
import tasks
from blueque.forking_runner import ForkingRunner

url = os.environ["PEER_REDIS"]
client = blueque.Client(url)


def fill(kind, count, text):
    queue = client.get_queue(kind)
    for _ in range(int(count)):
        queue.enqueue(text)


def wait(count):
    connection = redis.Redis.from_url(url, decode_responses=True)
    ids = []
    while len(ids) < int(count):
        time.sleep(0.25)
        ids = connection.lrange("blueque_complete_tasks_empty", 0, -1) + connection.lrange("blueque_complete_tasks_order", 0, -1)
    ended = [client.get_task(id) for id in ids]
    print(json.dumps({"finished": [float(task.updated) for task in ended], "output": ended[0].result}))


def work():
    waiting = redis.Redis.from_url(url, decode_responses=True)
    kind = "order" if waiting.llen("blueque_pending_tasks_order") else "empty"
    ForkingRunner(client, kind, lambda task: getattr(tasks, kind)(task.parameters)).run()


if __name__ == "__main__":
    {"fill": fill, "wait": wait, "work": work}[sys.argv[1]](*sys.argv[2:])
