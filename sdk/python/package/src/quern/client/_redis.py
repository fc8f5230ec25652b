from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Optional, Union

from ._options import Duration, Time, encoded, keywords, moment, seconds

if TYPE_CHECKING:
    import redis
    from typing_extensions import Never

# Enqueues one task as sdk/queue/PROTOCOL.md describes: the hash, then the list, then the message that wakes a host.
# KEYS: the task, the queue's pending list or its set of scheduled tasks, NS_queues. ARGV: the ID, the queue, the parameters,
# the channel, when the task is due (absolute, or relative to Redis's clock; both "" for now).
_ENQUEUE = """
local t = redis.call('TIME')
local now = string.format('%d.%06d', t[1], t[2])
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local eta = ARGV[5]
if ARGV[6] ~= '' then eta = string.format('%.6f', tonumber(t[1]) + tonumber(t[2]) / 1e6 + tonumber(ARGV[6])) end
redis.call('HSET', KEYS[1], 'status', eta == '' and 'pending' or 'scheduled', 'queue', ARGV[2], 'parameters', ARGV[3],
  'created', now, 'updated', now)
if eta == '' then
  redis.call('LPUSH', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[1], 'eta', eta)
  redis.call('ZADD', KEYS[2], eta, ARGV[1])
end
redis.call('ZINCRBY', KEYS[3], 0, ARGV[2])
redis.call('PUBLISH', ARGV[4], '')
return 1
"""


# Queues and IDs that only hosts make: of webhooks, publications and dead letters.
_RESERVED = {"queue": re.compile(r"webhook\."), "id": re.compile(r"(pub|dead)-[0-9a-f]{40}(-|$)")}


def _check(what: str, name: str) -> None:
    if not 1 <= len(name) <= 128 or not all("!" <= c <= "~" for c in name):
        raise ValueError(f"{what} {name!r}: use 1 to 128 characters of ASCII without spaces")
    if name in (".", "..") or _RESERVED[what].match(name):
        raise ValueError(f"{what} {name!r}: Quern uses the name itself: choose another")


class RedisQueue:
    """A queue of a RedisClient."""

    def __init__(self, client: RedisClient, name: str) -> None:
        _check("queue", name)
        self._client, self.name = client, name

    def enqueue(
        self, parameters: Any = None, *, id: str = "", delay: Optional[Duration] = None, at: Optional[Time] = None,
    ) -> str:
        return self._client.enqueue(self.name, parameters, id=id, delay=delay, at=at)

    def delay(self, /, *values: Never, **parameters: Any) -> str:
        """Enqueues a task whose parameters are the keyword arguments, as an object of JSON."""
        return self.enqueue(keywords(values, parameters))


class RedisClient:
    """Enqueues plain tasks straight into Redis: with parameters, an ID and a time, and no other options. For these, and to
    wait for results, use Client. The limits of queues do not apply (`quern queue limit`, --max-queues). redis is a URL, or a
    redis.Redis of your own. Errors are those of redis-py."""

    def __init__(self, redis: Union[str, redis.Redis] = "redis://127.0.0.1:6379", *, tenant: str = "blueque") -> None:
        if isinstance(redis, str):
            try:
                import redis as library
            except ImportError as missing:
                raise ImportError("RedisClient needs redis: pip install 'quern[redis]'") from missing
            redis = library.Redis.from_url(redis)
        if not re.fullmatch(r"[a-z0-9-]{1,32}|\{[a-z0-9-]{1,32}\}", tenant):
            raise ValueError(f"tenant {tenant!r}: use 1 to 32 of a-z, 0-9 and -, or such a word in braces")
        self.tenant = tenant
        self._enqueue = redis.register_script(_ENQUEUE)

    def queue(self, name: str) -> RedisQueue:
        return RedisQueue(self, name)

    def enqueue(
        self, queue: str, parameters: Any = None, *, id: str = "", delay: Optional[Duration] = None, at: Optional[Time] = None,
    ) -> str:
        """Enqueues a task and returns its ID. If there is a task with the ID id, nothing is enqueued. Parameters are bytes of
        UTF-8, a str, None, or what JSON can express."""
        _check("queue", queue)
        if id:
            _check("id", id)
        if delay is not None and at is not None:
            raise TypeError("both delay and at: give one of them")
        value = encoded(parameters)
        value.decode()  # bytes of other kinds need Client: Blueque's own client could not read them
        id = id or str(uuid.uuid4())
        waiting = "pending" if delay is None and at is None else "scheduled"
        self._enqueue(
            keys=[f"{self.tenant}_task_{id}", f"{self.tenant}_{waiting}_tasks_{queue}", f"{self.tenant}_queues"],
            args=[
                id, queue, value, f"{self.tenant}_channel_{queue}",
                "" if at is None else f"{moment('at', at):.6f}", "" if delay is None else f"{seconds('delay', delay):.6f}",
            ],
        )
        return id
