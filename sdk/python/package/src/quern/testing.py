"""Runs a handler natively, with services in memory, and databases that are real:

    from quern import testing
    import handler

    def test_greeting():
        result = testing.run(handler.handle, {"name": "Zoë"}, kv={"seen": {}})
        assert result.status == "complete" and result.json() == {"greeting": "hello, Zoë"}

A Host keeps its services from task to task; in pytest it is the fixture quern_host. As in the engine, a handler writes no files
and has no sockets, threads and processes. In pytest, what the manifest beside the test does not grant is denied, even where the test
gives it. Limits, and what a handler cannot import, are those of the engine alone: a Plugin, in pytest the fixture quern_plugin, runs
tasks in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NoReturn, Optional, Sequence

from . import _host, _manifest, _native
from ._logging import TaskLog
from ._database import Database
from ._loop import LOST
from ._run import _message, _users, wrong_arguments
from ._task import Task
from ._sql import _rows
from .errors import Failure, SQLError


@dataclass
class Host:
    """What handlers may use, and what they leave there for the tasks after them."""

    config: dict[str, str] = field(default_factory=dict)
    """Values that go before those of the manifest."""
    secrets: dict[str, Any] = field(default_factory=dict)
    """Those that are granted: str or bytes."""
    kv: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The buckets that are granted, with their values. What a task has written is bytes."""
    http: Optional[Callable[..., tuple[int, Mapping[str, Any], Any]]] = None
    """Answers requests: http(method, url, headers, body) returns status, headers and body."""
    databases: dict[str, str] = field(default_factory=dict)
    """The URLs of the databases that are granted: real ones, by psycopg. What tasks change is undone by close()."""
    queues: Optional[Sequence[str]] = None
    """The queues to which tasks may enqueue, as patterns such as "mail.*"; None for all that the manifest grants."""
    topics: Optional[Sequence[str]] = None
    """The topics to which tasks may publish, as patterns; None for all that the manifest grants."""
    checkpoints: dict[str, bytes] = field(default_factory=dict)
    """By the ID of the task."""
    enqueued: list[tuple[str, bytes, dict[str, Any]]] = field(default_factory=list)
    """Queue, body and options of what completed tasks have enqueued."""
    published: list[tuple[str, bytes, dict[str, Any]]] = field(default_factory=list)
    """Topic, body and options of what completed tasks have published."""
    _open: dict[str, Database] = field(default_factory=dict, init=False, repr=False)

    def close(self) -> None:
        """Undoes what tasks have changed in databases."""
        while self._open:
            self._open.popitem()[1].close()

    def _connected(self, name: str) -> Database:
        if name not in self._open:
            self._open[name] = Database(self.databases[name])
        return self._open[name]

    def _end(self, complete: bool) -> None:
        """Commits or undoes what a task has left in databases. SQLError if a commit is refused."""
        for database in self._open.values():
            if complete:
                _rows(database.commit())
            else:
                database.rollback()

    def run(
        self,
        handle: Callable[[Task], Any],
        input: Any = b"",
        *,
        id: str = "test",
        queue: str = "test",
        tenant: str = "default",
        plugin: str = "test",
        attempt: int = 1,
        max_attempts: int = 0,
        reschedules: int = 0,
        deadline: Optional[datetime] = None,
        key: str = "",
        parent: str = "",
        previous_error: str = "",
        traceparent: str = "",
        headers: Optional[Mapping[str, str]] = None,
        after: Optional[Mapping[str, Any]] = None,
        cancelled: bool = False,
    ) -> Result:
        """Runs the handler on a task. The input may be bytes, str or what JSON can express, and so may the results of the tasks that
        it waited for: after has them by ID, with None for those that failed."""
        given = dict(headers or {}, **({"traceparent": traceparent} if traceparent else {}))
        run = _native.Run(
            host=self, id=id, input=bytes(_host.encoded(input)),
            texts=[id, queue, tenant, plugin, previous_error, parent, key, traceparent,
                   "".join(f"{name}: {given[name]}\n" for name in sorted(given)),
                   "".join(f"{id} {'failed' if result is None else 'complete'}\n" for id, result in (after or {}).items()), ""],
            results={id: None if result is None else bytes(_host.encoded(result)) for id, result in (after or {}).items()},
            numbers=[attempt, max_attempts, round(deadline.timestamp() * 1000) if deadline else 0, (1 << 63) - 1, reschedules],
            encode=_host.encoded, cancelled=cancelled,
        )
        status, trace = _call(handle, run)
        try:
            self._end(status == "complete")
        except SQLError as error:
            status, run.error = "failed", f"commit: {error}"
            self._end(False)
        complete = status == "complete"
        if complete:
            self.enqueued += run.enqueued
            self.published += run.published
        return Result(
            status=status, output=run.output if complete else b"", error=run.error, traceback=trace, delay=run.delay, key=run.key,
            log=run.log, progress=run.progress, enqueued=run.enqueued if complete else [],
            published=run.published if complete else [], checkpoint=self.checkpoints.get(id),
            kv={name: {key: bytes(_host.encoded(value)) for key, value in values.items()} for name, values in self.kv.items()},
        )


