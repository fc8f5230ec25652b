"""Tells what to do instead of importing what a handler cannot have."""

from __future__ import annotations

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


def explain(error: ModuleNotFoundError) -> None:
    """Adds to the text of an error that nobody has caught what to do instead."""
    if advice := ADVICE.get((error.name or "").partition(".")[0]):
        error.msg = f"No module named {error.name!r} in a handler of Quern: {advice}"
