"""What the engine calls: prepare and load once, before the snapshot, and run for each task."""

from __future__ import annotations

import asyncio  # before _loop, which this imports itself
import gc
import inspect
import sys
import traceback
from types import CoroutineType
from typing import Any, Callable, Iterator, Optional

from . import _host, _logging, _missing
from ._loop import LOST, lost
from ._task import Task
from .errors import Failure, HostError

# The host cuts texts, when it has replaced secrets in them. So a text is cut here only where it is far longer than what the
# host shows, lines and frames are left out whole, and nothing is put behind a cut.
MOST_TEXT = 64 << 10
MOST_LINES = 100  # of an exception's text
MOST_REPORT = 4000  # of a summary with its traceback
MOST_PLACES = 600  # of the frames in a summary
MOST_DELAY = 365 * 86_400_000  # in milliseconds
MOST_MESSAGE = 240  # of a task's error one-line views show 400 bytes: behind a longer message, frames would not be seen

RECURSION = 1000  # as elsewhere; Python for WASI has 600

MOST_CHAIN = 100  # exceptions with their causes: the task's log has room for them
MOST_DEPTH = 4000  # what the engine's stack has room for, whatever it is that recurs

_here = __file__.rpartition("/")[0] + "/"
_inner = (_here, "<frozen ", "/lib/python311.zip/asyncio/")  # frames that are not the user's
_task = Task()
_stdout = sys.stdout
_handle: Callable[[Task], Any]
_result = "the result"
_loop: Any
_not_loaded: Optional[BaseException] = None

# What most handlers import belongs to every snapshot: plugins share its memory, and start at once.
_PRELOADED = (
    "ast", "asyncio", "base64", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal", "email.utils", "enum",
    "functools", "hashlib", "hmac", "inspect", "io", "itertools", "json", "logging", "math", "operator", "os", "pathlib",
    "random", "re", "string", "struct", "textwrap", "time", "typing", "unicodedata", "urllib.parse", "uuid", "warnings",
    "zlib", "zoneinfo",
)


def prepare() -> None:
    """Imports what is the same in every plugin."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    import importlib

    for name in _PRELOADED:
        importlib.import_module(name)
    sys.setrecursionlimit = _set_recursion_limit
    _python_limit(RECURSION)
    _logging.install()
    _exercise()
    gc.collect()
    gc.freeze()


_python_limit = sys.setrecursionlimit


def _set_recursion_limit(limit: int) -> None:
    """sys.setrecursionlimit: a higher limit than this would end as a trap, which no except clause catches."""
    if limit > MOST_DEPTH:
        _host.functions.log(3, f"sys.setrecursionlimit({limit}): a handler's stack has room for {MOST_DEPTH}, which is set", b"")
    _python_limit(min(limit, MOST_DEPTH))


def _exercise() -> None:
    """Runs what each task runs until the interpreter has specialized it, which writes to memory."""
    import json

    from ._loop import Loop

    async def nothing(task: Task) -> None:
        pass

    global _handle, _loop
    _loop = Loop()
    for _ in range(100):
        _handle = nothing
        run()
        _handle = lambda task: None  # noqa: E731
        run()
        _host.from_json(b'{"a": [1, 2.5, "b", null, true]}')
        json.loads(b"{}")
        _host.encoded({"a": [1, 2.5, "b", None, True]})
        _host.encoded("a")
    import logging

    write, _logging._write = _logging._write, lambda level, text, fields: None
    for _ in range(100):
        logging.getLogger("quern").info("a %s", "b", extra={"n": 1})
    _logging._write = write
    try:
        json.loads("{")
    except ValueError as error:
        _summary(error)
        for _ in traceback.TracebackException(type(error), error, error.__traceback__, compact=True).format():
            pass


def load() -> None:
    """Imports the user's handler. What that raises is the error of every task."""
    global _handle, _result, _not_loaded
    try:
        try:
            _handle = _find()
            _result = _host.result_of(_handle)
        finally:
            _flush()
    except BaseException as error:
        _not_loaded = error
        _log_traceback(error)
    # A task's garbage goes with the task. Only one that makes a lot of it collects, and only its own.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _find() -> Callable[[Task], Any]:
    try:
        import handler  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        if error.name == "handler":
            raise Failure("there is no /app/handler.py: a plugin in Python is a file handler.py with a function handle(task)") from None
        raise
    handle = getattr(handler, "handle", None)
    if handle is None:
        from ._hints import nearest

        near = nearest("handle", [name for name, value in vars(handler).items() if getattr(value, "__module__", "") == "handler"])
        raise Failure("handler.py has no function handle: " + (f"did you mean {near}? rename it to handle" if near else "add def handle(task)"))
    if not callable(handle):
        raise Failure(f"handle in handler.py is a {type(handle).__name__}: expected a function, def handle(task)")
    if wrong := wrong_arguments(handle):
        raise Failure(wrong)
    return handle


