from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, NamedTuple, NoReturn, Optional

from . import _host
from .errors import HostError, NotFoundError


_REFUSAL = 10  # the field of task_text with why the host last refused a call, or a dependency has no result


class Dependency(NamedTuple):
    """A task that another one waited for."""

    id: str
    end: str
    """complete, failed, gone (deleted), open (it could not be waited for), or waiting while it goes on."""


class Task:
    """A handler's task. What a task does not have is "" or None."""

    __slots__ = ()

    @property
    def input(self) -> bytes:
        """What was enqueued, byte for byte."""
        return _host.functions.input()

    @property
    def text(self) -> str:
        """The input as UTF-8. Fatal if it is not."""
        try:
            return _host.functions.input().decode()
        except UnicodeDecodeError as error:
            raise _invalid(f"the input is not UTF-8: {error}") from None

    def json(self) -> Any:
        """The input parsed as JSON. Fatal if it is not: another attempt would have the same input."""
        try:
            return _host.from_json(_host.functions.input())
        except ValueError as error:
            start = _host.functions.input()[:60]
            begins = f"it begins with {start.decode(errors='replace')!r}: " if start else "it is empty: "
            raise _invalid(f"the input is not JSON: {begins}{error}") from None

    @property
    def id(self) -> str:
        """The same in every attempt: the key that makes an outside effect happen once."""
        return _host.functions.task_text(0)

    @property
    def queue(self) -> str:
        return _host.functions.task_text(1)

    @property
    def tenant(self) -> str:
        return _host.functions.task_text(2)

    @property
    def plugin(self) -> str:
        return _host.functions.task_text(3)

    @property
    def previous_error(self) -> str:
        """Why the attempt before failed."""
        return _host.functions.task_text(4)

    @property
    def parent(self) -> str:
        """The ID of the task that enqueued this one."""
        return _host.functions.task_text(5)

    @property
    def key(self) -> str:
        """The key with which the task was enqueued."""
        return _host.functions.task_text(6)

    @property
    def traceparent(self) -> str:
        """The task's trace, in the form of the W3C's header."""
        return _host.functions.task_text(7)

    @property
    def headers(self) -> dict[str, str]:
        """Those with which the task was enqueued, by names in lower case, traceparent among them."""
        lines = _host.functions.task_text(8).split("\n")[:-1]
        return {name: value for name, _, value in (line.partition(": ") for line in lines)}

    def dependencies(self) -> list[Dependency]:
        """The tasks that this one waited for before it ran, in the order in which they were named."""
        return [Dependency(*line.split(" ")) for line in _host.functions.task_text(9).split("\n")[:-1]]

    def result_of(self, id: str) -> bytes:
        """The result of one of these. NotFoundError if it has none, because it is not complete or is deleted; InvalidError if
        this task did not wait for it; TooBigError above 16 MiB."""
        try:
            return _host.functions.dependency_result(id)
        except NotFoundError as error:
            error.args, error.about = (), _host.functions.task_text(_REFUSAL) or f"task {id} has no result"
            raise
        except HostError as error:
            error.args = error.args or (f"result of {id}",)
            raise

    @property
    def attempt(self) -> int:
        """Counts from 1."""
        return _host.functions.task_number(0)

    @property
    def max_attempts(self) -> int:
        """0 without a bound."""
        return _host.functions.task_number(1)

    @property
    def reschedules(self) -> int:
        """How often the task has put itself off by Retry, which counts no attempt."""
        return max(0, _host.functions.task_number(4))

    @property
    def deadline(self) -> Optional[datetime]:
        """When the task is ended without notice; None if never."""
        ms = _host.functions.task_number(2)
        return datetime.fromtimestamp(ms / 1000, timezone.utc) if ms else None

    @property
    def cancelled(self) -> bool:
        """Whether the host is about to end: a handler that then raises Retry is run again elsewhere."""
        return _host.functions.cancelled()

    def __repr__(self) -> str:
        return f"<quern.Task {self.id} of {self.queue}, attempt {self.attempt}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        from ._hints import attribute

        raise attribute("a task", name, dir(type(self)), {
            "retry": "raise quern.Retry(why, delay=seconds), or quern.Failure if the attempt counts",
            "request": "use task.id, task.attempt, task.headers", "retries": "use task.attempt, which counts from 1",
            "args": "use task.json()", "kwargs": "use task.json()", "data": "use task.json()",
            "body": "use task.input, task.text or task.json()", "parameters": "use task.input, task.text or task.json()",
            "payload": "use task.input, task.text or task.json()", "delay": "use quern.enqueue(queue, body)",
            "apply_async": "use quern.enqueue(queue, body)", "update_state": "use quern.progress(fraction, message)",
            "update_progress": "use quern.progress(fraction, message)", "log": "use logging, or quern.log",
        })


def _invalid(text: str) -> Exception:
    from .errors import Fatal

    return Fatal(text)
