"""PostgreSQL for quern.testing, by libpq, which psycopg brings. A database has one transaction for as long as the host lives, which
is undone at the end; the transactions of tasks are savepoints in it."""

from __future__ import annotations

import re
import struct
from typing import Any, Iterator, Optional

from . import errors as _errors

_SAVEPOINT = b'"quern"'
_BEGIN = b"""BEGIN; SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres';
SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1; SET LOCAL client_encoding = 'UTF8'; SET LOCAL lock_timeout = '10s'"""
_WORD = re.compile(r"(?:[\s(]|--[^\r\n]*|/\*.*?\*/)*([a-z_]*)(?:\s+(?:WORK\s+|TRANSACTION\s+)?(TO)\b)?", re.IGNORECASE | re.DOTALL)
_WORDS = (
    "SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "EXPLAIN", "DECLARE", "FETCH", "MOVE", "CLOSE",
    "SAVEPOINT", "RELEASE",
)
_BYTEA = 17


def refusal(kind: type[_errors.HostError], why: str) -> _errors.HostError:
    """An error of the host with its reason."""
    error = kind()
    error.about = why
    return error


class Database:
    """A database of a quern.testing.Host."""

    def __init__(self, url: str) -> None:
        try:
            from psycopg import pq
        except ImportError:
            raise ImportError("tests with a database need psycopg: pip install 'quern[sql]'") from None
        self._pq: Any = pq
        self._connection = pq.PGconn.connect(url.encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise refusal(_errors.UnavailableError, self._connection.error_message.decode(errors="replace").strip())
        self._do(_BEGIN)
        self._steps: dict[tuple[str, str], bytes] = {}  # by task and step
        self._open = False  # whether a task has begun a transaction
        self._refused: Any = None  # the error after which all statements are refused

    def close(self) -> None:
        """Undoes what tasks have changed."""
        self._connection.finish()

    def query(self, statement: str, values: bytes) -> Any:
        """The answer in the form of the engine's module."""
        word, to = _WORD.match(statement).groups()  # type: ignore[union-attr]
        if word.upper() not in _WORDS and not (word.upper() == "ROLLBACK" and to):
            raise refusal(
                _errors.DeniedError, f"a statement that begins with {word!r}: statements begin with {', '.join(_WORDS)} or ROLLBACK TO"
            )
        if not self._open:
            self._do(b"SAVEPOINT " + _SAVEPOINT)
            self._open = True
        kinds, data = zip(*parameters) if (parameters := list(_unpacked(values))) else ((), ())
        answer = self._answer(self._connection.exec_params(statement.encode(), data, None, [kind == 2 for kind in kinds]))
        if isinstance(answer, dict):
            self._refused = self._refused or answer
        else:
            self._refused = None
        return answer

    def commit(self) -> Any:
        """Checks what a commit checks, and keeps the changes."""
        if not self._open:
            return 0, [], [], []
        for check in (b"SAVEPOINT quern_check", b"SET CONSTRAINTS ALL IMMEDIATE", b"ROLLBACK TO quern_check"):
            answer = self._answer(self._connection.exec_params(check, None))
            if isinstance(answer, dict):
                answer = self._refused or answer
                self.rollback()
                return answer
        self._do(b"RELEASE " + _SAVEPOINT)
        self._open, self._refused = False, None
        return answer

    def rollback(self) -> None:
        if self._open:
            self._do(b"ROLLBACK TO " + _SAVEPOINT + b"; RELEASE " + _SAVEPOINT)
        self._open, self._refused = False, None

    def step(self, task: str, step: str) -> bytes:
        if (task, step) not in self._steps:
            raise _errors.NotFoundError
        return self._steps[task, step]

    def commit_step(self, task: str, step: str, value: bytes) -> Any:
        if (task, step) in self._steps:
            self.rollback()
            raise _errors.ConflictError
        answer = self.commit()
        if not isinstance(answer, dict):
            self._steps[task, step] = value
        return answer

    def _do(self, script: bytes) -> None:
        """Runs statements that only fail if the connection does."""
        answer = self._answer(self._connection.exec_(script))
        if isinstance(answer, dict):
            raise _errors.SQLError(answer)

    def _answer(self, result: Any) -> Any:
        status = self._pq.ExecStatus
        if result.status == status.FATAL_ERROR:
            fields = {letter: result.error_field(ord(letter)) for letter in "CMDHPstcdn"}
            if fields["C"] is None:  # the connection is gone
                raise refusal(_errors.UnavailableError, result.error_message.decode(errors="replace").strip())
            return {letter: text.decode(errors="replace") for letter, text in fields.items() if text is not None}
        names = [result.fname(n).decode() for n in range(result.nfields)]
        oids = [result.ftype(n) for n in range(result.nfields)]
        rows = [
            {name: _value(oid, result.get_value(row, n)) for n, (name, oid) in enumerate(zip(names, oids))} for row in range(result.ntuples)
        ]
        return result.command_tuples or 0, names, oids, rows


def _value(oid: int, data: Optional[bytes]) -> Any:
    if data is None:
        return None
    return bytes.fromhex(data[2:].decode()) if oid == _BYTEA else data.decode()


def _unpacked(values: bytes) -> Iterator[tuple[int, Optional[bytes]]]:
    """The kinds and data of values of sdk/ABI.md."""
    at = 0
    while at < len(values):
        kind, size = struct.unpack_from("<BI", values, at)
        at += 5 + size
        yield kind, values[at - size:at] if kind else None
