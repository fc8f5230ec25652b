"""RQ: `fill KIND N TEXT` enqueues, `wait N` prints when each task was done and one result; the workers are rq's own."""

import json
import os
import sys
import time

import redis
from rq import Queue
from rq.job import Job
from rq.registry import FinishedJobRegistry

connection = redis.Redis.from_url(os.environ["PEER_REDIS"])
queue = Queue("orders", connection=connection)


def fill(kind, count, text):
    queue.enqueue_many([Queue.prepare_data("tasks." + kind, args=(text,), result_ttl=3600) for _ in range(int(count))])


def wait(count):
    registry = FinishedJobRegistry(queue=queue)
    while registry.count < int(count):
        time.sleep(0.25)
    jobs = Job.fetch_many(registry.get_job_ids(), connection=connection)
    print(json.dumps({"finished": [job.ended_at.timestamp() for job in jobs], "output": jobs[0].return_value()}))


if __name__ == "__main__":
    {"fill": fill, "wait": wait}[sys.argv[1]](*sys.argv[2:])
