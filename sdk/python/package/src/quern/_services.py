from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NamedTuple, NoReturn, Optional, Sequence, Union

from . import _host
from .errors import ConflictError, Duration, HostError, NotFoundError

TRACE, DEBUG, INFO, WARNING, ERROR = range(5)

Name = Union[str, bytes]


def _ask(asked: str, function: str, *args: Any) -> Any:
    """Calls a function of the host. Its error tells what was asked for, unless it has a text of quern.testing."""
    try:
        return getattr(_host.functions, function)(*args)
    except HostError as error:
        error.args = error.args or (asked,)
        raise


def log(level: int, text: str, fields: Optional[Mapping[str, Any]] = None) -> None:
    """Logs a line, of which the host shows 64 KiB, and its fields, at most 3 KiB of JSON."""
    _host.functions.log(level, text, _host.to_json(fields) if fields else b"")


def progress(fraction: float, message: str = "") -> None:
    """Reports how much is done, from 0 to 1, and what the handler is doing, of which the host shows 1 KiB."""
    _host.functions.progress(fraction, message)


def config(name: str, default: Optional[str] = None) -> Optional[str]:
    """A value of the manifest's section config, also while the module is imported."""
    try:
        return _host.functions.config_get(name)
    except NotFoundError:
        return default


def secret(name: str) -> str:
    """A secret that the manifest grants. Read it in the task, and write it nowhere."""
    return _ask(f"secret {name!r}", "secret_get", name).decode()


class Unique(NamedTuple):
    """No second task of the queue with the same key, or without a key with the same body, for that time: at least a second,
    or None until the first task is finished."""

    key: str = ""
    duration: Optional[Duration] = None


def enqueue(
    queue: Name,
    body: Any = b"",
    *,
    id: str = "",
    key: str = "",
    labels: Optional[Mapping[str, str]] = None,
    headers: Optional[Mapping[str, str]] = None,
    after: Sequence[str] = (),
    when: str = "",
    priority: Optional[int] = None,
    delay: Optional[Duration] = None,
    at: Union[datetime, float, None] = None,
    max_attempts: int = 0,
    timeout: Optional[Duration] = None,
    fair_key: str = "",
    fair_weight: int = 0,
    concurrency_key: str = "",
    max_concurrent: int = 0,
    unique: Union[None, bool, str, Unique] = None,
    **unknown: NoReturn,
) -> str:
    """Enqueues a task and returns its ID. It is created when this one completes, or with after: call in the manifest at once.

    The body may be bytes, str, None or what JSON can express. Durations are seconds or timedeltas, at is a datetime with a
    time zone, or Unix time. Headers have names in lower case; without a traceparent the task inherits that of this one.
    after has IDs of tasks that it waits for: siblings enqueued before, with IDs of their own, or others; when is what must become of
    them: complete (all, the default), ended (all, however), any (one is complete) or failed (one has failed).
    fair_key names whom it is for, such as a customer: the keys of a queue take turns of fair_weight tasks, 1 (the default) to 1000.
    Tasks of the queue with the same concurrency_key run one after another in their order, or max_concurrent at once. Keys have at most
    256 bytes.
    """
    if unknown:
        from ._hints import option

        raise option("quern.enqueue", next(iter(unknown)), enqueue.__kwdefaults__ or ())
    options: dict[str, Any] = {}
    if id:
        options["id"] = id
    if key:
        options["key"] = key
    if labels:
        options["labels"] = dict(labels)
    if headers:
        options["headers"] = dict(headers)
    if after:
        options["after"] = list(after)
    if when:
        options["when"] = when
    if priority is not None:
        options["priority"] = priority
    if delay is not None:
        options["delay_ms"] = _host.milliseconds(delay)
    if at is not None:
        if isinstance(at, datetime):
            from ._hints import timestamp

            at = timestamp("at", at)
        options["at_ms"] = _host.milliseconds(at)
    if max_attempts:
        options["max_attempts"] = max_attempts
    if timeout is not None:
        options["timeout_ms"] = _host.milliseconds(timeout)
    shares = {"fair_key": fair_key, "fair_weight": fair_weight, "concurrency_key": concurrency_key, "max_concurrent": max_concurrent}
    options.update((name, value) for name, value in shares.items() if value)
    if unique is not None and unique is not False:
        if not isinstance(unique, Unique):
            unique = Unique("" if unique is True else unique)
        options["unique"] = {"key": unique.key} if unique.key else {}
        if unique.duration is not None:
            options["unique"]["for_ms"] = _host.milliseconds(unique.duration)
    encoded = _host.to_json(options) if options else b""
    return _ask(f"enqueue to {_text(queue)}", "enqueue", queue, _host.encoded(body, "the body"), encoded)


