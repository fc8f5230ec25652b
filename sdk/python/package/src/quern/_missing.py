"""Tells what to do instead of what a handler cannot have: modules, files, sockets, threads, processes."""

from __future__ import annotations

import re
import sys
from typing import Any

NO_FILES = "a handler writes no files: use io.BytesIO, tempfile.SpooledTemporaryFile, quern.kv or the task's result"
NO_PROCESSES = "a handler starts no processes: enqueue a task (quern.enqueue)"
NO_SOCKETS = "a handler has no sockets: use quern.http or urllib.request, and grant capabilities.http in the manifest"
NO_THREADS = "a handler has no threads: use asyncio, or enqueue a task for each part (quern.enqueue)"

_NATIVE = "a handler loads no native code"
_THREADS = "a handler has one process: enqueue a task for each part (quern.enqueue), or use asyncio"
_TERMINAL = "a handler has no terminal"

ADVICE = {
    "_ctypes": _NATIVE,
    "_curses": _TERMINAL,
    "_lzma": "lzma is not part of the engine: use zlib or bz2",
    "_multiprocessing": _THREADS,
    "_posixsubprocess": NO_PROCESSES,
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
    """Adds what to do instead to the text of an exception that nobody has caught."""
    if isinstance(error, ModuleNotFoundError):
        name = error.name or ""
        if advice := ADVICE.get(name.partition(".")[0]):
            error.msg = f"No module named {name!r} in a handler of Quern: {advice}"
        elif name and name != "handler":
            top = name.partition(".")[0]
            if top not in sys.modules:  # else the package is there, without that part
                error.msg = f"No module named {name!r}: {_instead(top)}"
    elif isinstance(error, ImportError) and (found := _UNKNOWN.match(str(error.msg))):
        error.msg = unknown(found[1])
    elif (database := sys.modules.get("sqlite3")) and isinstance(error, database.OperationalError) and str(error) in (
        "unable to open database file", "attempt to write a readonly database",
    ):
        error.args = (f"{error}: a handler writes no files: use sqlite3.connect(':memory:'), or quern.kv",)


def obstacle(module: str, usable: bool = False) -> str:
    """Why no plugin can use a module, and what to use instead; "" if none is known. usable: of those that can be imported, too."""
    table = _packages()
    name = table["distributions"].get(module, module)
    for entry in table["obstacles"]:
        if re.sub(r"[-_.]+", "-", name).lower() in entry["names"].split() and (usable or not entry.get("imports")):
            return f"{name} {entry['why']}: {entry['instead']}"
    return ""


def _instead(module: str) -> str:
    """What to do about a module that neither the plugin nor the engine has."""
    import os
    from difflib import get_close_matches

    own = {name.removesuffix(".py"): name for name in (os.listdir("/app") if os.path.isdir("/app") else ()) if name[0] != "."}
    own = {name: file for name, file in own.items() if name.isidentifier() and name != "handler"}
    if near := get_close_matches(module, own, 1, 0.7):
        return f"did you mean {near[0]} ({own[near[0]]})?"
    if why := obstacle(module, usable=True):
        return why
    name = _packages()["distributions"].get(module, module)
    return f"list {name if name != module else 'its package'} in requirements.txt, and build the plugin again"


def _packages() -> Any:
    """The packages that do not work in a plugin, and those whose modules have other names."""
    import json
    from pkgutil import get_data

    return json.loads(get_data("quern", "packages.json") or b"")


def unknown(name: str) -> str:
    """The text about a name that quern does not have: the nearest one, or else the usual ones."""
    from . import __all__ as names
    from ._hints import nearest

    near = nearest(name, names)
    usual = [known for known in sorted(names) if not known.isupper() and not known.endswith("Error")]
    return f"quern has no {name!r}: " + (f"did you mean {near!r}?" if near else f"it has {', '.join(usual)} and others")
