"""The host's functions outside of the engine: services in memory, for the task that quern.testing runs. Without one they
raise NoHostError, as while a module is imported. The limits are those of sdk/ABI.md."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Optional

from . import errors as _errors

_KIB, _MIB = 1 << 10, 1 << 20
_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR")

current: Any = None
"""The quern.testing.Host of the task that runs."""


def set_errors(classes: Any) -> None:
    """For the engine's sake."""


def _host() -> Any:
    if current is None:
        raise _errors.NoHostError("no task runs: call the handler with quern.testing.run")
    return current


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise _errors.InvalidError("a name is not UTF-8") from None


def input() -> bytes:
    return _host().input


def task_text(field: int) -> str:
    return _host().texts[field]


def task_number(field: int) -> int:
    return _host().numbers[field]


def cancelled() -> bool:
    return _host().cancelled


def log(level: int, text: str, fields: str = "") -> None:
    if not 0 <= level < len(_LEVELS):
        raise _errors.InvalidError(f"level {level}: expected 0 to 4")
    if len(text.encode()) > 4 * _KIB or len(fields.encode()) > 3 * _KIB:
        raise _errors.TooBigError("a line of the log")
    if current is not None:
        current.log.append((_LEVELS[level], text, json.loads(fields) if fields else {}))


def progress(fraction: float, message: str) -> None:
    if fraction != fraction:
        raise _errors.InvalidError("progress that is not a number")
    _host().progress.append((min(max(fraction, 0.0), 1.0), message))


def checkpoint_save(value: Any) -> None:
    if len(value) > _MIB:
        raise _errors.TooBigError("a checkpoint over 1 MiB")
    _host().checkpoint = bytes(value)


def checkpoint_load() -> bytes:
    if _host().checkpoint is None:
        raise _errors.NotFoundError("no checkpoint")
    return current.checkpoint


def config_get(name: str) -> str:
    if current is None or name not in current.config:
        raise _errors.NotFoundError(f"config {name!r}")
    return current.config[name]


def secret_get(name: str) -> bytes:
    if name not in _host().secrets:
        raise _errors.NotFoundError(f"secret {name!r}: give the test one, secrets={{{name!r}: ...}}")
    value = current.secrets[name]
    return value.encode() if isinstance(value, str) else bytes(value)


def _bucket(name: Any) -> dict[str, tuple[bytes, Optional[float]]]:
    buckets = _host().buckets
    name = _name(name)
    if name not in buckets:
        raise _errors.DeniedError(f"bucket {name!r}: grant it to the test, kv={{{name!r}: {{}}}}")
    return buckets[name]


def _key(key: Any) -> str:
    key = _name(key)
    if not 1 <= len(key.encode()) <= 256 or any(ord(c) < 32 or ord(c) == 127 for c in key):
        raise _errors.InvalidError(f"key {key!r}: expected 1 to 256 bytes without control characters")
    return key


def _present(bucket: dict[str, tuple[bytes, Optional[float]]], key: str) -> Optional[bytes]:
    value, ends = bucket.get(key, (None, None))
    if ends is not None and time.monotonic() >= ends:
        del bucket[key]
        return None
    return value


def kv_get(bucket: Any, key: Any) -> bytes:
    value = _present(_bucket(bucket), _key(key))
    if value is None:
        raise _errors.NotFoundError(f"key {_name(key)!r}")
    return value


def kv_set(bucket: Any, key: Any, value: Any, ttl: int) -> None:
    if ttl < 0:
        raise _errors.InvalidError("a ttl below 0")
    if len(value) > 512 * _KIB:
        raise _errors.TooBigError("a value over 512 KiB")
    _bucket(bucket)[_key(key)] = (bytes(value), time.monotonic() + ttl / 1000 if ttl else None)


def kv_delete(bucket: Any, key: Any) -> bool:
    there, key = _bucket(bucket), _key(key)
    found = _present(there, key) is not None
    there.pop(key, None)
    return found


def kv_increment(bucket: Any, key: Any, delta: int) -> int:
    there, key = _bucket(bucket), _key(key)
    value = _present(there, key) or b"0"
    try:
        total = int(value) + delta
    except ValueError:
        raise _errors.ConflictError("the value is no number") from None
    if not -(1 << 63) <= total < 1 << 63:
        raise _errors.LimitError("the sum")
    there[key] = (str(total).encode(), there[key][1] if key in there else None)
    return total


def kv_swap(bucket: Any, key: Any, old: Any, value: Any, ttl: int) -> tuple[bool, Optional[bytes]]:
    present = _present(_bucket(bucket), _key(key))
    if present != (None if old is None else bytes(old)):
        return False, present
    kv_set(bucket, key, value, ttl)
    return True, None


def kv_list(bucket: Any, prefix: Any, after: Any, limit: int) -> list[str]:
    if not 1 <= limit <= 1000:
        raise _errors.InvalidError(f"a limit of {limit}: expected 1 to 1000")
    there, first, last = _bucket(bucket), _name(prefix).encode(), _name(after).encode()
    keys = sorted(key.encode() for key in list(there) if _present(there, key) is not None)
    return [key.decode() for key in keys if key.startswith(first) and key > last][:limit]


def http(head: str, body: Any) -> tuple[bytes, bytes]:
    request = json.loads(head)
    if _host().http is None:
        raise _errors.DeniedError("give the test a function, http=lambda method, url, headers, body: (status, headers, body)")
    status, headers, content = current.http(
        request.get("method", "GET"), request["url"], request.get("headers", {}), bytes(body))
    answer = {name.lower(): [value] if isinstance(value, str) else list(value) for name, value in headers.items()}
    return json.dumps({"status": status, "headers": answer}).encode(), content.encode() if isinstance(content, str) else bytes(content)


def enqueue(queue: Any, body: Any, options: str) -> str:
    chosen = json.loads(options) if options else {}
    id = chosen.pop("id", "") or str(uuid.uuid4())
    _host().enqueued.append((_name(queue), bytes(body), {"id": id, **chosen}))
    return id


def output_write(value: Any) -> None:
    _host().output += bytes(value)


def error_set(text: str) -> None:
    _host().error = text


def retry_after(milliseconds: int) -> None:
    _host().delay = milliseconds / 1000
