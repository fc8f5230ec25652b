"""The host's functions outside of the engine: services in memory, for the task that quern.testing runs. Without one they
raise NoHostError, as while a module is imported. The limits are those of sdk/ABI.md."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import sys
import threading
import time
import unicodedata
import urllib.request
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Optional
from urllib.parse import urlsplit

from . import _missing
from . import errors as _errors
from ._database import refusal
from ._manifest import Manifest, matches

_KIB, _MIB = 1 << 10, 1 << 20
_YEAR = 365 * 86_400_000  # in milliseconds
_NUMBER = re.compile(rb"0|-?[1-9][0-9]*")
_PRINTABLE = re.compile("[!-~]{1,128}")
_USE_FRACTION = "use 0 to 1, such as 0.5"
_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR")


@dataclass
class Run:
    """A task that runs on a quern.testing.Host."""

    host: Any
    id: str
    input: bytes
    texts: list[str]
    numbers: list[int]
    results: dict[str, Optional[bytes]]
    """Of what the task waited for; None of what failed."""
    encode: Callable[[Any], Any]
    """Makes the bytes of what the test gave as secret, value or answer."""
    cancelled: bool = False
    thread: int = field(default_factory=threading.get_ident)
    output: bytes = b""
    error: str = ""
    delay: Optional[float] = None
    key: bool = False
    log: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    progress: list[tuple[float, str]] = field(default_factory=list)
    strayed: bool = False  # a progress outside 0 to 1 was reported
    enqueued: list[tuple[str, bytes, dict[str, Any]]] = field(default_factory=list)
    published: list[tuple[str, bytes, dict[str, Any]]] = field(default_factory=list)


current: Any = None
"""The Run of the task that runs."""

manifest: Optional[Manifest] = None
"""That of the plugin that is tested: see quern.pytest_plugin."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FILES = frozenset(("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.utime"))
_SOCKETS = frozenset(("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"))
_PROCESSES = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn"))


def watch() -> None:
    """Has tasks raise what the engine raises, and urllib.request send by the host. Outside of tasks this does nothing; what it
    sets stays."""
    sys.addaudithook(_refuse)
    start = threading.Thread.start

    def start_unless_in_task(self: threading.Thread) -> None:
        if _in_task() and not _of_asyncio():
            raise RuntimeError(_missing.NO_THREADS)
        start(self)

    threading.Thread.start = start_unless_in_task  # type: ignore[method-assign]
    for handler, method in (("HTTPHandler", "http_open"), ("HTTPSHandler", "https_open")):
        if found := getattr(urllib.request, handler, None):  # a Python without ssl has no HTTPSHandler
            setattr(found, method, _by_host_in_task(getattr(found, method)))


