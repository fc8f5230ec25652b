"""Celery: `fill KIND N TEXT` enqueues, `wait N` prints when each task was done and one result; the worker is celery's own."""

import json
import os
import sys
import time
from datetime import datetime

import tasks
from celery import Celery

url = os.environ["PEER_REDIS"]
app = Celery("peer", broker=url, backend=url)
app.conf.update(task_serializer="json", result_serializer="json", enable_utc=True, broker_connection_retry_on_startup=True)
kinds = {kind: app.task(name=kind)(function) for kind, function in (("order", tasks.order), ("empty", tasks.empty))}


def fill(kind, count, text):
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(int(count)):
            kinds[kind].apply_async((text,), producer=producer)


def wait(count):
    redis = app.backend.client
    keys = []
    while len(keys) < int(count):
        time.sleep(0.25)
        keys = list(redis.scan_iter("celery-task-meta-*", count=10_000))
    results = [json.loads(value) for value in redis.mget(keys)]
    print(json.dumps({
        "finished": [datetime.fromisoformat(result["date_done"]).timestamp() for result in results],
        "output": results[0]["result"],
    }))


if __name__ == "__main__":
    {"fill": fill, "wait": wait}[sys.argv[1]](*sys.argv[2:])
