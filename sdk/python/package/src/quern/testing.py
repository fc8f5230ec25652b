"""Runs a handler natively, with services in memory:

    from quern import testing
    import handler

    def test_greeting():
        result = testing.run(handler.handle, {"name": "Zoë"}, kv={"seen": {}})
        assert result.status == "complete" and result.json() == {"greeting": "hello, Zoë"}

The limits and grants of a manifest, and what a handler cannot have, are those of the real host alone: quern plugin test.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import traceback
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Callable, Mapping, Optional

from . import _host, _native
from ._logging import TaskLog
from ._task import Task
from .errors import Failure, Retry


@dataclass
class Host:
    """What the task may use, and what it leaves."""

    input: bytes = b""
    texts: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    cancelled: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict)
    buckets: dict[str, dict[str, tuple[bytes, Optional[float]]]] = field(default_factory=dict)
    http: Optional[Callable[..., tuple[int, Mapping[str, Any], Any]]] = None
    checkpoint: Optional[bytes] = None
    output: bytes = b""
    error: str = ""
    delay: Optional[float] = None
    log: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    progress: list[tuple[float, str]] = field(default_factory=list)
    enqueued: list[tuple[str, bytes, dict[str, Any]]] = field(default_factory=list)


@dataclass
class Result:
    """What became of the task."""

    status: str
    """complete, failed, fatal or retry."""
    output: bytes
    error: str
    """Why it failed."""
    traceback: str
    delay: Optional[float]
    """The seconds that Retry asked for."""
    log: list[tuple[str, str, dict[str, Any]]]
    """Lines of the log: level, text, fields."""
    progress: list[tuple[float, str]]
    enqueued: list[tuple[str, bytes, dict[str, Any]]]
    """New tasks: queue, body, options. There are none if the task failed."""
    checkpoint: Optional[bytes]
    kv: dict[str, dict[str, bytes]]

    @property
    def text(self) -> str:
        return self.output.decode()

    def json(self) -> Any:
        return json.loads(self.output)


def run(
    handle: Callable[[Task], Any],
    input: Any = b"",
    *,
    id: str = "test",
    queue: str = "test",
    tenant: str = "default",
    plugin: str = "test",
    attempt: int = 1,
    max_attempts: int = 0,
    deadline: Optional[datetime] = None,
    key: str = "",
    parent: str = "",
    previous_error: str = "",
    traceparent: str = "",
    cancelled: bool = False,
    config: Optional[Mapping[str, str]] = None,
    secrets: Optional[Mapping[str, Any]] = None,
    kv: Optional[Mapping[str, Mapping[str, Any]]] = None,
    http: Optional[Callable[..., tuple[int, Mapping[str, Any], Any]]] = None,
    checkpoint: Optional[bytes] = None,
) -> Result:
    """Runs the handler on a task. The input may be bytes, str or what JSON can express; kv are the buckets that are granted,
    with their values; http is called as http(method, url, headers, body) and returns status, headers and body."""
    host = Host(
        input=bytes(_host.encoded(input)),
        texts=[id, queue, tenant, plugin, previous_error, parent, key, traceparent],
        numbers=[attempt, max_attempts, round(deadline.timestamp() * 1000) if deadline else 0, (1 << 63) - 1],
        cancelled=cancelled, config=config or {}, secrets=secrets or {}, http=http, checkpoint=checkpoint,
        buckets={name: {key: (bytes(_host.encoded(value)), None) for key, value in values.items()} for name, values in (kv or {}).items()},
    )
    root, lines, before = logging.getLogger(), TaskLog(), _native.current
    level = root.level
    root.addHandler(lines)
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    _native.current = host
    status, trace = "complete", ""
    try:
        result = handle(Task())
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        host.output += bytes(_host.encoded(result))
    except Failure as error:
        status, host.error = {65: "fatal", 75: "retry"}.get(error.status, "failed"), str(error)
        trace = traceback.format_exc()
        if isinstance(error, Retry) and error.delay is not None:
            host.delay = _host.milliseconds(error.delay) / 1000
    except Exception as error:
        status, host.error, trace = "failed", f"{type(error).__name__}: {error}", traceback.format_exc()
    finally:
        _native.current = before
        root.removeHandler(lines)
        root.setLevel(level)
    complete = status == "complete"
    return Result(
        status=status, output=host.output if complete else b"", error=host.error, traceback=trace, delay=host.delay, log=host.log,
        progress=host.progress, enqueued=host.enqueued if complete else [], checkpoint=host.checkpoint,
        kv={name: {key: value for key, (value, _) in values.items()} for name, values in host.buckets.items()},
    )
