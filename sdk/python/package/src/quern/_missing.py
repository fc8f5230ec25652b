"""Tells what to do instead of importing what a handler cannot have."""

from __future__ import annotations

import re

_NATIVE = "a handler loads no native code"
_THREADS = "a handler has one process: enqueue a task for each part (quern.enqueue), or use asyncio"
_TERMINAL = "a handler has no terminal"

ADVICE = {
    "_ctypes": _NATIVE,
    "_curses": _TERMINAL,
    "_lzma": "lzma is not part of the engine: use zlib or bz2",
    "_multiprocessing": _THREADS,
    "_posixsubprocess": "a handler starts no processes: enqueue a task (quern.enqueue)",
    "_ssl": "the host speaks TLS: use quern.http, or urllib.request with an https URL",
    "_tkinter": _TERMINAL,
    "crypt": "crypt is not part of the engine: use hashlib.pbkdf2_hmac",
    "ctypes": _NATIVE,
    "curses": _TERMINAL,
    "dbm": "files are read-only: use quern.kv, or sqlite3 in memory",
    "distutils": "packages are installed when the plugin is built: list them in requirements.txt",
    "ensurepip": "packages are installed when the plugin is built: list them in requirements.txt",
    "fcntl": "files are read-only, and have no locks",
    "grp": "a handler has no users",
    "idlelib": _TERMINAL,
    "lib2to3": "lib2to3 is not part of the engine",
    "mmap": "files are in memory: read them whole",
    "multiprocessing": _THREADS,
    "pip": "packages are installed when the plugin is built: list them in requirements.txt",
    "pty": _TERMINAL,
    "pwd": "a handler has no users",
    "readline": _TERMINAL,
    "resource": "the manifest has the limits: limits.memory, limits.cpu",
    "ssl": "the host speaks TLS: use quern.http, or urllib.request with an https URL",
    "syslog": "use logging, which writes to the task's log",
    "termios": _TERMINAL,
    "tkinter": _TERMINAL,
    "tty": _TERMINAL,
    "turtle": _TERMINAL,
    "venv": "packages are installed when the plugin is built: list them in requirements.txt",
}


_UNKNOWN = re.compile(r"cannot import name '(\w+)' from 'quern'")


def explain(error: BaseException) -> None:
    """Adds to the text of an ImportError that nobody has caught what to do instead."""
    if isinstance(error, ModuleNotFoundError):
        name = error.name or ""
        if advice := ADVICE.get(name.partition(".")[0]):
            error.msg = f"No module named {name!r} in a handler of Quern: {advice}"
        elif name and "." not in name and name != "handler":
            error.msg = f"No module named {name!r}: list its package in requirements.txt, and build the plugin again"
    elif isinstance(error, ImportError) and (found := _UNKNOWN.match(str(error.msg))):
        error.msg = unknown(found[1])


def unknown(name: str) -> str:
    """The text about a name that quern does not have: the nearest one, or else the usual ones."""
    from difflib import get_close_matches

    from . import __all__ as names

    near = get_close_matches(name, names, 1) or get_close_matches(name.lower(), names, 1)
    usual = [known for known in sorted(names) if not known.isupper() and not known.endswith("Error")]
    return f"quern has no {name!r}: " + (f"did you mean {near[0]!r}?" if near else f"it has {', '.join(usual)} and others")
