from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from typing import Any, Mapping, NamedTuple, Optional, Protocol, Sequence, TypedDict, Union

from .._hints import option, timestamp
from .._json import culprit, plain

Duration = Union[int, float, timedelta]
Time = Union[datetime, int, float]


class Unique(NamedTuple):
    """Enqueue nothing if the queue has a task with the same key, or without a key with the same parameters: for duration,
    or until that task is finished."""

    key: str = ""
    duration: Optional[Duration] = None


class HasID(Protocol):
    """A handle, or a task."""

    id: str


class Options(TypedDict, total=False):
    """What a producer may say about a task. Durations are seconds or timedeltas. Times are datetimes with a time
    zone, or seconds since the epoch."""

    id: str  # the task's ID; if it exists, nothing is enqueued. Default: a new UUID
    key: str  # the producer's own name for what the task is about
    labels: Mapping[str, str]
    headers: Mapping[str, str]  # for the handler, by names in lower case
    priority: int  # 0 to 100, higher ones first. Default: 50
    delay: Duration
    at: Time
    deadline: Time  # when the task expires, or is stopped if it runs
    timeout: Duration  # of each attempt
    max_attempts: int  # -1: no bound. Default: the manifest's
    backoff: str  # exponential or linear
    backoff_base: Duration
    backoff_min: Duration
    backoff_max: Duration
    jitter: bool
    max_age: Duration
    max_reschedules: int
    unique: Union[bool, str, Unique]  # True: by the parameters; a str: by this key
    after: Union[str, HasID, Sequence[Union[str, HasID]]]  # tasks to wait for: their IDs or handles
    when: str  # complete, ended, any or failed. Default: complete
    open: bool
    dead_queue: str
    fair_key: str  # whom it is for, such as a customer: the keys of a queue take turns
    fair_weight: int  # how many tasks a turn of the key has. Default: 1
    concurrency_key: str  # tasks of the queue with the same key run one after another
    max_concurrent: int  # how many of them may run at once. Default: 1
    parent: str
    traceparent: str


# The options whose values the API takes as they are, and those that it takes as seconds, by its names.
_PLAIN = (
    "key", "priority", "max_attempts", "backoff", "max_reschedules", "when", "open", "dead_queue", "parent", "traceparent",
    "fair_key", "fair_weight", "concurrency_key", "max_concurrent",
)
_DURATIONS = {
    "delay": "delay_seconds", "timeout": "timeout_seconds", "backoff_base": "backoff_base_seconds",
    "backoff_min": "backoff_min_seconds", "backoff_max": "backoff_max_seconds", "max_age": "max_age_seconds",
}
_TIMES = ("at", "deadline")


# What the API takes at most: seconds of a duration, and seconds since the epoch.
_LONGEST, _LATEST = 1e9, 1e11


def seconds(name: str, duration: Duration) -> float:
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} {duration!r}: use seconds, or a timedelta")
    if not 0 <= value <= _LONGEST:
        raise ValueError(f"{name} {duration!r}: use 0 to {_LONGEST:.0f} seconds")
    return float(value)


def moment(name: str, time: Time) -> float:
    """The time as seconds since the epoch."""
    value = timestamp(name, time) if isinstance(time, datetime) else time
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} {time!r}: use a datetime, or seconds since the epoch")
    if not 0 <= value <= _LATEST:
        raise ValueError(f"{name} {time!r}: use a datetime, or seconds since the epoch")
    return float(value)


def encoded(parameters: Any) -> bytes:
    """What the handler gets: bytes as they are, a str as UTF-8, None as nothing, anything else as JSON."""
    if parameters is None:
        return b""
    if isinstance(parameters, (bytes, bytearray, memoryview)):
        return bytes(parameters)
    try:
        if isinstance(parameters, str):
            return parameters.encode()
        return json.dumps(parameters, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        wrong = culprit("parameters", parameters, strict=True)
        raise error if wrong is None else wrong from None


def translated(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options by the names and in the units of the API, with an ID, so that the request may be repeated."""
    unknown = set(options) - set(Options.__annotations__)
    if unknown:
        raise option("enqueue", min(unknown), Options.__annotations__)
    if options.get("delay") is not None and options.get("at") is not None:
        raise TypeError("both delay and at: give one of them")
    if options.get("max_attempts") == 0:
        raise ValueError("max_attempts 0: use 1 for one attempt, -1 for no bound, or leave it out for the manifest's")
    priority = options.get("priority")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 100):
        raise ValueError(f"priority {priority!r}: use 0 to 100, higher ones first")
    out: dict[str, Any] = {"id": options.get("id") or str(uuid.uuid4())}
    out.update({name: options[name] for name in _PLAIN if options.get(name) is not None})
    out.update({name: dict(options[name]) for name in ("labels", "headers") if options.get(name)})
    out.update({there: seconds(name, options[name]) for name, there in _DURATIONS.items() if options.get(name) is not None})
    out.update({name: moment(name, options[name]) for name in _TIMES if options.get(name) is not None})
    if options.get("after"):
        after = [options["after"]] if isinstance(options["after"], str) or hasattr(options["after"], "id") else options["after"]
        out["after"] = [getattr(task, "id", task) for task in after]
    if options.get("jitter") is False:
        out["no_jitter"] = True
    unique = options.get("unique")
    if unique == "":
        raise ValueError("unique is an empty key: use True to compare the parameters")
    if unique is not None and unique is not False:
        unique = unique if isinstance(unique, Unique) else Unique("" if unique is True else unique)
        out["unique"] = True
        if unique.key:
            out["unique_key"] = unique.key
        if unique.duration is not None:
            out["unique_for_seconds"] = seconds("unique", unique.duration)
    return out


def defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of all tasks of a queue, checked before there is a task."""
    if options.get("id") is not None:
        raise TypeError("id as an option of all tasks: give it to enqueue, because each task has its own")
    translated(options)
    return dict(options)


def keywords(values: Sequence[Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a task that is enqueued with delay."""
    if values:
        raise TypeError("delay takes keyword arguments, which become an object of JSON: use delay(name=value), or enqueue(value)")
    return parameters
