import json
from datetime import datetime
from decimal import Decimal

import quern

shop = quern.database("shop")


def told(value):
    if isinstance(value, list):
        return [told(item) for item in value]
    if isinstance(value, (dict, str, bool, int, float)) or value is None:
        return value if value == value and value not in (float("inf"), float("-inf")) else f"float {value}"
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    return f"{type(value).__name__} {value}"


def values(given):
    """Reads a value of each type, and gives it back as a parameter."""
    read = []
    for type, text in given:
        row = shop.query_row(f"SELECT $1::text::{type} AS value", text)
        value = row["value"]
        argument = json.dumps(value) if type.startswith("json") and not type.endswith("[]") else value
        if type == "jsonb[]":
            argument = [json.dumps(item) for item in value]
        same = shop.query_row(f"SELECT ($1::{type})::text IS NOT DISTINCT FROM ($2::text::{type})::text AS same", argument, text)
        read.append([told(value), same["same"]])
    return read


def arguments(_):
    row = shop.query_row(
        "SELECT $1::int8::text a, $2::numeric::text b, $3::float8::text c, $4::bool::text d, $5::timestamptz::text e, $6::jsonb::text f, "
        "$7::text[]::text g, $8::bytea::text h, $9::text i, $10::int[]::text j, $11::bytea[]::text k, $12::jsonb::text l",
        2**63 - 1, Decimal("1e40"), float("nan"), True, datetime.fromisoformat("2026-01-02T03:04:05.006+02:00"), {"a": [1, None, "ü"]},
        ['a"b', "c\\d", None, "NULL", "", "{,}"], b"\0\xff", None, [[1, 2], [3, 4]], [b"\0\xff"], json.dumps([]),
    )
    return list(row.values())


def rows(_):
    found = shop.query("SELECT n, 'x' || n AS name FROM generate_series(1, 3) n")
    none = shop.query_row("SELECT 1 AS one WHERE false")
    written = shop.execute("INSERT INTO t SELECT n FROM generate_series(100, 103) n")
    return [found, found.affected, [list(column) for column in found.columns], none, written]


def refused(_):
    shop.execute("INSERT INTO t VALUES (1)")
    found = []
    for statement in ("INSERT INTO t VALUES (1)", "SELECT 1"):
        try:
            shop.execute(statement)
        except quern.SQLError as e:
            found.append([e.sqlstate, e.message, e.detail, e.schema, e.table, e.constraint, e.position, str(e)])
    shop.rollback()
    try:
        shop.execute("SELECT nothing")
    except quern.SQLError as e:
        found.append([e.sqlstate, e.position, str(e)])
    shop.rollback()
    shop.execute("INSERT INTO t VALUES (2)")
    return found


def uncaught(_):
    shop.execute("INSERT INTO t VALUES (10)")
    shop.execute("INSERT INTO t VALUES (10)")


def fail(_):
    shop.execute("INSERT INTO t VALUES (20)")
    raise quern.Failure("out of ink")


def swallowed(_):
    try:
        uncaught(_)
    except quern.SQLError:
        pass


def deferred(_):
    shop.execute("INSERT INTO t VALUES (20)")
    shop.execute("INSERT INTO later VALUES (999)")


def denied(_):
    quern.database("other").query("SELECT 1")


def word(_):
    shop.query("CREATE TABLE u ()")


def commit(_):
    shop.commit()


def twice(_):
    shop.query("SELECT 1 AS a, 2 AS a")


def ids(between):
    return [row["id"] for row in shop.query("SELECT id FROM t WHERE id BETWEEN $1 AND $2 ORDER BY id", *between)]


def steps(_):
    """The first attempt fails after its step, and the second one finds it done."""

    def charge():
        shop.execute("INSERT INTO t VALUES (30)")
        return {"attempt": task.attempt, "amount": "1.10"}

    def fails():
        shop.execute("INSERT INTO t VALUES (31)")
        raise KeyError("no")

    value = shop.once("charge", charge)
    try:
        shop.once("fails", fails)
    except KeyError:
        pass
    nothing = shop.once("nothing", lambda: None)
    shop.execute("INSERT INTO t VALUES ($1)", 31 + task.attempt)
    shop.commit()
    if task.attempt == 1:
        raise quern.Failure("again")
    return [value, nothing]


def handle(given):
    global task
    task = given
    do, argument = task.json()
    return globals()[do](argument)
