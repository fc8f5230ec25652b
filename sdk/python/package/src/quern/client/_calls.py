"""The requests of the API and what their answers mean, the same for both clients."""

from __future__ import annotations

import base64
import random
import uuid
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple, Union
from urllib.parse import quote

from ._errors import Unreachable, error_of
from ._models import Publication
from ._options import Options, encoded, translated

# How many tasks, and about how many bytes of them, one request of a batch has. The server takes 1,000 tasks and 16 MiB.
BATCH_TASKS, BATCH_BYTES = 1000, 8 << 20

# How long the server is asked to wait for a task's end before it answers, in seconds.
LONG_POLL = 20.0

BUSY = (429, 502, 503, 504)


class Call(NamedTuple):
    """A request that may be repeated: what it changes has an ID of the client's."""

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


Item = Union[Any, Tuple[Any, Options]]


def path_of(tenant: str, path: Sequence[str]) -> str:
    return "/v1/tenants/" + "/".join(quote(part, safe="") for part in (tenant, *path))


def enqueue(queue: str, parameters: Any, options: Options) -> Call:
    query = translated(options)
    made = frozenset() if options.get("id") else frozenset([query["id"]])
    for name, there in (("labels", "label"), ("headers", "header")):
        if name in query:
            query[there] = [f"{key}={value}" for key, value in query.pop(name).items()]
    query = {name: "true" if value is True else value for name, value in query.items()}
    content = {"Content-Type": "application/octet-stream"}
    return Call("POST", ("queues", queue, "tasks"), query, body=encoded(parameters), headers=content, made=made)


def receipt(call: Call, answer: Mapping[str, Any]) -> Enqueued:
    """What became of a task. One whose ID the client has made up is new, even if the server says that it existed: then it was
    made by the same request, whose first answer was lost."""
    return Enqueued(answer["id"], answer["queue"], answer["existed"] and answer["id"] not in call.made)


def batches(queue: str, items: Iterable[Item]) -> Iterator[Call]:
    """The requests that enqueue tasks in their order. An item is parameters, or a tuple of parameters and options."""
    lines: list[dict[str, Any]] = []
    made: list[str] = []
    size = 0
    for item in items:
        parameters, options = item if isinstance(item, tuple) else (item, {})
        line, value = translated(options), encoded(parameters)
        try:
            line["parameters"] = value.decode()
        except UnicodeDecodeError:
            line["parameters_base64"] = base64.b64encode(value).decode()
        if lines and (len(lines) == BATCH_TASKS or size + len(value) > BATCH_BYTES):
            yield Call("POST", ("queues", queue, "tasks", "batch"), json={"tasks": lines}, made=frozenset(made))
            lines, made, size = [], [], 0
        lines.append(line)
        if not options.get("id"):
            made.append(line["id"])
        size += len(value)
    if lines:
        yield Call("POST", ("queues", queue, "tasks", "batch"), json={"tasks": lines}, made=frozenset(made))


def receipts(call: Call, answer: Mapping[str, Any]) -> list[Enqueued]:
    return [receipt(call, item) for item in answer["items"]]


def task(id: str, wait: float = 0.0) -> Call:
    query = {"wait_seconds": round(wait, 3)} if wait > 0 else {}
    return Call("GET", ("tasks", id), query, wait=wait)


def result(id: str) -> Call:
    return Call("GET", ("tasks", id, "result"))


def cancel(id: str) -> Call:
    return Call("POST", ("tasks", id, "cancel"))


def publish(topic: str, payload: Any, id: str, attributes: Mapping[str, str]) -> Call:
    query: dict[str, Any] = {"id": id or str(uuid.uuid4())}
    if attributes:
        query["attribute"] = [f"{name}={value}" for name, value in attributes.items()]
    content = {"Content-Type": "application/octet-stream"}
    made = frozenset() if id else frozenset([query["id"]])
    return Call("POST", ("topics", topic, "publications"), query, body=encoded(payload), headers=content, made=made)


def publication(call: Call, answer: Mapping[str, Any]) -> Publication:
    return Publication(answer["id"], answer["topic"], answer["existed"] and answer["id"] not in call.made)


class Patience:
    """Decides whether a request is repeated, and when."""

    def __init__(self, retries: int) -> None:
        self.left, self.pause = retries, 0.1

    def after(self, status: int, problem: Optional[dict], asked: str) -> float:
        """How many seconds to wait before the request is repeated. It raises what to tell the caller if it is not."""
        if status not in BUSY:
            raise error_of(status, problem)
        if self.left <= 0:
            raise Unreachable(str(error_of(status, problem)), status)
        return self._next(float(asked) if asked.isdigit() else 0.0)

    def without_answer(self, error: Exception, url: str) -> float:
        if self.left <= 0:
            raise Unreachable(f"no answer from {url}: {error or type(error).__name__}") from error
        return self._next(0.0)

    def _next(self, asked: float) -> float:
        self.left -= 1
        pause, self.pause = self.pause, min(self.pause * 2, 5.0)
        return max(asked, pause * random.uniform(0.5, 1.0))


def problem_of(answer: Any) -> Optional[dict]:
    """The problem in an answer of httpx; None if it has none."""
    try:
        problem = answer.json()
    except ValueError:
        return None
    return problem if isinstance(problem, dict) and "status" in problem else None
