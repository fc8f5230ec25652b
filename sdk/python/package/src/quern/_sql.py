"""Statements on the PostgreSQL databases of the manifest, and the types of their values."""

from __future__ import annotations

import json
import struct
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, NoReturn, Optional
from uuid import UUID

from . import _host
from ._services import _ask
from .errors import ConflictError, NotFoundError, SQLError

Row = Dict[str, Any]


class Column(NamedTuple):
    name: str
    oid: int
    """Of its type, as in PostgreSQL's table pg_type."""


class Rows(List[Row]):
    """The rows of an answer: a list of dicts, each by the names of the columns."""

    affected: int = 0
    """How many rows were inserted, changed, deleted, selected or fetched."""
    columns: List[Column] = []


class Database:
    """A PostgreSQL database, which the manifest grants in capabilities.sql. The first statement begins a transaction. With `commit:
    complete`, the default, it is committed together with the completion of the task, and undone if the handler raises. With `commit:
    call`, commit() and once() commit it.

    Statements have parameters $1, $2 and so on, and as many arguments: None for NULL, bool, int, float, Decimal, str (of any type, in
    PostgreSQL's text format), bytes, date, time, datetime, timedelta, UUID, a list of these for an array, a dict for json. A list
    for json is json.dumps(value).

    Values of rows are bool, int, float, Decimal, str, bytes, date, time, datetime (of timestamptz in UTC), UUID, what json.loads makes
    of json and jsonb, and lists of these of arrays; None of NULL. Values of other types are str in PostgreSQL's text format, and so
    are dates and times that Python does not express, such as infinity.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def query(self, statement: str, *args: Any) -> Rows:
        """Runs a statement, and returns its rows. An error of PostgreSQL is an SQLError. LimitError: the answer or the time is over what
        the manifest allows. UnavailableError: the database does not serve. Let it end the handler: the task runs again later, without
        counting an attempt."""
        values = b"".join([_packed(n, arg) for n, arg in enumerate(args, 1)])
        return _rows(_ask(f"sql {self.name}", "sql", self.name, statement, values))

    def query_row(self, statement: str, *args: Any) -> Optional[Row]:
        """Runs a statement, and returns the first of its rows; None if there is none."""
        rows = self.query(statement, *args)
        return rows[0] if rows else None

    def execute(self, statement: str, *args: Any) -> int:
        """Runs a statement, and returns how many rows it affected."""
        return self.query(statement, *args).affected

    def commit(self) -> None:
        """Commits the transaction. The manifest must say `commit: call`. UnavailableError: it is not known whether it is committed."""
        self._commit("", b"")

    def _commit(self, step: str, value: bytes) -> None:
        _rows(_ask(f"sql commit {self.name}", "sql_commit", self.name, step, value))

    def rollback(self) -> None:
        """Undoes the transaction. The next statement begins a new one."""
        _ask(f"sql rollback {self.name}", "sql_rollback", self.name)

    def once(self, step: str, do: Callable[[], Any]) -> Any:
        """Does a step of the task that must not be done twice, however often the task runs. If a run of the task has done the step, this
        returns its value. Otherwise it calls do, and commits its statements together with what it returns, as JSON. If do raises, its
        statements are undone. The manifest must say `commit: call`."""
        try:
            return self._step(step)
        except NotFoundError:
            pass
        try:
            value = _host.to_json(do(), f"the value of step {step}")
        except BaseException:
            self.rollback()
            raise
        try:
            self._commit(step, value)
        except ConflictError:  # another run was faster
            return self._step(step)
        return json.loads(value)

    def _step(self, step: str) -> Any:
        return json.loads(_ask(f"sql step {self.name}/{step}", "sql_step", self.name, step))

    def __repr__(self) -> str:
        return f"quern.database({self.name!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        from ._hints import attribute

        raise attribute("a database", name, dir(type(self)), {
            "fetch": "use query(statement, …)", "fetchall": "use query(statement, …)", "fetchrow": "use query_row(statement, …)",
            "fetchone": "use query_row(statement, …)", "fetchval": "use query_row(statement, …)['name']", "cursor": "use query(statement, …)",
            "exec": "use execute(statement, …)", "executemany": "use one statement: INSERT INTO t SELECT * FROM unnest($1::int[], $2::text[])",
            "transaction": "the first statement begins one", "begin": "the first statement begins a transaction",
            "connect": "the host connects when the first statement comes", "close": "leave it out",
        })


def database(name: str) -> Database:
    """The database of that name."""
    return Database(name)


def _rows(answer: Any) -> Rows:
    """The rows of an answer of the host's functions; raises an error of the database."""
    if isinstance(answer, dict):
        raise SQLError(answer)
    affected, names, oids, found = answer
    rows = Rows(found)
    rows.affected, rows.columns = affected, list(map(Column, names, oids))
    if len(set(names)) < len(names):
        twice = next(name for n, name in enumerate(names) if name in names[:n])
        raise ValueError(f"two columns are called {twice}: give them names by AS")
    for name, oid in rows.columns:
        if convert := _CONVERT.get(oid):
            for row in found:
                if (value := row[name]) is not None:
                    row[name] = convert(value)
    return rows


