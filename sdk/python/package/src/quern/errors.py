"""What a handler raises, and what the host's functions raise."""

from __future__ import annotations

from datetime import timedelta
from typing import Mapping, NoReturn, Optional, Union

Duration = Union[int, float, timedelta]
"""Seconds, or a timedelta."""


class Failure(Exception):
    """Fails the attempt with this text alone, without a traceback. This counts, as any other exception does: the retry policy decides
    about another attempt, which comes after the delay, between its min and max, or, without one, after the policy's delay."""

    status = 1
    key = False
    _options = ["delay"]

    def __init__(self, *args: object, delay: Optional[Duration] = None, **unknown: NoReturn) -> None:
        if unknown:
            from ._hints import option

            raise option(f"quern.{type(self).__name__}", next(iter(unknown)), self._options)
        super().__init__(*args)
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if seconds is not None and not (isinstance(seconds, (int, float)) and 0 <= seconds < float("inf")):
            raise ValueError(f"delay of {type(self).__name__}: {delay!r}: expected seconds or a timedelta, 0 or more")
        self.delay = delay


class Fatal(Failure):
    """Fails the task for good: another attempt would end the same."""

    status = 65

    def __init__(self, *args: object, **unknown: NoReturn) -> None:
        if unknown:
            raise TypeError(f"quern.Fatal has no option {next(iter(unknown))!r}: another attempt is made by quern.Failure or quern.Retry")
        super().__init__(*args)


class Retry(Failure):
    """Has the task run again later: after the delay, or, without one, after the shortest delay of its retry policy. This does not count
    as an attempt: see Failure for what does. With key=True all other waiting tasks of the queue with the key of this one wait as long,
    such as those of a customer whom a service answers with 429."""

    status = 75
    _options = ["delay", "key"]

    def __init__(self, *args: object, delay: Optional[Duration] = None, key: bool = False, **unknown: NoReturn) -> None:
        super().__init__(*args, delay=delay, **unknown)
        if key and not self.delay:
            raise ValueError("key of Retry without a delay: write how long the tasks with this key are to wait, such as delay=30")
        self.key = bool(key)


class HostError(Exception):
    """An answer of the host that is no success. Its code is the name in the specification of quern_v1. The host's own reason, such as
    the line to add to the manifest, takes the place of the class's about."""

    code = ""
    about = "the host refused"

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}: {self.about}" if text else self.about


class InvalidError(HostError):
    code = "EINVAL"
    about = "an argument is invalid"


class FaultError(HostError):
    code = "EFAULT"
    about = "a fault of the SDK"


class DeniedError(HostError):
    code = "EDENIED"
    about = "the manifest or the host does not allow it"


class NotFoundError(HostError):
    code = "ENOTFOUND"
    about = "nothing has that name"


class TooBigError(HostError):
    code = "ETOOBIG"
    about = "it is larger than its limit"


class QuotaError(HostError):
    code = "EQUOTA"
    about = "there is no room for more"


class ConflictError(HostError):
    """Another value is there than the expected one: present, None if there is none."""

    code = "ECONFLICT"
    about = "the present value is not the expected one"
    present: Optional[bytes] = None


class LostError(HostError):
    code = "ECANCELED"
    about = "another host has taken over the task: stop"


class UnavailableError(HostError):
    code = "EAGAIN"
    about = "the service is unavailable"


class NoHostError(HostError):
    code = "ESTATE"
    about = "this works only in a task: call it in handle, not while the module is imported"


class LimitError(HostError):
    code = "ELIMIT"
    about = "too many, or too deep"


class SQLError(Exception):
    """An error of PostgreSQL. After it, the database refuses all statements of the transaction, until ROLLBACK TO a savepoint, or
    rollback() of the database. What an error does not have is ""."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        """The fields are those of PostgreSQL's protocol, by their letters."""
        self.sqlstate = fields.get("C", "")
        """Such as 23505: see PostgreSQL's table of error codes."""
        self.message = fields.get("M", "")
        self.detail = fields.get("D", "")
        self.hint = fields.get("H", "")
        self.position = int(fields.get("P", 0))
        """The place in the statement, in characters from 1; 0 if unknown."""
        self.schema = fields.get("s", "")
        self.table = fields.get("t", "")
        self.column = fields.get("c", "")
        self.data_type = fields.get("d", "")
        self.constraint = fields.get("n", "")
        detail = f": {self.detail}" if self.detail else ""
        super().__init__(f"{self.message}{detail} (SQLSTATE {self.sqlstate})")


BY_RESULT = (
    InvalidError, FaultError, DeniedError, NotFoundError, TooBigError, QuotaError, ConflictError, LostError, UnavailableError,
    NoHostError, LimitError,
)
"""By the negated results of the host's functions, from 1."""
