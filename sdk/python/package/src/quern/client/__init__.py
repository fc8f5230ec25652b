"""Producers for Quern in Python: enqueue tasks, wait for their results, publish, cancel; and receivers of its webhooks: verify.

    from quern.client import Client

    with Client() as client:  # a running `quern dev`, or the server of QUERN_SERVER; else Client(url, token=...)
        mail = client.enqueue("mail", {"to": "ada"}, delay=30, max_attempts=5)
        print(mail.wait(timeout=60).json())

        send_mail = client.queue("mail", max_attempts=5)
        send_mail.delay(to="ada")

Client and AsyncClient speak the HTTP API of a host (--admin) or of `quern admin`, with httpx: pip install 'quern[client]'.
RedisClient enqueues plain tasks straight into Redis, with redis-py: pip install 'quern[redis]'.
"""

from ._asynchronous import AsyncClient, AsyncHandle, AsyncQueue
from ._errors import APIError, NoTaskError, TaskFailed, Unreachable
from ._models import Publication, Task
from ._options import Options, Unique
from ._redis import RedisClient, RedisQueue
from ._synchronous import Client, Handle, Queue
from ._webhooks import SignatureError, verify

__all__ = [
    "APIError", "AsyncClient", "AsyncHandle", "AsyncQueue", "Client", "Handle", "NoTaskError", "Options", "Publication", "Queue",
    "RedisClient", "RedisQueue", "SignatureError", "Task", "TaskFailed", "Unique", "Unreachable", "verify",
]
