"""The requests of the API and what their answers mean, the same for both clients."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import random
import re
import time
import uuid
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple, Union, cast
from urllib.parse import quote, urlencode

from ._errors import APIError, Unreachable, error_of, headline
from ._models import Publication, Task
from ._options import Options, encoded, translated

# The most tasks, and the most bytes of JSON, in one batch. A larger task is sent alone. The server takes 1,000 tasks and 16 MiB.
BATCH_TASKS, BATCH_BYTES = 1000, 8 << 20

# How many bytes the options of a task that is sent alone may take in the URL. The server takes 64 KiB of headers, proxies often 8.
QUERY_BYTES = 7 << 10

# How long the server is asked to wait for a task's end before it answers, in seconds.
LONG_POLL = 20.0

BUSY = (429, 502, 503, 504)

# How long a server can make a client wait before it asks again, in seconds.
LONGEST_PAUSE = 60.0


MOST_CAUSES = 20  # failed tasks that waited for each other, of which the first one is told
_CULPRIT = re.compile(r"task (\S+), which it waited for, failed")


def culprit(task: Task) -> str:
    """The ID of the task whose failure made this one fail; "" if none did."""
    found = _CULPRIT.fullmatch(headline(task)) if task.reason == "dependency" else None
    return found[1] if found else ""


class Call(NamedTuple):
    """A request that may be repeated: what it makes has an ID of the client's."""

    method: str
    path: Tuple[str, ...]
    query: Mapping[str, Any] = {}
    body: Optional[bytes] = None
    json: Any = None
    headers: Mapping[str, str] = {}
    wait: float = 0.0  # how long the answer may take by intention, in seconds
    made: frozenset[str] = frozenset()  # IDs that the client has made up for this request


class Enqueued(NamedTuple):
    id: str
    queue: str
    existed: bool
    taken: bool
    unserved: bool


Item = Union[Any, Tuple[Any, Options]]


def path_of(tenant: str, path: Sequence[str]) -> str:
    for part in (tenant, *path):
        if not isinstance(part, str) or part in ("", ".", ".."):
            raise ValueError(f"the name {part!r}: use a text that is not empty, . or ..")
    return "/v1/tenants/" + "/".join(quote(part, safe="") for part in (tenant, *path))


class Line(NamedTuple):
    """One task of a batch."""

    fields: dict[str, Any]
    size: int
    made: bool  # the client has made up its ID


def line_of(parameters: Any, options: Options) -> Line:
    fields, value = translated(options), encoded(parameters)
    try:
        fields["parameters"] = value.decode()
    except UnicodeDecodeError:
        fields["parameters_base64"] = base64.b64encode(value).decode()
    return Line(fields, len(json.dumps(fields)), not options.get("id"))


def batch(queue: str, lines: Sequence[Line]) -> Call:
    made = frozenset(line.fields["id"] for line in lines if line.made)
    return Call("POST", ("queues", queue, "tasks", "batch"), json={"tasks": [line.fields for line in lines]}, made=made)


def alone(queue: str, line: Line, parameters: Any) -> Call:
    """The request for one task that is too large for a batch: its body is the parameters as they are."""
    query = {name: value for name, value in line.fields.items() if not name.startswith("parameters")}
    for name, there in (("labels", "label"), ("headers", "header")):
        if any("=" in key for key in query.get(name, ())):
            raise ValueError(f"{name}: a task of this size takes no names with =")
        if name in query:
            query[there] = [f"{key}={value}" for key, value in query.pop(name).items()]
    if len(urlencode(query, doseq=True)) > QUERY_BYTES:
        raise ValueError(f"a task of this size takes at most {QUERY_BYTES} bytes of key, labels, headers and IDs in after")
    query = {name: "true" if value is True else value for name, value in query.items()}
    content = {"Content-Type": "application/octet-stream"}
    made = frozenset([line.fields["id"]]) if line.made else frozenset()
    return Call("POST", ("queues", queue, "tasks"), query, body=encoded(parameters), headers=content, made=made)


def with_defaults(items: Iterable[Item], options: Mapping[str, Any]) -> Iterator[Item]:
    """The items, each with these options unless it has its own."""
    for item in items:
        parameters, own = item if isinstance(item, tuple) else (item, {})
        yield parameters, cast(Options, {**options, **own})


def batches(queue: str, items: Iterable[Item]) -> Iterator[Call]:
    """The requests that enqueue tasks in their order. An item is parameters, or a tuple of parameters and options."""
    lines: list[Line] = []
    size = 0
    for item in items:
        parameters, options = item if isinstance(item, tuple) else (item, {})
        line = line_of(parameters, options)
        if lines and (len(lines) == BATCH_TASKS or size + line.size > BATCH_BYTES):
            yield batch(queue, lines)
            lines, size = [], 0
        if line.size > BATCH_BYTES:
            yield alone(queue, line, parameters)
            continue
        lines.append(line)
        size += line.size
    if lines:
        yield batch(queue, lines)


def receipts(call: Call, answer: Answer) -> list[Enqueued]:
    """What became of the tasks of a request. One whose ID the client has made up is new, even if the server says that it
    existed: then it was made by the same request, whose first answer was lost."""
    asked, fields = (call.json or {}).get("tasks"), answer.fields()
    items = [fields] if asked is None else fields["items"]
    if len(items) != len(asked or [fields]):
        raise ValueError(f"{len(items)} receipts")
    note_served(text(items[0], "queue"), answer.warning if items[0].get("unserved") else "")
    return [
        Enqueued(
            text(one, "id"), text(one, "queue"), one["existed"] and one["id"] not in call.made, one.get("taken", False), one.get("unserved", False),
        )
        for one in items
    ]