def publish(topic: Name, body: Any = b"", *, id: str = "", attributes: Optional[Mapping[str, str]] = None) -> str:
    """Publishes to a topic and returns the publication's ID: each subscription that matches gets a task with the body, when this
    task completes, or with after: call in the manifest at once.

    Attributes are those of CloudEvents, such as type, and others of a-z and 0-9. If a publication of that ID is kept, nothing is
    published.
    """
    options: dict[str, Any] = {"topic": _text(topic)}
    if id:
        options["id"] = id
    if attributes:
        options["attributes"] = dict(attributes)
    return _ask(f"publish to {_text(topic)}", "enqueue", "", _host.encoded(body, "the body"), _host.to_json(options))


def _text(name: Name) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


class Bucket:
    """A bucket of the tenant's key-value store, which the manifest grants. Keys have 1 to 256 bytes of UTF-8, values at most
    512 KiB; a value may be bytes, str or what JSON can express, and is read as bytes."""

    __slots__ = ("name",)

    def __init__(self, name: Name) -> None:
        self.name = name

    def _ask(self, verb: str, key: Name, *args: Any) -> Any:
        return _ask(self._asked(verb, key), "kv_" + verb, self.name, key, *args)

    def _asked(self, verb: str, key: Name) -> str:
        return f"kv {verb} {_text(self.name)}/{_text(key)}"

    def get(self, key: Name, default: Any = None) -> Any:
        """The value's bytes, or the default if there is none."""
        try:
            return self._ask("get", key)
        except NotFoundError:
            return default

    def set(self, key: Name, value: Any, ttl: Optional[Duration] = None) -> None:
        """Sets a value, for a time or forever."""
        self._ask("set", key, _host.encoded(value), _host.milliseconds(ttl))

    def delete(self, key: Name) -> bool:
        """Deletes a value, and returns whether there was one."""
        return self._ask("delete", key)

    def increment(self, key: Name, delta: int = 1) -> int:
        """Adds to a decimal number, 0 if there is none, and returns the sum. ConflictError if the value is no number."""
        try:
            return self._ask("increment", key, delta)
        except ConflictError as error:
            error.about = "the present value is no decimal number"
            raise

    def swap(self, key: Name, old: Any, value: Any, ttl: Optional[Duration] = None) -> None:
        """Sets a value if the present one equals old, or if old is None and there is none. Otherwise ConflictError, with the
        present value in its attribute present."""
        expected = None if old is None else _host.encoded(old)
        done, present = self._ask("swap", key, expected, _host.encoded(value), _host.milliseconds(ttl))
        if not done:
            error = ConflictError(self._asked("swap", key))
            error.present = present
            raise error

    def list(self, prefix: Name = "", after: Name = "", limit: int = 1000) -> list[str]:
        """At most limit (1 to 1000) keys that begin with prefix and come after the key after, in byte order."""
        return self._ask("list", prefix, after, limit)

    def keys(self, prefix: Name = "") -> Iterator[str]:
        """All keys that begin with prefix, page by page."""
        after: Name = ""
        while page := self.list(prefix, after):
            yield from page
            after = page[-1]

    def __repr__(self) -> str:
        return f"quern.kv({self.name!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        from ._hints import attribute

        raise attribute("a bucket", name, dir(type(self)), {
            "incr": "use increment(key)", "incrby": "use increment(key, delta)", "decr": "use increment(key, -1)", "put": "use set(key, value)",
            "setex": "use set(key, value, ttl=seconds)", "expire": "use set(key, value, ttl=seconds)", "remove": "use delete(key)",
            "setnx": "use swap(key, None, value)", "exists": "use get(key) is not None", "scan": "use keys(prefix)", "hget": "use get(key)",
            "hset": "use set(key, value)",
        })


def kv(bucket: Name) -> Bucket:
    """The bucket of that name."""
    return Bucket(bucket)


if not TYPE_CHECKING:

    class _KV:
        """The function kv, whose missing attributes tell that a bucket has them."""

        __doc__, __slots__ = kv.__doc__, ()

        def __call__(self, bucket):
            return Bucket(bucket)

        def __getattr__(self, name):
            if name in vars(Bucket) and not name.startswith("_"):
                raise AttributeError(f"quern.kv has no {name!r}: name the bucket: quern.kv('BUCKET').{name}(…)")
            raise AttributeError(f"quern.kv has no {name!r}: it takes the name of a bucket: quern.kv('BUCKET')")

    kv = _KV()
