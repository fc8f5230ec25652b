"""Tells of names that there are not which ones are meant: misspelled ones, and those of other libraries."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Iterable, Mapping, NoReturn

_OPTIONS = {
    "countdown": "delay", "defer": "delay", "delay_seconds": "delay", "eta": "at", "schedule": "at", "run_at": "at",
    "expires": "deadline", "expires_at": "deadline", "max_retries": "max_attempts", "retries": "max_attempts", "attempts": "max_attempts",
    "retry_backoff": "backoff", "retry_jitter": "jitter", "soft_time_limit": "timeout", "time_limit": "timeout",
    "job_timeout": "timeout", "task_id": "id", "job_id": "id", "depends_on": "after", "link": "after", "dead_letter": "dead_queue",
}
_NOTES = {"max_attempts": " (the first run counts, too)", "at": " (a datetime, or Unix time)", "delay": " (seconds, or a timedelta)"}


def nearest(name: str, known: Iterable[str], others: Mapping[str, str] = {}) -> str:
    """The name that is meant, "" if none is near. others has the names that another library has for it."""
    from difflib import get_close_matches

    known = list(known)
    if others.get(name) in known:
        return others[name]
    near = get_close_matches(name, known, 1) or get_close_matches(name.lower(), known, 1)
    return near[0] if near else ""


def option(function: str, name: str, known: Iterable[str]) -> TypeError:
    """The error about an option that a function does not have."""
    known = sorted(known)
    near = nearest(name, known, _OPTIONS)
    if near:
        return TypeError(f"{function} has no option {name!r}: did you mean {near}?{_NOTES.get(near, '') if name in _OPTIONS else ''}")
    return TypeError(f"{function} has no option {name!r}: use {', '.join(known) or 'none'}")


def timestamp(name: str, time: datetime) -> float:
    """A datetime as seconds since the epoch. Without a time zone it could mean UTC or local time, so it is an error."""
    if time.tzinfo is None:
        raise ValueError(f"{name} {time!r} has no time zone: use datetime.now(timezone.utc) or .astimezone(), or a delay")
    return time.timestamp()


def attribute(what: str, name: str, known: Iterable[str], others: Mapping[str, str]) -> AttributeError:
    """The error about an attribute that a thing does not have. others has the remedies for names of other libraries."""
    if name in others:
        return AttributeError(f"{what} has no {name!r}: {others[name]}")
    known = [one for one in known if not one.startswith("_")]
    near = nearest(name, known)
    return AttributeError(f"{what} has no {name!r}: " + (f"did you mean {near}?" if near else f"it has {', '.join(sorted(known))}"))


class Hinted:
    """A class whose missing attributes are errors that tell what is meant."""

    _what: ClassVar[str] = ""
    _others: ClassVar[Mapping[str, str]] = {}  # what to do instead, by the names of other libraries

    if not TYPE_CHECKING:  # checkers still find misspelled names

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise attribute(self._what, name, dir(type(self)), self._others)


HANDLE = {
    "get": "use wait(timeout=seconds), and .json(), .text or .result of the task that it returns", "result": "use wait().result",
    "json": "use wait().json()", "text": "use wait().text", "ready": "use task().finished", "finished": "use task().finished",
    "successful": "use task().status == 'complete'", "failed": "use task().status == 'failed'", "state": "use task().status",
    "status": "use task().status", "info": "use task().message", "traceback": "use task().error_message", "revoke": "use cancel()",
    "task_id": "use id", "then": "enqueue another task with after=[handle]", "forget": "leave it out: hosts delete tasks by --keep",
}
QUEUE = {
    "apply_async": "use enqueue(parameters, delay=seconds, at=datetime)", "apply": "use enqueue(parameters).wait()",
    "send_task": "use enqueue(parameters)", "add": "use enqueue(parameters)", "put": "use enqueue(parameters)",
    "add_bulk": "use enqueue_many(items)", "s": "use enqueue(parameters, after=[handle])",
    "signature": "use enqueue(parameters, after=[handle])", "map": "use enqueue_many(items)",
}
CLIENT = {
    "send_task": "use enqueue(queue, parameters)", "apply_async": "use enqueue(queue, parameters, delay=seconds, at=datetime)",
    "delay": "use queue(name).delay(name=value)", "AsyncResult": "use task(id), or wait(id, timeout=seconds)",
    "get": "use task(id), or wait(id, timeout=seconds)", "get_job": "use task(id)", "revoke": "use cancel(id)", "control": "use cancel(id)",
    "add": "use enqueue(queue, parameters)", "send": "use publish(topic, payload), or enqueue(queue, parameters)",
}