_unserved: dict[str, str] = {}  # the server's warnings, by the queue


def note_served(queue: str, warning: str) -> None:
    """Logs the server's warning about a queue that no host serves, once for each queue."""
    if not warning:
        _unserved.pop(queue, None)
    elif queue not in _unserved and len(_unserved) < 1000:
        _unserved[queue] = warning
        logging.getLogger("quern.client").warning("%s", warning)


def late(task: Task, timeout: Optional[float]) -> TimeoutError:
    """The error about a task that has not ended in time. It says why if no host serves the task's queue."""
    why = _unserved.get(task.queue, "") if task.status in ("pending", "scheduled") else ""
    return TimeoutError(f"task {task.id} is {task.status} after {timeout} seconds" + (f": {why}" if why else ""))


def task(id: str, wait: float = 0.0) -> Call:
    query = {"wait_seconds": round(wait, 3)} if wait > 0 else {}
    return Call("GET", ("tasks", id), query, wait=wait)


def result(id: str) -> Call:
    return Call("GET", ("tasks", id, "result"))


def cancel(id: str) -> Call:
    return Call("POST", ("tasks", id, "cancel"))


def publish(topic: str, payload: Any, id: str, attributes: Mapping[str, str], **origin: str) -> Call:
    query: dict[str, Any] = {"id": id or str(uuid.uuid4()), **{name: value for name, value in origin.items() if value}}
    if attributes:
        query["attribute"] = [f"{name}={value}" for name, value in attributes.items()]
    content = {"Content-Type": "application/octet-stream"}
    made = frozenset() if id else frozenset([query["id"]])
    return Call("POST", ("topics", topic, "publications"), query, body=encoded(payload), headers=content, made=made)


_dropped: set[str] = set()  # the topics of which a warning is logged


def publication(call: Call, answer: Mapping[str, Any]) -> Publication:
    topic, subscribers = text(answer, "topic"), int(answer.get("subscribers", 0))
    dropped = subscribers == 0 and not answer["existed"]
    if dropped and topic not in _dropped and len(_dropped) < 1000:
        _dropped.add(topic)
        logging.getLogger("quern.client").warning(
            "topic %s: no subscription matches, so the publication is dropped: add subscribe: [{topic: %s}] to a plugin's manifest, "
            "or run quern subscription create", topic, topic,
        )
    return Publication(text(answer, "id"), topic, answer["existed"] and answer["id"] not in call.made, subscribers, dropped)


class Patience:
    """Decides whether a request is repeated, and when. end is when the caller waits no longer, by time.monotonic."""

    def __init__(self, retries: int, end: Optional[float] = None) -> None:
        self.left, self.pause, self.end = retries, 0.1, end

    def bound(self, timeout: float) -> float:
        """How long to wait for an answer, in seconds: at most timeout, and a little longer than until end."""
        return timeout if self.end is None else min(timeout, max(self.end - time.monotonic(), 0.0) + 0.5)

    def after(self, status: int, answer: Answer, asked: str) -> float:
        """How many seconds to wait before the request is repeated. It raises the server's error if it is not."""
        problem = answer.problem()
        if problem is None:
            error = APIError(status, "", f"{answer.asked} answered HTTP status {status}, {answer.shown()}, {NOT_OURS}")
        else:
            error = error_of(status, problem)
        if status not in BUSY or self.left <= 0:
            raise error
        pause = float(asked) if asked.isascii() and asked.isdigit() else 0.0
        if self.end is not None and time.monotonic() + max(pause, self.pause) > self.end:
            raise error
        return self._next(min(pause, LONGEST_PAUSE))

    def without_answer(self, error: Exception, url: str) -> float:
        unreachable = f"no answer from {url}: {_reason(error)}: is quern dev, or a host with --admin, running there?"
        if self.left <= 0:
            raise Unreachable(unreachable) from error
        if self.end is not None and time.monotonic() + self.pause > self.end:
            raise TimeoutError(unreachable) from error
        return self._next(0.0)

    def _next(self, asked: float) -> float:
        self.left -= 1
        pause, self.pause = self.pause, min(self.pause * 2, 5.0)
        return max(asked, pause * random.uniform(0.5, 1.0))


def _reason(error: Exception) -> str:
    """Why there was no answer: without the number of the error, which httpx writes before its text."""
    text = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    return "connection refused" if text in ("Connection refused", "All connection attempts failed") else text


SHOWN = 80  # characters of an answer that is not the API's
NOT_OURS = "which is not an answer of Quern's API: check the URL"


class Answer(NamedTuple):
    """The body of an answer, and the request's method and URL."""

    asked: str
    body: bytes
    warning: str = ""

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Makes an answer that the API does not give an APIError."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise APIError(0, "", f"{self.asked} answered {self.shown()}, {NOT_OURS}") from error

    def fields(self) -> dict[str, Any]:
        with self.understood():
            return {**json.loads(self.body)}

    def task(self) -> dict[str, Any]:
        """The fields of a task."""
        with self.understood():
            fields = self.fields()
            error = fields.get("error") or {}
            return {**fields, "error": {**error} or None, **{name: text(fields, name) for name in ("id", "queue", "status")}}

    def problem(self) -> Optional[dict]:
        """The problem of RFC 9457; None if this is none."""
        try:
            problem = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return problem if isinstance(problem, dict) and "status" in problem else None

    def shown(self) -> str:
        start = self.body[: 4 * SHOWN].decode(errors="replace")
        return f"{start[:SHOWN]!r}{'…' * (len(start) > SHOWN)}" if start else "no body"


def text(fields: Mapping[str, Any], name: str) -> str:
    """A field that must be a str."""
    if not isinstance(fields[name], str):
        raise TypeError(name)
    return fields[name]
