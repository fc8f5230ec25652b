from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from typing import Any, Mapping, NamedTuple, Optional

FINAL = ("complete", "failed")


class Publication(NamedTuple):
    """What became of a publication. existed: it was published before, and nothing is published now. subscribers: how many subscriptions
    matched, each of which gets a task. dropped: none did, and there is no task."""

    id: str
    topic: str
    existed: bool
    subscribers: int = 0
    dropped: bool = False


class Task:
    """A task as the server described it. fields has all that the server said, by the names of the API."""

    def __init__(self, fields: Mapping[str, Any], result: Optional[bytes] = None) -> None:
        self.fields = fields
        self._result = result if result is not None else _payload(fields, "result")

    @property
    def id(self) -> str:
        return self.fields["id"]

    @property
    def queue(self) -> str:
        return self.fields["queue"]

    @property
    def status(self) -> str:
        """scheduled, pending, reserved, started, complete or failed."""
        return self.fields["status"]

    @property
    def finished(self) -> bool:
        return self.status in FINAL

    @property
    def attempts(self) -> int:
        """How many runs ended by themselves."""
        return self.fields.get("attempts", 0)

    @property
    def reschedules(self) -> int:
        """How many runs asked to be called again later; these are not attempts."""
        return self.fields.get("reschedules", 0)

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        return self.fields.get("progress", 0.0)

    @property
    def message(self) -> str:
        """What the handler said with its last progress."""
        return self.fields.get("message", "")

    @property
    def reason(self) -> str:
        """Why the task failed, such as error, timeout or cancelled; "" unless it failed."""
        return self.fields.get("reason", "")

    @property
    def error_message(self) -> str:
        """The handler's or the host's error; "" unless the task failed."""
        return (self.fields.get("error") or {}).get("message", "")

    @property
    def created(self) -> Optional[datetime]:
        return _time(self.fields.get("created"))

    @property
    def finished_at(self) -> Optional[datetime]:
        return _time(self.fields.get("finished_at"))

    @property
    def result(self) -> bytes:
        """The result of a complete task."""
        if self._result is None and self.fields.get("withheld"):
            raise ValueError(f"task {self.id}: this token may not see results")
        if self._result is None:
            raise ValueError(f"task {self.id} has no result to read: it is {self.status}")
        return self._result

    @property
    def text(self) -> str:
        return self.result.decode()

    def json(self) -> Any:
        return json.loads(self.result)

    @property
    def result_missing(self) -> bool:
        """The server left the result out, because it is large."""
        return self.status == "complete" and self._result is None and not self.fields.get("withheld")

    def __repr__(self) -> str:
        return f"<Task {self.id} of {self.queue}: {self.status}>"


def _payload(fields: Mapping[str, Any], name: str) -> Optional[bytes]:
    if fields.get(name + "_base64") is not None:
        return base64.b64decode(fields[name + "_base64"])
    if fields.get(name) is not None:
        return fields[name].encode()
    return b"" if fields["status"] == "complete" and not fields.get(name + "_size") and not fields.get("withheld") else None


def _time(seconds: Optional[float]) -> Optional[datetime]:
    return datetime.fromtimestamp(seconds, timezone.utc) if seconds else None
