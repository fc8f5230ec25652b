"""Celery: `fill N ORDER` enqueues, `wait N` prints when each task was done and one result; the worker is celery's own."""

import json
import os
import sys
import time
from datetime import datetime

from celery import Celery
from order import total

url = os.environ["PEER_REDIS"]
app = Celery("peer", broker=url, backend=url)
app.conf.update(task_serializer="json", result_serializer="json", enable_utc=True, broker_connection_retry_on_startup=True)


@app.task(name="order")
def order(text):
    return total(text)


def fill(count, text):
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            order.apply_async((text,), producer=producer)


def wait(count):
    redis = app.backend.client
    keys = []
    while len(keys) < count:
        time.sleep(0.25)
        keys = list(redis.scan_iter("celery-task-meta-*", count=10_000))
    results = [json.loads(value) for value in redis.mget(keys)]
    print(json.dumps({
        "finished": [datetime.fromisoformat(result["date_done"]).timestamp() for result in results],
        "output": results[0]["result"],
    }))


if __name__ == "__main__":
    {"fill": lambda count, text: fill(int(count), text), "wait": lambda count: wait(int(count))}[sys.argv[1]](*sys.argv[2:])