def _or_text(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """Leaves what Python does not express as text, such as infinity and years BC."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except (ValueError, OverflowError):
            return text

    return converted


def _json(text: str) -> Any:
    return _host.from_json(text.encode())


def _time(text: str) -> time:
    if text.startswith("24"):
        raise ValueError(text)
    return time.fromisoformat(_six_digits(text))


def _timestamp(text: str) -> datetime:
    return datetime.fromisoformat(_six_digits(text))


def _timestamptz(text: str) -> datetime:
    zone = max(text.rfind("+"), text.rfind("-"))
    moment, offset = text[:zone], text[zone:]
    offset += ":00" if len(offset) == 3 else ""
    return datetime.fromisoformat(_six_digits(moment) + offset).astimezone(timezone.utc)


def _six_digits(text: str) -> str:
    """A time with all 6 digits of the second's fraction, or none: before Python 3.11 fromisoformat reads no others."""
    whole, point, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6}" if point and fraction.isdigit() else text


def _bytea(text: str) -> bytes:
    """A bytea within an array."""
    return bytes.fromhex(text[2:])


def _array(convert: Optional[Callable[[str], Any]]) -> Callable[[str], List[Any]]:
    return lambda text: _items(text, convert)


def _items(text: str, convert: Optional[Callable[[str], Any]]) -> List[Any]:
    """An array in PostgreSQL's text format, such as {1,NULL,"a b"}. Bounds before it, such as [0:1]=, are left out."""
    at = text.index("{") + 1
    open: List[List[Any]] = [[]]
    while True:
        c = text[at]
        if c == "}":
            done, at = open.pop(), at + 1
            if not open:
                return done
            open[-1].append(done)
        elif c == "{":
            open.append([])
            at += 1
        elif c == ",":
            at += 1
        else:
            quoted, item, at = c == '"', *_item(text, at)
            open[-1].append(None if item == "NULL" and not quoted else convert(item) if convert else item)


def _item(text: str, at: int) -> "tuple[str, int]":
    """An element of an array that is no array, and where it ends."""
    if text[at] != '"':
        end = at
        while text[end] not in ",}":
            end += 1
        return text[at:end], end
    parts, at = [], at + 1
    while text[at] != '"':
        at += text[at] == "\\"
        end = at + 1
        while text[end] not in '"\\':
            end += 1
        parts.append(text[at:end])
        at = end
    return "".join(parts), at + 1


def _bool(text: str) -> bool:
    return text == "t"


_CONVERT: Dict[int, Callable[[Any], Any]] = {}
"""By the OID of a type. Others stay text, and bytea bytes."""

for _oids, _convert in (
    ((16, 1000), _bool), ((21, 1005), int), ((23, 1007), int), ((20, 1016), int), ((700, 1021), float), ((701, 1022), float),
    ((1700, 1231), Decimal), ((25, 1009), None), ((1043, 1015), None), ((1042, 1014), None), ((114, 199), _json), ((3802, 3807), _json),
    ((2950, 2951), UUID), ((1082, 1182), _or_text(date.fromisoformat)), ((1083, 1183), _or_text(_time)),
    ((1114, 1115), _or_text(_timestamp)), ((1184, 1185), _or_text(_timestamptz)),
):
    if _convert:
        _CONVERT[_oids[0]] = _convert
    _CONVERT[_oids[1]] = _array(_convert)
_CONVERT[1001] = _array(_bytea)

_NULL, _TEXT, _BYTES = range(3)


def _packed(number: int, arg: Any) -> bytes:
    """An argument as a value of sdk/ABI.md."""
    kind, data = _TEXT, b""
    if arg is None:
        kind = _NULL
    elif isinstance(arg, (bytes, bytearray, memoryview)):
        kind, data = _BYTES, bytes(arg)
    else:
        data = _text_of(f"argument {number}", arg).encode(errors="replace")
    return struct.pack("<BI", kind, len(data)) + data


def _text_of(what: str, arg: Any) -> str:
    """PostgreSQL's text format of an argument."""
    if isinstance(arg, str):
        return arg
    if isinstance(arg, bool):
        return "true" if arg else "false"
    if isinstance(arg, datetime) and arg.tzinfo is not None:
        return arg.astimezone(timezone.utc).isoformat(" ")
    if isinstance(arg, (int, float, Decimal, date, time, UUID)):
        return str(arg)
    if isinstance(arg, timedelta):
        return f"{arg // timedelta(microseconds=1)} microseconds"
    if isinstance(arg, list):
        return "{" + ",".join([_item_of(what, item) for item in arg]) + "}"
    if isinstance(arg, Mapping):
        return _host.to_json(arg, what).decode()
    if isinstance(arg, tuple):
        raise TypeError(f"{what} is a tuple: pass its parts one by one, as in query(statement, 1, 'a'), or a list for an array")
    raise TypeError(f"{what} is of the type {type(arg).__name__}: pass str(…), or json.dumps(…) for json")


def _item_of(what: str, item: Any) -> str:
    """An element of an array."""
    if item is None:
        return "NULL"
    if isinstance(item, list):
        return _text_of(what, item)
    if isinstance(item, Mapping):
        raise TypeError(f"{what} is a list with a dict: pass json.dumps(…) of the list for json, or of each dict for json[]")
    if isinstance(item, (bytes, bytearray, memoryview)):
        text = "\\x" + bytes(item).hex()
    else:
        text = _text_of(what, item)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
