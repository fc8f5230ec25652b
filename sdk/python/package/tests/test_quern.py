import asyncio
import logging
from datetime import datetime, timedelta, timezone

import pytest

import quern
from quern import testing


def test_results():
    for returned, output in ((None, b""), (b"\xff", b"\xff"), ("é", "é".encode()), ({"a": [1]}, b'{"a":[1]}'),
                             (datetime(2026, 1, 2), b'"2026-01-02T00:00:00"')):
        result = testing.run(lambda task, returned=returned: returned)
        assert (result.status, result.output) == ("complete", output)


def test_task():
    deadline = datetime(2030, 1, 1, tzinfo=timezone.utc)

    def handle(task):
        assert task.json() == {"n": 1} and task.deadline == deadline
        return [task.id, task.queue, task.attempt, task.key, task.cancelled]

    assert testing.run(handle, {"n": 1}, id="x", attempt=2, key="k", deadline=deadline).json() == ["x", "test", 2, "k", False]


def test_failures():
    def handle(task):
        raise {"retry": quern.Retry("later", delay=timedelta(seconds=1.5)), "fatal": quern.Fatal("never")}.get(task.text, ValueError("bad"))

    assert testing.run(handle, "retry").delay == 1.5
    assert testing.run(handle, "fatal").status == "fatal"
    failed = testing.run(handle, "x")
    assert failed.error == "ValueError: bad" and "test_quern.py" in failed.traceback


def test_input_that_is_not_json_is_fatal():
    result = testing.run(lambda task: task.json(), "{")
    assert result.status == "fatal" and "not JSON" in result.error


def test_services():
    def handle(task):
        bucket = quern.kv("seen")
        assert bucket.increment("n") == 1
        with pytest.raises(quern.ConflictError) as conflict:
            bucket.swap("n", None, b"x")
        assert conflict.value.present == b"1" and conflict.value.code == "ECONFLICT"
        bucket.set("gone", "x", ttl=timedelta(milliseconds=1))
        quern.checkpoint.save({"step": 1})
        quern.progress(0.5, "half")
        logging.getLogger("shop").warning("low", extra={"left": 3})
        quern.enqueue("mail", {"to": "zoe"}, delay=2, unique="zoe")
        answer = quern.http.get("https://api.example.com/v1", params={"q": "a b"})
        return {"secret": quern.secret("key"), "config": quern.config("size"), "url": answer.text, "keys": bucket.list("n")}

    result = testing.run(handle, kv={"seen": {}}, secrets={"key": "s"}, config={"size": "9"},
                         http=lambda method, url, headers, body: (200, {"Content-Type": "text/plain"}, url))
    assert result.json() == {"secret": "s", "config": "9", "url": "https://api.example.com/v1?q=a+b", "keys": ["n"]}
    assert result.log == [("WARNING", "low", {"left": 3, "logger": "shop"})]
    assert result.progress == [(0.5, "half")] and result.checkpoint == b'{"step":1}'
    queue, body, options = result.enqueued[0]
    assert (queue, body, options["delay_ms"], options["unique"]) == ("mail", b'{"to":"zoe"}', 2000, {"key": "zoe"})


def test_async():
    async def handle(task):
        await asyncio.sleep(0)
        return task.text

    assert testing.run(handle, "x").text == "x"


def test_denied_without_a_grant():
    result = testing.run(lambda task: quern.kv("other").get("k"))
    assert result.status == "failed" and "other" in result.error


def test_status_becomes_retry():
    def handle(task):
        quern.http.get("https://api.example.com/").raise_for_status()

    result = testing.run(handle, http=lambda *request: (503, {"Retry-After": "7"}, ""))
    assert (result.status, result.delay) == ("retry", 7)


def test_no_host():
    with pytest.raises(quern.NoHostError):
        quern.progress(1)


def test_lost():
    """A task of asyncio that failed, and that nothing has awaited, has the same error as in the engine."""

    async def lost():
        raise KeyError("lost")

    async def handle(task):
        asyncio.create_task(lost())
        await asyncio.sleep(0)

    assert testing.run(handle).error == "a task of asyncio that nothing has awaited failed: KeyError: 'lost'"


def test_not_json():
    def handle(task):
        return {"a": [object()]}

    line = handle.__code__.co_firstlineno
    assert testing.run(handle).error == (
        f"TypeError: the result of handle (test_quern.py:{line}).a[0] is an object, which JSON does not express: use str(…)"
    )
    result = testing.run(lambda task: quern.enqueue("q", {"at": object()}))
    assert result.error == "TypeError: the body.at is an object, which JSON does not express: use str(…)"


def test_unknown_name():
    with pytest.raises(AttributeError, match="quern has no 'Retri': did you mean 'Retry'"):
        quern.Retri
    with pytest.raises(ImportError):
        from quern import nothing  # noqa: F401
