from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._models import Task


class APIError(Exception):
    """The server refused a request. type names the kind of problem, such as "queue-full"; status is the HTTP status."""

    def __init__(self, status: int, type: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.type = status, type


class NoTaskError(APIError):
    """There is no task with this ID: it never existed, or was deleted."""


def headline(task: Task) -> str:
    """The first line of a failed task's error."""
    return (task.error_message or "no message").splitlines()[0]


def _word(task: Task) -> str:
    """The reason of a failed task as the command line writes it: the exit codes 65 and 75 tell what the handler raised."""
    exit = (task.fields.get("error") or {}).get("exit_code")
    return {65: "fatal", 75: "retry"}.get(exit, task.reason) if task.reason == "error" else task.reason or "error"


class TaskFailed(Exception):
    """A task has failed. task has all that the server says about it."""

    def __init__(self, task: Task, cause: str = "") -> None:
        text = f"task {task.id} failed ({_word(task)}): {headline(task)}"
        super().__init__(f"{text}: {cause}" if cause else text)
        self.task = task


class Unreachable(APIError):
    """The server did not answer, however often the client asked."""

    def __init__(self, detail: str) -> None:
        super().__init__(0, "unreachable", detail)


_REQUEST = re.compile(r"[;:,] [^;:,]*\b(?:GET|POST|PUT|PATCH|DELETE) /v1/\S*")  # a remedy for those who speak HTTP


def error_of(status: int, problem: dict) -> APIError:
    """The error for an answer that is a problem of RFC 9457."""
    name = str(problem.get("type") or "").rpartition(":")[2]
    errors = problem.get("errors")
    details = [  # body. and query. say where the client has put an option
        f"{re.sub('^(body|query)[.]', '', str(e.get('location', '')))}: {e.get('message', '')}"
        for e in (errors if isinstance(errors, list) else ()) if isinstance(e, dict)
    ]
    text = "; ".join([str(problem.get("detail") or problem.get("title") or f"HTTP status {status}"), *details])
    text = _REQUEST.sub("", text)
    if name == "no-task":
        return NoTaskError(status, name, f"{text}: quern task ls shows those of a queue")
    return APIError(status, name, text)