def _by_host_in_task(send: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    from . import _urllib  # it needs this module

    return lambda handler, request: _urllib.send(request) if _in_task() else send(handler, request)


def _in_task() -> bool:
    return current is not None and current.thread == threading.get_ident()


def _of_asyncio() -> bool:
    """Whether it is asyncio's executor that starts a thread: in the engine asyncio.to_thread calls the function at once."""
    frame = sys._getframe(2)
    while frame.f_back is not None and "concurrent" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename.endswith(os.path.join("asyncio", "base_events.py"))


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    """A hook of sys.audit."""
    if not _in_task():
        return
    if event == "open":
        if isinstance(args[2], int) and args[2] & _WRITES and not _imports():
            raise OSError(errno.EROFS, _missing.NO_FILES, args[0])
    elif event in _FILES:
        if not _imports():
            raise OSError(errno.EROFS, _missing.NO_FILES, args[0])
    elif event in _SOCKETS:
        raise OSError(errno.EOPNOTSUPP, _missing.NO_SOCKETS)
    elif event in _PROCESSES:
        raise OSError(errno.EOPNOTSUPP, _missing.NO_PROCESSES)


def _imports() -> bool:
    """Whether it is Python, or pytest, that writes the compiled code of a module which the handler imports."""
    frame = sys._getframe(2)
    return frame.f_code.co_filename.startswith("<frozen importlib") or "_pytest" in frame.f_code.co_filename


@contextlib.contextmanager
def _of_the_test() -> Iterator[None]:
    """Runs a function of the test's, which may do what a handler may not."""
    global current
    run, current = current, None
    try:
        yield
    finally:
        current = run


def set_errors(classes: Any) -> None:
    """For the engine's sake."""


def read_json(data: bytes) -> Any:
    """Leaves it to the module json, as the engine's does with what is rare."""
    return NotImplemented


def write_json(value: Any) -> Any:
    return NotImplemented


def _run() -> Any:
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
    return _run().input


def task_text(field: int) -> str:
    return _run().texts[field]


def task_number(field: int) -> int:
    return _run().numbers[field]


def cancelled() -> bool:
    return _run().cancelled


def log(level: int, text: str, fields: bytes = b"") -> None:
    if not 0 <= level < len(_LEVELS):
        raise _errors.InvalidError(f"level {level}: expected 0 to 4")
    if len(fields) > 3 * _KIB:
        raise _errors.TooBigError("the fields of a line of the log")
    if current is not None:
        current.log.append((_LEVELS[level], text, json.loads(fields) if fields else {}))


def progress(fraction: float, message: str) -> None:
    if fraction != fraction:
        raise _errors.InvalidError(f"NaN: {_USE_FRACTION}")
    run, shown = _run(), min(max(fraction, 0.0), 1.0)
    if abs(fraction - shown) > 1e-6 and not run.strayed:
        run.strayed = True
        log(_LEVELS.index("WARNING"), f"progress {fraction:.6g}: {_USE_FRACTION}")
    run.progress.append((shown, message.encode()[:_KIB].decode(errors="ignore")))


def checkpoint_save(value: Any) -> None:
    run = _run()
    if len(value) > _MIB:
        raise _errors.TooBigError("a checkpoint over 1 MiB")
    run.host.checkpoints[run.id] = bytes(value)


def checkpoint_load() -> bytes:
    run = _run()
    if run.id not in run.host.checkpoints:
        raise _errors.NotFoundError("no checkpoint")
    return run.host.checkpoints[run.id]


def config_get(name: str) -> str:
    config = {**(manifest.config if manifest else {}), **(current.host.config if current else {})}
    if name not in config:
        raise _errors.NotFoundError(f"config {name!r}")
    return config[name]


def secret_get(name: str) -> bytes:
    secrets = _run().host.secrets
    _grant("secret", name)
    if name not in secrets:
        raise _denied(f"this test has no secret {name!r}: set quern_host.secrets[{name!r}] = '…', or give testing.run secrets={{{name!r}: '…'}}")
    return _bytes(secrets[name])


def _grant(what: str, *asked: Any) -> None:
    """Denies what the manifest beside the test does not grant."""
    if why := getattr(manifest, what)(*asked) if manifest else "":
        raise _denied(why)


def _denied(why: str) -> _errors.HostError:
    return refusal(_errors.DeniedError, why)


class Value(bytes):
    """A value with the time when it ends."""

    ends = math.inf


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else bytes(_run().encode(value))


def _bucket(name: Any, *keys: Any, write: bool = False) -> dict[str, Any]:
    """A bucket that is granted. First of all the keys must be text, as for a host."""
    buckets = _run().host.kv
    name, *_ = map(_name, (name, *keys))
    if not name or not _is_text(name):
        raise _errors.InvalidError(f"bucket {name!r}: expected 1 to 256 bytes without control characters")
    _grant("bucket", name, write)
    if name not in buckets:
        raise _denied(
            f"this test has no bucket {name!r}: use quern_host, which has the manifest's, or set quern_host.kv[{name!r}] = {{}}, or give "
            f"testing.run kv={{{name!r}: {{}}}}"
        )
    return buckets[name]


def _key(key: Any) -> str:
    key = _name(key)
    if not key or not _is_text(key):
        raise _errors.InvalidError(f"key {key!r}: expected 1 to 256 bytes without control characters")
    return key


def _is_text(text: str) -> bool:
    return len(text.encode()) <= 256 and not any(unicodedata.category(c) == "Cc" for c in text)


def _present(bucket: dict[str, Any], key: str) -> Optional[bytes]:
    if key not in bucket:
        return None
    value = _bytes(bucket[key])
    if isinstance(value, Value) and time.monotonic() >= value.ends:
        del bucket[key]
        return None
    return value


def _put(bucket: dict[str, Any], key: str, value: Any, ends: float) -> None:
    bucket[key] = kept = Value(value)
    kept.ends = ends


def _ends(value: Any) -> float:
    return value.ends if isinstance(value, Value) else math.inf


def kv_get(bucket: Any, key: Any) -> bytes:
    value = _present(_bucket(bucket, key), _key(key))
    if value is None:
        raise _errors.NotFoundError(f"key {_name(key)!r}")
    return value


def kv_set(bucket: Any, key: Any, value: Any, ttl: int) -> None:
    there, key = _bucket(bucket, key, write=True), _checked(key, value, ttl)
    _put(there, key, value, time.monotonic() + ttl / 1000 if ttl else math.inf)


def _checked(key: Any, value: Any, ttl: int) -> str:
    key = _key(key)
    if ttl < 0:
        raise _errors.InvalidError("a ttl below 0")
    if len(value) > 512 * _KIB:
        raise _errors.TooBigError("a value over 512 KiB")
    return key


def kv_delete(bucket: Any, key: Any) -> bool:
    there, key = _bucket(bucket, key, write=True), _key(key)
    found = _present(there, key) is not None
    there.pop(key, None)
    return found


def kv_increment(bucket: Any, key: Any, delta: int) -> int:
    there, key = _bucket(bucket, key, write=True), _key(key)
    value = _present(there, key)
    number = 0 if value is None else int(value) if _NUMBER.fullmatch(value) else 1 << 63
    if not _is_number(number):
        raise _errors.ConflictError
    if not _is_number(total := number + delta):
        raise _errors.LimitError("the sum is no number of 64 bits")
    _put(there, key, b"%d" % total, _ends(there.get(key)))
    return total


def _is_number(n: int) -> bool:
    return -(1 << 63) <= n < 1 << 63


def kv_swap(bucket: Any, key: Any, old: Any, value: Any, ttl: int) -> tuple[bool, Optional[bytes]]:
    there, key = _bucket(bucket, key, write=True), _checked(key, value, ttl)
    present = _present(there, key)
    if present != (None if old is None else bytes(old)):
        return False, present
    kv_set(bucket, key, value, ttl)
    return True, None


def kv_list(bucket: Any, prefix: Any, after: Any, limit: int) -> list[str]:
    there, begins, behind = _bucket(bucket, prefix, after), _name(prefix), _name(after)
    if not 1 <= limit <= 1000:
        raise _errors.InvalidError(f"a limit of {limit}: expected 1 to 1000")
    if not _is_text(begins) or not _is_text(behind):
        raise _errors.InvalidError("a prefix or key: expected at most 256 bytes without control characters")
    first, last = begins.encode(), behind.encode()
    keys = sorted(key.encode() for key in list(there) if _present(there, key) is not None)
    return [key.decode() for key in keys if key.startswith(first) and key > last][:limit]


def http(head: bytes, body: Any) -> tuple[bytes, bytes]:
    request = json.loads(head)
    method, parts = request.get("method", "GET"), urlsplit(request["url"])
    try:
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:  # of the port
        valid = False
    if not valid:
        raise _errors.InvalidError(f"url {request['url']!r}: expected http or https and a host, without a user")
    if not re.fullmatch("[A-Z]+", method) or method in ("CONNECT", "TRACE"):
        raise _errors.InvalidError(f"method {method!r}: expected one in capital letters, and not CONNECT or TRACE")
    answers = _run().host.http
    _grant("request", method, request["url"])
    if answers is None:
        raise _denied(
            "this test answers no HTTP: set quern_host.http = lambda method, url, headers, body: (200, {}, '…'), or give it as http= to testing.run"
        )
    with _of_the_test():
        status, headers, content = answers(method, request["url"], request.get("headers", {}), bytes(body))
    answer = {name.lower(): [value] if isinstance(value, str) else list(value) for name, value in headers.items()}
    return json.dumps({"status": status, "headers": answer}).encode(), _bytes(content)


def sql(database: Any, statement: str, values: bytes) -> Any:
    with _database(database) as found:
        return found.query(statement, values)


def sql_commit(database: Any, step: str, value: Any) -> Any:
    id = _run().id
    with _database(database) as found:
        return found.commit_step(id, step, bytes(value)) if step else found.commit()


def sql_rollback(database: Any) -> None:
    with _database(database) as found:
        found.rollback()


def sql_step(database: Any, step: str) -> bytes:
    id = _run().id
    with _database(database) as found:
        return found.step(id, step)


@contextlib.contextmanager
def _database(name: Any) -> Iterator[Any]:
    """A database that the test gives, for one call."""
    host, name = _run().host, _name(name)
    _grant("database", name)
    if name not in host.databases:
        url = "postgres://USER@HOST/DATABASE"
        raise _denied(
            f"the test gives no database {name!r}: quern_host.databases[{name!r}] = {url!r}, or test in the engine: "
            f"quern plugin test --database {name}={url}"
        )
    with _of_the_test():
        yield host._connected(name)


def enqueue(queue: Any, body: Any, options: bytes) -> str:
    run, queue, chosen = _run(), _name(queue), json.loads(options) if options else {}
    if "topic" in chosen and queue == "":
        return _publish(run, chosen, bytes(body))
    if not _PRINTABLE.fullmatch(queue):
        raise _errors.InvalidError(f"queue {queue!r}: expected 1 to 128 printable ASCII characters without spaces")
    _grant("queue", queue)
    if run.host.queues is not None and not matches(run.host.queues, queue):
        raise _denied(f"this test grants no queue {queue!r}: give it queues=[{queue!r}], or set quern_host.queues")
    _check_options(chosen)
    id = chosen.pop("id", "") or str(uuid.uuid4())
    run.enqueued.append((queue, bytes(body), {"id": id, **chosen}))
    return id


def _publish(run: Run, chosen: dict[str, Any], body: bytes) -> str:
    topic = chosen.pop("topic")
    if not _PRINTABLE.fullmatch(topic) or "*" in topic:
        raise _errors.InvalidError(f"topic {topic!r}: expected 1 to 128 printable ASCII characters without spaces and *")
    _grant("topic", topic)
    if run.host.topics is not None and not matches(run.host.topics, topic):
        raise _denied(f"this test grants no topic {topic!r}: give it topics=[{topic!r}], or set quern_host.topics")
    id, attributes = chosen.pop("id", "") or str(uuid.uuid4()), chosen.get("attributes", {})
    if not _PRINTABLE.fullmatch(id):
        raise _errors.InvalidError(f"id {id!r}: expected 1 to 128 printable ASCII characters without spaces")
    if not all(re.fullmatch("[a-z0-9]+", name) and value.isprintable() for name, value in attributes.items()):
        raise _errors.InvalidError(f"attributes {attributes!r}: expected names of a-z and 0-9, and values of printable text")
    run.published.append((topic, body, {"id": id, **chosen}))
    return id


def _check_options(options: dict[str, Any]) -> None:
    """What a host does not take."""
    unique = options.get("unique", {})
    for what, valid in {
        "id": _PRINTABLE.fullmatch(options.get("id", "id")),
        "after": all(_PRINTABLE.fullmatch(id) for id in options.get("after", [])),
        "when": options.get("when", "any") in ("complete", "ended", "any", "failed") and ("when" not in options or "after" in options),
        "priority": 0 <= options.get("priority", 0) <= 100,
        "delay_ms": options.get("delay_ms", 0) >= 0 and not (options.get("delay_ms") and options.get("at_ms")),
        "at_ms": 0 <= options.get("at_ms", 0) < 253402300800_000,
        "max_attempts": 0 <= options.get("max_attempts", 0) <= 1_000_000,
        "timeout_ms": 0 <= options.get("timeout_ms", 0) <= 100 * _YEAR,
        "fair_key": len(options.get("fair_key", "").encode()) <= 256,
        "fair_weight": 0 <= options.get("fair_weight", 0) <= 1000 and ("fair_weight" not in options or "fair_key" in options),
        "concurrency_key": len(options.get("concurrency_key", "").encode()) <= 256,
        "max_concurrent": 0 <= options.get("max_concurrent", 0) <= 1_000_000 and ("max_concurrent" not in options or "concurrency_key" in options),
        "unique.for_ms": unique.get("for_ms", 0) == 0 or 1000 <= unique["for_ms"] <= 100 * _YEAR,
    }.items():
        if not valid:
            raise _errors.InvalidError(f"{what}: see Enqueue in sdk/ABI.md")


def dependency_result(id: str) -> bytes:
    results = _run().results
    if id not in results:
        raise _errors.InvalidError(f"task {id!r}: give the test one, after={{{id!r}: ...}}")
    result = results[id]
    if result is None:
        _run().texts[10] = f"task {id} failed and has no result"
        raise _errors.NotFoundError()
    return result


def output_write(value: Any) -> None:
    _run().output += bytes(value)


def error_set(text: str) -> None:
    _run().error = text


def retry_after(milliseconds: int) -> None:
    _run().delay, _run().key = abs(milliseconds) / 1000, milliseconds < 0
