"""The SDK for Quern plugins in Python. A plugin is a file handler.py:

    def handle(task):
        order = task.json()
        if not order.get("name"):
            raise quern.Fatal("no name")
        return {"greeting": f"hello, {order['name']}"}

What handle returns is the result: bytes as they are, str as UTF-8, None as nothing, anything else as JSON. It may be an async
def. An exception fails the task, with its traceback in the task's error.
"""

from . import checkpoint, http
from ._services import DEBUG, ERROR, INFO, TRACE, WARNING, Bucket, Unique, config, enqueue, kv, log, progress, publish, secret
from ._sql import Column, Database, Rows, database
from ._task import Dependency, Task
from .errors import (
    ConflictError,
    DeniedError,
    Failure,
    Fatal,
    HostError,
    InvalidError,
    LimitError,
    LostError,
    NoHostError,
    NotFoundError,
    QuotaError,
    Retry,
    SQLError,
    TooBigError,
    UnavailableError,
)

__all__ = [
    "Bucket", "Column", "ConflictError", "DEBUG", "Database", "DeniedError", "Dependency", "ERROR", "Failure", "Fatal", "HostError",
    "INFO", "InvalidError", "LimitError", "LostError", "NoHostError", "NotFoundError", "QuotaError", "Retry", "Rows", "SQLError", "TRACE",
    "Task", "TooBigError", "UnavailableError", "Unique", "WARNING", "checkpoint", "config", "database", "enqueue", "http", "kv", "log",
    "progress", "publish", "secret",
]


def __getattr__(name: str) -> object:
    from ._missing import unknown

    raise AttributeError(unknown(name))