def wrong_arguments(handle: Callable[..., Any]) -> str:
    """What is wrong with the arguments of a handler, with its file and line; "" if it can be called with a task."""
    code = getattr(handle, "__code__", None)
    if code is None or inspect.ismethod(handle):  # an object that is called
        return ""
    required = code.co_argcount - len(handle.__defaults__ or ())  # type: ignore[attr-defined]
    named = code.co_kwonlyargcount - len(handle.__kwdefaults__ or ())  # type: ignore[attr-defined]
    if required <= 1 and named == 0 and (code.co_argcount >= 1 or code.co_flags & inspect.CO_VARARGS):
        return ""
    many = code.co_argcount + code.co_kwonlyargcount
    return (
        f"{_short(code.co_filename)}:{code.co_firstlineno}: {handle.__name__} takes {many or 'no'} argument{'s' * (many != 1)}: "
        f"a handler takes one, the task: def {handle.__name__}(task)"
    )


def run() -> int:
    """Runs the handler on the task, and returns the exit status."""
    try:
        if _not_loaded is not None:
            return _fail(_not_loaded, "the plugin did not start: ")
        result = _handle(_task)
        if type(result) is CoroutineType:
            result = _await(result)
        if lost:
            first = lost.pop(0)
            _log_lost()
            return _fail(first, LOST)
        if result is not None:
            output = _host.encoded(result, _result)
            if len(output):
                try:
                    _host.functions.output_write(output)
                except HostError as error:
                    raise Failure(f"write the task's result: {error}") from None
        _flush()
        return 0
    except BaseException as error:
        _log_lost()
        return _fail(error)


def _log_lost() -> None:
    """Logs exceptions that no task has awaited, and that are not the task's error."""
    for error in lost:
        _log_traceback(error)
    lost.clear()


def _flush() -> None:
    """Writes what print has kept back. As when Python ends, the handler may have closed, replaced or deleted the stream."""
    for stream in (getattr(sys, "stdout", None), _stdout):
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()


def _await(coroutine: Any) -> Any:
    try:
        return _loop.run_until_complete(coroutine)
    finally:
        _loop.finish()


def _fail(error: BaseException, before: str = "") -> int:
    """Reports how the task failed, with a text before the error's. The log has the traceback only if the error has not."""
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # what they hold leaves no room for a report
    status, text, whole = 1, _message(error), True
    try:
        _missing.explain(error)
        if isinstance(error, Failure):
            text, whole = _text(error), error.__cause__ is None
            status = int(error.status)
            if error.delay is not None:
                delay = min(_host.milliseconds(error.delay), MOST_DELAY)
                _host.functions.retry_after(-delay if error.key else delay)
        elif isinstance(error, SystemExit):
            status, text = _exit(error)
        else:
            text = _summary(error)
            text, whole = _report(error, text)
        _flush()
        if not whole:
            _log_traceback(error)
    except BaseException:  # the limit of the log, no task, or what an exception of the user's does
        pass
    if status:
        _host.functions.error_set((before + text).encode(errors="replace").decode())
    return status


def _exit(error: SystemExit) -> tuple[int, str]:
    if error.code is None or isinstance(error.code, int):
        code = error.code or 0
        return code, f"sys.exit({code})"  # without a text the host would show the last line of the log
    return 1, _text(error.code)


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """The frames of the user's code, innermost first: file, line, function."""
    frames = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if not name.startswith(_inner):
            frames.append((_short(name), line, frame.f_code.co_name))
    if isinstance(error, SyntaxError) and isinstance(error.filename, str):
        frames.append((_short(error.filename), error.lineno or 0, "<module>"))
    return reversed(frames)


