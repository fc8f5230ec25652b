"""nsj-queue-lib: `publish KEY TEXT` publishes to the queue of the environment, `work` runs its subscribers' handlers."""

import sys
import time

from nsj_queue_lib import settings
from nsj_queue_lib.queue_client import QueueClient
from nsj_queue_lib.worker_pub_sub_base import DeadSubscriber, Subscriber, SubscriberWebhook, WorkerPubSubBase
from nsj_sql_utils_lib.dbconnection import DBConnection


def note(what):
    print("peer", what, time.time(), flush=True)


@SubscriberWebhook("hook")
class Worker(WorkerPubSubBase):
    @Subscriber("index")
    def index(self, *_):
        note("index")

    @Subscriber("mail")
    def mail(self, *_):
        note("mail")

    @Subscriber("bills")
    def bills(self, *_):
        note("bills")
        raise Exception("the server of bills is away")

    @DeadSubscriber("bills")
    def bury(self, *_):
        note("bills.dead")


def publish(key, text):
    s = settings
    with DBConnection("POSTGRES", s.DB_HOST, s.DB_PORT, s.DB_BASE, s.DB_USER, s.DB_PASS) as connection:
        client = QueueClient(connection.conn, s.QUEUE_TABLE, s.QUEUE_SUBSCRIBER_TABLE)
        client.insert_task_pub_sub("peer", "peer", "orders", key, text)


if __name__ == "__main__":
    {"work": lambda: Worker().run(), "publish": publish}[sys.argv[1]](*sys.argv[2:])
