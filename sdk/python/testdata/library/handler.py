"""Tries a module of the standard library: the task's input is its name. There is a check for each that README.md lists."""

import importlib


def _asyncio():
    import asyncio

    async def work(n):
        await asyncio.sleep(0.001)
        return n

    async def all():
        async with asyncio.timeout(10):
            return await asyncio.gather(work(1), work(2), asyncio.to_thread(lambda: 3))

    assert asyncio.run(all()) == [1, 2, 3]


def _csv():
    import csv, io

    assert list(csv.reader(io.StringIO('a,"b,c"\n'))) == [["a", "b,c"]]


def _datetime():
    from datetime import datetime, timezone

    assert datetime.now(timezone.utc).year >= 2024


def _decimal():
    from decimal import Decimal

    assert str(Decimal("0.1") + Decimal("0.2")) == "0.3"


def _email():
    from email import message_from_string
    from email.mime.text import MIMEText

    assert message_from_string(MIMEText("é").as_string()).get_payload(decode=True).decode() == "é"


def _gzip():
    import gzip

    assert gzip.decompress(gzip.compress(b"a" * 1000)) == b"a" * 1000


def _bz2():
    import bz2

    assert bz2.decompress(bz2.compress(b"a" * 1000)) == b"a" * 1000


def _hashlib():
    import hashlib

    for name in ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2b", "blake2s"):
        assert hashlib.new(name, b"a").hexdigest() == getattr(hashlib, name)(b"a").hexdigest()
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
    assert hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2).hex()


def _hmac():
    import hashlib, hmac

    assert hmac.new(b"k", b"m", hashlib.sha256).hexdigest() == hmac.digest(b"k", b"m", "sha256").hex()


def _html():
    import html
    from html.parser import HTMLParser

    assert html.escape("<") == "&lt;"
    HTMLParser().feed("<p>a</p>")


def _logging():
    import logging

    logging.getLogger("test").info("hello")


def _random():
    import random

    assert random.Random(1).randint(0, 10**6) == 140891
    assert random.random() != random.random()


def _sqlite3():
    import sqlite3

    with sqlite3.connect(":memory:") as base:
        base.execute("create table t (n integer, s text)")
        base.executemany("insert into t values (?, ?)", [(i, str(i)) for i in range(100)])
        assert base.execute("select sum(n), json('{\"a\":1}') from t").fetchone() == (4950, '{"a":1}')
        base.execute("create virtual table f using fts5(x)")
    with sqlite3.connect("file:/app/shop.db?mode=ro&immutable=1", uri=True) as base:
        assert base.execute("select name from goods").fetchall() == [("Widget",)]


def _unicodedata():
    import unicodedata

    assert unicodedata.normalize("NFC", "e\u0301") == "é"


def _urllib():
    from urllib.parse import quote, urlsplit

    assert quote("é") == "%C3%A9" and urlsplit("https://a/b").path == "/b"


def _uuid():
    import uuid

    assert uuid.uuid4() != uuid.uuid4() and str(uuid.uuid5(uuid.NAMESPACE_DNS, "a"))


def _xml():
    import xml.etree.ElementTree as tree
    from xml.dom import minidom

    assert tree.fromstring("<a><b>c</b></a>").find("b").text == "c"
    assert minidom.parseString("<a/>").documentElement.tagName == "a"


def _zipfile():
    import io, zipfile

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", "b" * 1000)
    assert zipfile.ZipFile(data).read("a") == b"b" * 1000


def _zoneinfo():
    from datetime import datetime
    from zoneinfo import ZoneInfo

    assert datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Zurich")).utcoffset().total_seconds() == 7200


def _secrets():
    import secrets

    assert secrets.token_hex(8) != secrets.token_hex(8)


def _pickle():
    import pickle

    assert pickle.loads(pickle.dumps({"a": [1]})) == {"a": [1]}


def _struct():
    import struct

    assert struct.unpack("<I", struct.pack("<I", 7)) == (7,)


def _statistics():
    import statistics

    assert statistics.median([1, 2, 9]) == 2


def _tomllib():
    import tomllib

    assert tomllib.loads("a = 1") == {"a": 1}


def _configparser():
    import configparser

    parser = configparser.ConfigParser()
    parser.read_string("[a]\nb = c\n")
    assert parser["a"]["b"] == "c"


def _difflib():
    import difflib

    assert difflib.get_close_matches("appel", ["apple", "x"]) == ["apple"]


def _contextvars():
    import contextvars

    variable = contextvars.ContextVar("v", default=1)
    assert contextvars.copy_context().run(variable.get) == 1


def _codecs():
    for name in ("utf-16", "latin-1", "cp1252", "shift_jis", "gb18030", "big5", "euc-kr", "idna", "punycode"):
        assert "abc".encode(name).decode(name) == "abc"


def _tarfile():
    import io, tarfile

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        entry = tarfile.TarInfo("a")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    data.seek(0)
    assert tarfile.open(fileobj=data).extractfile("a").read() == b"x"


def _time():
    import time

    before = time.monotonic_ns()
    time.sleep(0.002)
    assert time.monotonic_ns() - before >= 2_000_000 and time.time() > 1_700_000_000


def _re():
    import re

    assert re.sub(r"(?P<a>\w+) (\w+)", r"\2 \g<a>", "b c") == "c b"


def _json():
    import json

    assert json.loads('{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "é"]}


def _zlib():
    import zlib

    assert zlib.decompress(zlib.compress(b"a" * 1000)) == b"a" * 1000 and zlib.crc32(b"a") == 0xE8B7BE43


def _pathlib():
    from pathlib import Path

    assert Path("/app/handler.py").read_text().startswith('"""Tries')
    assert "handler.py" in [path.name for path in Path("/app").iterdir()]


def _threading():
    import threading

    with threading.Lock():
        pass
    try:
        threading.Thread(target=print).start()
    except RuntimeError as error:
        assert "asyncio" in str(error)
    else:
        raise AssertionError("it started")


def _socket():
    import socket

    try:
        socket.create_connection(("localhost", 80))
    except OSError as error:
        assert "quern.http" in str(error)
    else:
        raise AssertionError("it connected")


def _subprocess():
    import subprocess

    try:
        subprocess.run(["true"])
    except OSError as error:
        assert "enqueue" in str(error)
    else:
        raise AssertionError("it ran")


CHECKS = {
    "asyncio": _asyncio, "bz2": _bz2, "codecs": _codecs, "configparser": _configparser, "contextvars": _contextvars, "csv": _csv,
    "datetime": _datetime, "decimal": _decimal, "difflib": _difflib, "email": _email, "gzip": _gzip, "hashlib": _hashlib,
    "hmac": _hmac, "html": _html, "json": _json, "logging": _logging, "pathlib": _pathlib, "pickle": _pickle, "random": _random,
    "re": _re, "secrets": _secrets, "socket": _socket, "sqlite3": _sqlite3, "statistics": _statistics, "struct": _struct,
    "subprocess": _subprocess, "tarfile": _tarfile, "threading": _threading, "time": _time, "tomllib": _tomllib,
    "unicodedata": _unicodedata, "urllib": _urllib, "uuid": _uuid, "xml": _xml, "zipfile": _zipfile, "zlib": _zlib,
    "zoneinfo": _zoneinfo,
}


def handle(task):
    name = task.text
    module = importlib.import_module(name)
    if name in CHECKS:
        CHECKS[name]()
    return module.__name__
