"""Runs the unchanged nsj-queue-lib: `nsj.py worker` works, and `nsj.py enqueue` inserts the tasks that it reads as JSON."""
import json
import os
import sys

import psycopg2
from nsj_queue_lib.queue_client import QueueClient
from nsj_queue_lib.worker_pub_sub_base import DeadSubscriber, Subscriber, WorkerPubSubBase


def act(text, tarefa):
    """Does what a payload says: "fail MESSAGE" or "return MESSAGE", and otherwise returns nothing."""
    what, _, message = (text or "").partition(" ")
    if what == "die":
        os._exit(1)
    if what == "fail" and not (message.startswith("alive") and tarefa["dead"]):
        raise Exception(message)
    return message if what == "return" else None


class Worker(WorkerPubSubBase):
    def execute(self, payload, tarefa, bd_conn, multi_db_conn):
        if tarefa["subscriber_id"]:
            return super().execute(payload, tarefa, bd_conn, multi_db_conn)
        return act(payload, tarefa)

    def execute_dead(self, payload, tarefa, bd_conn, multi_db_conn):
        if tarefa["subscriber_id"]:
            return super().execute_dead(payload, tarefa, bd_conn, multi_db_conn)
        return act(payload, tarefa)

    @Subscriber("every")
    @Subscriber("one")
    def subscriber(self, payload, subscription, tarefa, bd_conn):
        return act(payload["publication"], tarefa)

    @DeadSubscriber("every")
    @DeadSubscriber("one")
    def dead_subscriber(self, payload, subscription, tarefa, bd_conn):
        return act(payload["publication"], tarefa)


def enqueue():
    conn = psycopg2.connect(
        host=os.environ["DB_HOST"], port=os.environ["DB_PORT"], dbname=os.environ["DB_BASE"], user=os.environ["DB_USER"], password=os.environ["DB_PASS"]
    )
    client = QueueClient(conn, os.environ["QUEUE_TABLE"], os.environ.get("QUEUE_SUBSCRIBER_TABLE"))
    for task in json.load(sys.stdin):
        insert = client.insert_task_pub_sub if task.pop("publication", False) else client.insert_task
        insert("origem", "destino", task.pop("processo"), task.pop("key"), task.pop("payload"), **task)
    conn.commit()


if sys.argv[1] == "worker":
    Worker().run()
else:
    enqueue()