class Status(str):
    """The status, which knows why: pytest shows that if `assert result.status == "complete"` fails."""

    why = ""


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
    """The seconds that Retry or Failure asked for."""
    key: bool
    """Whether these are for all tasks with the task's key."""
    log: list[tuple[str, str, dict[str, Any]]]
    """Lines of the log: level, text, fields."""
    progress: list[tuple[float, str]]
    enqueued: list[tuple[str, bytes, dict[str, Any]]]
    """New tasks: queue, body, options. There are none if the task failed."""
    published: list[tuple[str, bytes, dict[str, Any]]]
    """Publications likewise: topic, body, options."""
    checkpoint: Optional[bytes]
    kv: dict[str, dict[str, bytes]]

    def __post_init__(self) -> None:
        self.status = status = Status(self.status)
        if self.status != "complete":
            status.why = f"{self.error}\n{self.traceback}".strip()

    @property
    def text(self) -> str:
        return self._result().decode()

    def json(self) -> Any:
        return json.loads(self._result())

    def _result(self) -> bytes:
        if self.status != "complete":
            why = getattr(self.status, "why", "")
            raise AssertionError(f"the task is not complete, it has no result: {self.status}: {why}".rstrip())
        return self.output


@dataclass
class Plugin:
    """A plugin that runs in its engine, with its manifest and its limits, by `quern plugin run`. It is built first if its source is
    newer. The program is `quern` in PATH, or what the environment variable QUERN names."""

    folder: Path

    def run(self, input: Any = b"", *, after: Optional[Mapping[str, Any]] = None, **unknown: NoReturn) -> Result:
        """Runs a task. The input and the results in after are as in Host.run. The result has the log's lines without their fields,
        and neither a delay nor what the task left in services."""
        if unknown:
            raise TypeError(
                f"quern_plugin.run takes no {next(iter(unknown))!r}, only input and after: list a test with kv and http under tests in "
                f"{self._name()}.yaml, for `quern plugin test`, or run the handler natively: quern_host.run(handler.handle, input, …)"
            )
        program = os.environ.get("QUERN", "quern")
        command = [program, "plugin", "run", f"{self._name()}.wasm"]
        with tempfile.TemporaryDirectory() as results:
            for number, (id, result) in enumerate((after or {}).items()):
                if result is not None:
                    Path(results, str(number)).write_bytes(bytes(_host.encoded(result)))
                    id = f"{id}={Path(results, str(number))}"
                command += ["--dependency", id]
            try:
                done = subprocess.run(command, cwd=self.folder, input=bytes(_host.encoded(input)), capture_output=True)
            except FileNotFoundError:
                raise FileNotFoundError(f"there is no program {program}: install Quern, or name the program by QUERN=PATH") from None
        said = done.stderr.decode(errors="replace")
        before, failed, text = said.rpartition("task local failed (")
        if done.returncode not in (0, 1) or done.returncode == 1 and not failed:
            raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}: {said.strip()}")
        log = [_line(line) for line in (before if failed else said).splitlines() if not line.startswith("quern: ")]
        reason, _, text = text.partition("): ")
        error, _, trace = text.partition("\n")
        trace = re.sub(r"(?m)^  ", "", trace)  # as the command prints it
        status = "complete" if done.returncode == 0 else reason if reason in ("fatal", "retry") else "failed"
        return Result(
            status=status, output=done.stdout if status == "complete" else b"", error=error, traceback=trace, delay=None, key=False, log=log,
            progress=[], enqueued=[], published=[], checkpoint=None, kv={},
        )

    def _name(self) -> str:
        return _manifest.path_of(self.folder).stem


