"""Looks for what another task has left, and leaves all that it can. Its input is an ending and a canary; "" is a warm call.

It returns what differs from task to task and what must not, or fails with what it has found.
"""

import builtins
import contextvars
import copy
import decimal
import functools
import gc
import json
import linecache
import logging
import os
import pickle
import random
import re
import secrets
import sqlite3
import sys
import tempfile
import threading
import time
import uuid
import warnings

import quern

PATTERN = re.compile(r"canary-\d{6}")
STATE = {"list": [], "bytes": bytearray(), "kept": None}
DATABASE = sqlite3.connect(":memory:", isolation_level=None)
DATABASE.execute("create table t (a)")
VARIABLE = contextvars.ContextVar("variable", default="")
LOCAL = threading.local()
OWN_RANDOM = random.Random()
# Generators that have drawn, and copies of them, are in the snapshot, and what they have drawn ahead.
DRAWN = [random, OWN_RANDOM, random.Random(), random.SystemRandom()]
for generator in DRAWN:
    generator.gauss(0, 1)
DRAWN += [copy.copy(OWN_RANDOM), copy.deepcopy(OWN_RANDOM), pickle.loads(pickle.dumps(OWN_RANDOM)), random.Random()]
DRAWN[-1].setstate(random.getstate())
BEFORE = random.getstate()


class Shelf:
    items = []


@functools.lru_cache(maxsize=None)
def cached(text):
    return text * 2


def default(text=None, kept=[]):  # noqa: B006: that it is kept is the point
    if text:
        kept.append(text)
    return kept


def handle(task):
    if not task.text:
        values()
        return None
    ending, own = task.text.split()
    found = sorted(set(look(own)))
    if found:
        raise quern.Fatal("found " + ", ".join(found))
    report = {"state": state(), "values": values(), "hash": hash("quern")}
    leave(own)
    return end(ending, own, report)


def look(own):
    """The places with a canary of another task."""
    places = {
        "a global": STATE, "a class": Shelf.items, "a default": default(), "the environment": dict(os.environ), "sys.path": sys.path,
        "sys": added(sys), "builtins": added(builtins), "sys.modules": list(sys.modules), "loggers": list(logging.root.manager.loggerDict),
        "linecache": linecache.cache, "re": list(re._cache), "a context": VARIABLE.get(), "a local": vars(LOCAL), "json": added(json),
        "sqlite3": DATABASE.execute("select a from t").fetchall(), "globals": added(sys.modules[__name__]), "files": os.listdir("/app"),
        "the interpreter's objects": [thing for thing in gc.get_objects() if type(thing) is list and len(thing) == 2 and type(thing[1]) is str],
    }
    for name, place in places.items():
        for canary in PATTERN.findall(repr(place)):
            if canary != own or name != "the interpreter's objects":
                yield f"{canary} in {name}"
    for number in range(64):
        other = "".join(("canary", "-%06d" % number))
        if other != own and sys.intern(other) is not other:
            yield f"{other} among interned strings"


def added(module):
    """The names of a module's globals, and those that are strings."""
    return [(name, value if type(value) is str else "") for name, value in vars(module).items()]


def state():
    """What each task finds in the same state."""
    open_files = []
    for fd in range(3, 24):
        try:
            open_files.append((fd, os.fstat(fd).st_mode, os.lseek(fd, 0, 1)))
        except OSError:
            pass
    return repr((
        cached.cache_info(), len(sys.modules), sorted(vars(builtins)), sys.getrecursionlimit(), gc.get_threshold(), gc.isenabled(),
        decimal.getcontext().prec, sys.excepthook is sys.__excepthook__, len(logging.root.handlers), logging.root.level, open_files,
        sorted(os.environ), sys.get_int_max_str_digits(), len(warnings.filters), json.loads.__module__, os.getcwd(), sys.gettrace() is None,
    ))


def values():
    """What is another value in each task."""
    restored = random.Random()
    restored.setstate(BEFORE)
    number, blob = DATABASE.execute("select random(), hex(randomblob(8))").fetchone()
    return {
        **{f"gauss of generator {n}": generator.gauss(0, 1) for n, generator in enumerate(DRAWN)},
        **{f"generator {n}": generator.random() for n, generator in enumerate(DRAWN)},
        "restored": restored.random(), "restored gauss": restored.gauss(0, 1), "sqlite's random": number, "sqlite's blob": blob,
        "another database's": sqlite3.connect(":memory:").execute("select hex(randomblob(8))").fetchone()[0],
        "node": uuid.getnode(), "temporary name": next(tempfile._get_candidate_names()),
        "random": random.random(), "own random": OWN_RANDOM.random(), "system random": random.SystemRandom().random(),
        "secrets": secrets.token_hex(8), "urandom": os.urandom(8).hex(), "uuid4": str(uuid.uuid4()), "uuid1": str(uuid.uuid1()),
        "time": time.time(), "monotonic": time.monotonic_ns(),
    }


def leave(own):
    globals()["left"] = globals()["__warningregistry__"] = own
    STATE["list"].append(own)
    STATE["bytes"] += own.encode() * 1000
    # The string in all of its widths, kept and freed, on the small heap and beyond it.
    STATE["kept"] = [[own + end, own + end] for end in ("", "ā", "𝄞")] + [[None, own + str(n)] for n in range(100)]
    for text in (own, own + "ā", own + "𝄞"):
        text * 20_000
    own.encode("utf-16"), own.encode("utf-32")
    Shelf.items.append(own)
    default(own)
    cached(own)
    sys.intern(own + "")
    os.environ[own] = own
    sys.path.append(own)
    sys.residue = builtins.residue = sys.modules[own] = own
    logging.getLogger(own).setLevel(1)
    linecache.cache[own] = (1, None, [own], own)
    re.compile(own)
    VARIABLE.set(own)
    LOCAL.text = own
    json.loads = json.left = own
    DATABASE.execute("insert into t values (?)", (own,))
    decimal.getcontext().prec = 7
    warnings.simplefilter("error")
    sys.setrecursionlimit(700)
    sys.excepthook = None
    sys.set_int_max_str_digits(0)
    random.seed(own)
    OWN_RANDOM.seed(own)
    STATE["file"] = open(__file__)
    STATE["file"].read(7)
    for path in ("/app/left", "/tmp/left", "left"):
        try:
            with open(path, "w") as file:
                file.write(own)
        except OSError:
            continue
        raise quern.Fatal("found a file that can be written: " + path)
    quern.progress(0.5, own)
    logging.getLogger().warning(own)
    print(own, end="")
    gc.disable()
    gc.set_threshold(1)
    gc.freeze()


def deeper(own):
    return deeper(own) + own


def end(ending, own, report):
    if ending == "complete":
        return json.dumps(report)
    if ending == "fatal":
        raise quern.Fatal(own)
    if ending == "retry":
        raise quern.Retry(own, delay=3)
    if ending == "error":
        raise ValueError(own)
    if ending == "exit":
        sys.exit(own)
    if ending == "recursion":
        return deeper(own)
    if ending == "abort":
        os.abort()
    if ending == "memory":
        while True:
            STATE["list"].append(own * 50_000)
    while ending == "loop":
        pass
    raise quern.Fatal("no ending " + ending)
