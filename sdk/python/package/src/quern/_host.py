"""The functions of the host: those of the engine, or natively those of quern.testing, which have the same names."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any, Optional

from . import errors
from ._json import culprit, plain

try:
    import _quern as functions  # type: ignore[import-not-found]
except ImportError:
    from . import _native as functions  # type: ignore[no-redef]

functions.set_errors(errors.BY_RESULT)


def __getattr__(name: str) -> Any:
    return getattr(functions, name)


def milliseconds(duration: Optional[errors.Duration]) -> int:
    """Rounds up; None is 0."""
    if duration is None:
        return 0
    if isinstance(duration, timedelta):
        return -(-duration // timedelta(milliseconds=1))
    return math.ceil(round(duration * 1000, 6))


def encoded(value: Any, what: str = "the value") -> Any:
    """The bytes of what a handler returns, enqueues or saves: bytes as they are, None as nothing, str and JSON as UTF-8,
    with ? for half a surrogate pair. Errors call the value what."""
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode(errors="replace")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value
    return to_json(value, what)


def to_json(value: Any, what: str = "the value") -> bytes:
    data = functions.write_json(value)
    if data is not NotImplemented:
        return data
    try:
        return _encode(value).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        wrong = culprit(what, value)
        raise error if wrong is None else wrong from None


def result_of(handle: Any) -> str:
    """What errors call the result of a function: with its file and line."""
    code = getattr(handle, "__code__", None)
    where = f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code else ""
    return f"the result of {getattr(handle, '__name__', 'handle')}{where}"


def from_json(data: bytes) -> Any:
    """ValueError if it is not JSON."""
    value = functions.read_json(data)
    return json.loads(data) if value is NotImplemented else value


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain).encode
