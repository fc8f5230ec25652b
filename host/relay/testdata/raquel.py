"""Obeys a Go test with the real Raquel: commands come in as JSON lines, each is answered by one.

The process ends with its standard input, and so with the test, however that ends.
"""

import json
import logging
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from uuid import UUID

sys.path.insert(0, sys.argv[1])
import sqlalchemy  # noqa: E402
from raquel import Raquel  # noqa: E402

logging.basicConfig(level=logging.CRITICAL)
rq = Raquel(sqlalchemy.create_engine(sys.argv[2], pool_size=20))
worked = []  # IDs of the jobs that the threads of work() have begun


def create_all():
    rq.create_all()


def enqueue(queue, payload, options):
    options = dict(options)
    if "age" in options:  # in milliseconds: it was due that long ago
        options["at"] = datetime.now(timezone.utc) - timedelta(milliseconds=options.pop("age"))
    return str(rq.enqueue(queue, payload, **options).id)


def enqueue_many(queue, payload, count):
    return [str(rq.enqueue(queue, payload).id) for _ in range(count)]


def get(id):
    job = rq.get(UUID(id))
    return None if job is None else {"status": job.status, "attempts": job.attempts, "payload": job.payload, "error": job.error}


def stats(queue):
    return {name: getattr(rq.stats(queue)[queue], name) for name in
            ("queued", "claimed", "success", "failed", "expired", "exhausted", "cancelled")}


def cancel(id):
    return rq.cancel(UUID(id))


def act(job):
    """What the guest of the test does too: step n of the payload for attempt n, the last one for further attempts."""
    steps = str(job.payload or "0").split(";")
    step = steps[min(job.attempts, len(steps) - 1)].split(" ", 2)
    worked.append(str(job.id))
    if step[0] == "75":
        job.reschedule(**({"delay": int(step[1])} if int(step[1]) else {}))
    elif step[0] == "reject":
        job.reject()
    elif step[0] != "0":
        raise RuntimeError(step[2])
    elif len(step) > 1:
        time.sleep(int(step[1]) / 1000)


def one(queue, reclaim_after=60000):
    """Runs the next job, and tells whether there was one."""
    with rq.dequeue(queue, claim_as="python", reclaim_after=reclaim_after) as job:
        if job:
            act(job)
    return job is not None


def work(queue, sleep, reclaim_after):
    def run():
        while True:
            if not one(queue, reclaim_after):
                time.sleep(sleep)

    threading.Thread(target=run, daemon=True).start()


def claim(queue):
    """Claims a job and never runs it, as a worker that is killed then."""
    return str(rq.claim(queue, claim_as="dead").id)


def get_worked():
    return worked


for line in sys.stdin:
    command, arguments = json.loads(line)
    try:
        answer = {"value": globals()[command](*arguments)}
    except Exception as exception:
        answer = {"error": f"{type(exception).__name__}: {exception}"}
    print(json.dumps(answer), flush=True)