def _line(line: str) -> tuple[str, str, dict[str, Any]]:
    level, mark, text = line.partition(": ")
    return (level.upper(), text, {}) if mark and level.upper() in _native._LEVELS else ("", line, {})


def run(
    handle: Callable[[Task], Any],
    input: Any = b"",
    *,
    config: Optional[Mapping[str, str]] = None,
    secrets: Optional[Mapping[str, Any]] = None,
    kv: Optional[Mapping[str, Mapping[str, Any]]] = None,
    http: Optional[Callable[..., tuple[int, Mapping[str, Any], Any]]] = None,
    databases: Optional[Mapping[str, str]] = None,
    queues: Optional[Sequence[str]] = None,
    topics: Optional[Sequence[str]] = None,
    checkpoint: Optional[bytes] = None,
    **task: Any,
) -> Result:
    """Runs the handler on a task of a host of its own: see Host, and Host.run for what a task has."""
    host = Host(
        config=dict(config or {}), secrets=dict(secrets or {}), kv={name: dict(values) for name, values in (kv or {}).items()},
        http=http, databases=dict(databases or {}), queues=queues, topics=topics,
    )
    if checkpoint is not None:
        host.checkpoints[task.get("id", "test")] = checkpoint
    try:
        return host.run(handle, input, **task)
    finally:
        host.close()


_watched = False
"""Whether tasks raise what the engine raises."""


def _call(handle: Callable[[Task], Any], run: _native.Run) -> tuple[str, str]:
    """Calls the handler, with the task's log, and returns the status and the traceback."""
    global _watched
    if not _watched:
        _native.watch()
        _watched = True
    root, lines, before = logging.getLogger(), TaskLog(), _native.current
    level = root.level
    root.addHandler(lines)
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    _native.current = run
    cause = ""
    try:
        if wrong := wrong_arguments(handle):
            raise TypeError(wrong)
        with _bounded():
            result = handle(Task())
        if inspect.iscoroutine(result):
            with _bounded():
                result, lost = _await(result)
            if lost:
                cause = LOST
                raise lost[0]
        run.output += bytes(_host.encoded(result, _host.result_of(handle)))
    except Failure as error:
        run.error = cause + str(error)
        if error.delay is not None:
            run.delay, run.key = max(_host.milliseconds(error.delay), 0) / 1000, error.key
        return {65: "fatal", 75: "retry"}.get(error.status, "failed"), _trace(error)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
        if error.code is None or code == 0:
            return "complete", ""
        run.error = f"sys.exit({code})" if isinstance(error.code, int) else str(error.code)
        return {65: "fatal", 75: "retry"}.get(code, "failed"), _trace(error)
    except Exception as error:
        run.error = cause + _message(error)
        return "failed", _trace(error)
    finally:
        sys.stdout.flush()
        _native.current = before
        root.removeHandler(lines)
        root.setLevel(level)
    return "complete", ""


LONGEST = 60.0
"""How long a task may run here, in seconds. The manifest's limits.timeout is that of the engine."""


class Overtime(BaseException):
    """A task that has run for LONGEST. No except clause of a handler catches it."""


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Ends an endless loop with its traceback. Only a main thread without an alarm of its own can do so."""
    alarm = getattr(signal, "SIGALRM", None)
    if not alarm or threading.current_thread() is not threading.main_thread() or signal.getsignal(alarm) != signal.SIG_DFL:
        yield
        return

    def end(number: int, frame: object) -> NoReturn:
        raise Overtime(f"the task has run for {LONGEST:g} s: is that an endless loop? quern.testing.LONGEST = SECONDS allows more")

    signal.signal(alarm, end)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(alarm, signal.SIG_DFL)


def _trace(error: BaseException) -> str:
    """The traceback from the handler on, without the frames of this package."""
    return "".join(traceback.format_exception(type(error), error, _users(error.__traceback__)))


def _await(coroutine: Any) -> tuple[Any, list[BaseException]]:
    """Returns the result, and what tasks have raised that nothing has awaited."""
    lost: list[BaseException] = []

    def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "was never retrieved" in context["message"]:
            lost.append(context["exception"])
        else:
            loop.default_exception_handler(context)

    async def watched() -> Any:
        asyncio.get_running_loop().set_exception_handler(unhandled)
        return await coroutine

    result = asyncio.run(watched())
    gc.collect()  # a task tells of its exception when it goes
    return result, lost