def _short(name: str) -> str:
    for folder in ("/app/site-packages/", "/app/", "/lib/python311.zip/"):
        name = name.removeprefix(folder)
    return name


def _summary(error: BaseException) -> str:
    """The exception and where it was raised, in one line, a long message last."""
    kind, message = _kind(error), _message(error)
    places = _places(error)
    if places and len(message) > MOST_MESSAGE:
        return f"{kind} [{places}]: {message.removeprefix(kind).removeprefix(': ')}"
    return f"{message} [{places}]" if places else message


def _places(error: BaseException) -> str:
    """Where it was raised, innermost first: as many frames as there is room for."""
    places: list[str] = []
    last, times = None, 0
    for file, line, function in _frames(error):
        place = f"{file}:{line} in {function}"
        if place == last:  # recursion
            times += 1
            continue
        if times:
            places.append(f"({times} more)")
        places.append(place)
        last, times = place, 0
    if times:
        places.append(f"({times} more)")
    room = MOST_PLACES
    for number, place in enumerate(places):
        room -= len(place)
        if room < 0:
            places[number:] = ["…"]
            break
    return " < ".join(places)


def _kind(error: BaseException) -> str:
    kind = type(error)
    try:
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"[:MOST_TEXT]
    except BaseException:  # a metaclass of the user's
        return type.__dict__["__name__"].__get__(kind)


def _message(error: BaseException) -> str:
    """The exception without its places."""
    message = _text(error.msg if isinstance(error, SyntaxError) else error)
    return f"{_kind(error)}: {message}" if message else _kind(error)


def _text(value: Any) -> str:
    try:
        return str(value)[:MOST_TEXT]
    except BaseException:  # also sys.exit
        return "(its text cannot be read)"


def _report(error: BaseException, summary: str) -> tuple[str, bool]:
    """The exception's summary, and its traceback below: the end of it if not all of it fits. Returns whether all of it does."""
    trace, lines = _traceback(error), []
    room = MOST_REPORT - len(summary.encode(errors="replace"))
    for line in reversed(trace):
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            lines.append("  …")
            break
        lines.append(line)
    return "\n".join([summary, *reversed(lines)]), len(lines) == len(trace) and room >= 0


def _traceback(error: BaseException) -> list[str]:
    """The lines of the traceback, without the SDK's own frames, and with what to do about missing modules."""
    _tidy(error)
    trace = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    _shorten(trace)
    return [line for part in trace.format() for line in _head(part.rstrip("\n")).split("\n")]


def _shorten(first: traceback.TracebackException) -> None:
    """Shortens the texts of exceptions before they are formatted."""
    left: list[Any] = [first]
    while left:
        trace = left.pop()
        if trace is not None:
            if isinstance(getattr(trace, "_str", None), str):
                trace._str = _head(trace._str)
            left += trace.__cause__, trace.__context__, *(getattr(trace, "exceptions", None) or ())


def _head(text: str) -> str:
    """The first lines of a text that is far longer than what is shown."""
    head = text[:MOST_TEXT]
    lines = head.split("\n", MOST_LINES)
    return "\n".join([*lines[:MOST_LINES], "…"]) if len(lines) > MOST_LINES else head


def _log_traceback(error: BaseException) -> None:
    """Logs the traceback: the end of it if it is very long."""
    lines, room = _traceback(error), MOST_TEXT
    first = len(lines)
    while first > 0 and room > 0:
        first -= 1
        room -= len(lines[first])
    try:
        for line in lines[first:]:
            _host.functions.log(4, line.encode(errors="replace").decode(), b"")
    except HostError:
        pass


def _tidy(first: BaseException) -> None:
    seen: set[int] = set()
    left: list[Optional[BaseException]] = [first]
    while left:
        error = left.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        _missing.explain(error)
        error.__traceback__ = _users(error.__traceback__)
        if len(seen) == MOST_CHAIN:
            error.__cause__ = error.__context__ = None
        left += error.__cause__, error.__context__


def _users(trace: Any) -> Any:
    """The traceback without the frames that are not the user's."""
    first = last = None
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_inner):
            if last is None:
                first = trace
            elif last.tb_next is not trace:
                last.tb_next = trace
            last = trace
        trace = trace.tb_next
    if last is not None and last.tb_next is not None:
        last.tb_next = None
    return first
