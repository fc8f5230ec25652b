"""Tests of quern.client on a real server and Redis, which cmd/quern's TestProducers starts: a queue echo whose handler returns
its input and fails if that is empty, and a queue unserved that nobody serves."""

import ast
import asyncio
import decimal
import http.server
import json
import os
import pathlib
import re
import threading
import time
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

import pytest

import quern.client
from quern.client import APIError, AsyncClient, Client, NoTaskError, RedisClient, TaskFailed, Unique

URL, TOKEN, TENANT, REDIS = (os.environ["PRODUCER_" + name] for name in ("URL", "TOKEN", "TENANT", "REDIS"))


@pytest.fixture
def client():
    with Client(URL, token=TOKEN, tenant=TENANT) as client:
        yield client


def test_result(client):
    handle = client.enqueue("echo", {"to": "ada", "größe": 1}, labels={"team": "core"}, headers={"x-request": "7"}, key="k")
    task = handle.wait(timeout=60)
    assert not handle.existed and task.status == "complete" and task.json() == {"to": "ada", "größe": 1}
    assert task.fields["labels"] == {"team": "core"} and task.fields["headers"]["x-request"] == "7" and task.fields["key"] == "k"
    assert task.attempts == 1 and task.finished_at >= task.created
    assert client.enqueue("echo", b"\xff\x00").wait(60).result == b"\xff\x00"
    large = "x" * 100_000  # more than the server shows with the task
    assert client.enqueue("echo", large).wait(60).text == large


def test_options(client):
    handle = client.queue("unserved").enqueue(
        "later", delay=timedelta(hours=1), timeout=90, max_attempts=3, backoff="linear", backoff_base=0.5, jitter=False,
        priority=70, deadline=datetime.now(timezone.utc) + timedelta(days=1), dead_queue="letters",
    )
    task = handle.task()
    assert task.status == "scheduled" and not task.finished and task.fields["timeout_seconds"] == 90
    assert task.fields["retry"] == {"backoff": "linear", "base_seconds": 0.5, "jitter": False}
    assert task.fields["max_attempts"] == 3 and task.fields["priority"] == 70 and task.fields["dead_queue"] == "letters"
    with pytest.raises(ValueError, match="has no result to read: it is scheduled"):
        task.result
    with pytest.raises(TimeoutError, match="is scheduled after 0.1 seconds"):
        handle.wait(timeout=0.1)
    assert handle.cancel() and handle.cancel()
    with pytest.raises(TaskFailed, match=r"failed \(cancelled\)") as failed:
        handle.wait(timeout=60)
    assert failed.value.task.reason == "cancelled"


EVERY_OPTION = {
    "key": "k", "fair_key": "acme", "fair_weight": 3, "concurrency_key": "customer", "max_concurrent": 2,
    "labels": {"team": "core"}, "headers": {"x-request": "7"}, "priority": 70, "delay": 3600, "timeout": 90,
    "deadline": datetime(2100, 1, 1, tzinfo=timezone.utc), "max_attempts": 3, "backoff": "exponential", "backoff_base": 0.5, "backoff_min": 0.1,
    "backoff_max": 60, "jitter": False, "max_age": 7200, "max_reschedules": 5, "unique": Unique("every", 60), "when": "ended",
    "open": True, "dead_queue": "letters", "parent": "py-parent", "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
}


def test_every_option(client):
    """Both requests that enqueue can carry every option. TestProducers compares what was sent with the API's document."""
    assert set(EVERY_OPTION) | {"id", "at", "after"} == set(quern.client.Options.__annotations__)
    first = client.enqueue("unserved", "first").id
    for size in (3, 3 << 20):  # a task of 3 MiB has a request of its own
        for time in ({"delay": 3600}, {"at": datetime(2099, 1, 1, tzinfo=timezone.utc), "delay": None}):
            unique = Unique(f"every {size} {sorted(time)}", 60)
            options = {**EVERY_OPTION, **time, "unique": unique, "after": [first], "id": f"py-every-{size}-{len(time)}"}
            task = client.enqueue("unserved", "\x00" * size, **options).task()
            assert task.fields["dead_queue"] == "letters" and task.fields["retry"]["max_reschedules"] == 5


def test_fields(client):
    """Each field of a task that the client reads stands in the API's document."""
    read = set()

    class Fields(dict):
        def get(self, name, default=None):
            read.add(name)
            return super().get(name, default)

        def __getitem__(self, name):
            read.add(name)
            return super().__getitem__(name)

    with urllib.request.urlopen(urllib.request.Request(URL + "/v1/openapi.json", headers={"Authorization": "Bearer " + TOKEN})) as answer:
        schemas = json.load(answer)["components"]["schemas"]
    fields = client.enqueue("echo", "x").wait(60).fields
    for task in (quern.client.Task(Fields(fields)), quern.client.Task(Fields({**fields, "result": None, "result_size": 0}))):
        properties = [name for name in dir(task) if isinstance(getattr(type(task), name, None), property)]
        assert len(properties) > 10 and [getattr(task, name) for name in properties]
    assert {"id", "attempts", "result", "result_base64", "result_size", "error"} <= read
    assert read <= set(schemas["Task"]["properties"])


def test_delay(client):
    mail = client.queue("echo", labels={"team": "core"}, max_attempts=2)
    task = mail.delay(to="ada", self=1, delay=2).wait(60)
    assert task.json() == {"to": "ada", "self": 1, "delay": 2}
    assert task.fields["labels"] == {"team": "core"} and task.fields["max_attempts"] == 2
    task = mail.enqueue({"to": "bob"}, max_attempts=3, key="k").wait(60)
    assert (task.fields["max_attempts"], task.fields["key"], task.fields["labels"]) == (3, "k", {"team": "core"})
    bulk = mail.enqueue_many([{"to": "eve"}, ({"to": "joe"}, {"max_attempts": 4})])
    assert [handle.wait(60).fields["max_attempts"] for handle in bulk] == [2, 4]
    with pytest.raises(TypeError, match="delay takes keyword arguments, .*: use delay"):
        mail.delay("ada")
    with pytest.raises(TypeError, match="enqueue has no option 'attempts': did you mean max_attempts"):
        client.queue("echo", attempts=2)
    with pytest.raises(TypeError, match="id as an option of all tasks"):
        client.queue("echo", id="one")


def test_readme(client):
    """The code of the README runs as it stands there, on this server."""
    readme = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall("```python\n(.*?)```", readme.split("## Producers")[1], re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        for shown, here in (
            ('"http://127.0.0.1:9465", token="..."', "URL, token=TOKEN, tenant=TENANT"), ('"redis://127.0.0.1:6379/0"', "REDIS, tenant=TENANT"),
            ('"mail"', '"echo"'), ("delay=30", "delay=0.1"),
        ):
            block = block.replace(shown, here)
        exec(compile(block, "README.md", "exec"), {"client": client, "URL": URL, "TOKEN": TOKEN, "TENANT": TENANT, "REDIS": REDIS})
    assert client.task("eve-1").queue == "echo"


def test_once(client):
    parent = client.enqueue("unserved", "parent")
    for after in (parent.id, parent, [parent]):
        assert client.enqueue("unserved", "x", after=after).task().status == "scheduled"
    first = client.enqueue("unserved", "once", id="py-once")
    assert client.enqueue("py-nobody", "x").unserved and not client.enqueue("echo", "x").unserved
    assert (first.id, first.existed) == ("py-once", False) and client.enqueue("unserved", "once", id="py-once").existed
    unique = client.enqueue("unserved", "u", unique=Unique("key", 60))
    again = client.enqueue("unserved", "v", unique="key")
    assert again.existed and again.id == unique.id and not unique.existed


def test_many(client):
    items = [{"n": n} for n in range(1500)] + [("last", {"id": "py-last"}), b"\xff"]
    handles = client.enqueue_many("echo", items)
    assert len(handles) == len(items) and handles[-2].id == "py-last" and not any(h.existed for h in handles)
    assert handles[1499].wait(60).json() == {"n": 1499} and handles[-1].wait(60).result == b"\xff"
    joined = client.enqueue("echo", None, after=[handles[0].id])
    assert joined.wait(60).json() == {"n": 0}
    wide = client.enqueue("unserved", None, after=[handle.id for handle in handles[:400]], labels={"a=b": "c"})
    assert wide.task().fields["labels"] == {"a=b": "c"}
    large = client.enqueue_many("echo", ["\x00" * (3 << 20), "small"])
    assert len(large[0].wait(60).result) == 3 << 20 and large[1].wait(60).text == "small"
    with pytest.raises(ValueError, match="takes no names with ="):
        client.enqueue("echo", "\x00" * (3 << 20), labels={"a=b": "c"})


def test_failures(client):
    with pytest.raises(TaskFailed, match="failed"):
        client.enqueue("echo", "", max_attempts=1).wait(60)
    failing = client.enqueue("echo", "", max_attempts=1, delay=0.1)
    next = client.enqueue("echo", "x", after=[failing.id])
    with pytest.raises(TaskFailed) as failed:
        failing.wait(60)
    with pytest.raises(TaskFailed, match=f"task {failing.id}, which it waited for, failed: echo: ") as caused:
        next.wait(60)
    assert str(caused.value).endswith(failed.value.task.error_message.splitlines()[0])
    with pytest.raises(TaskFailed, match=f"task {next.id}, which it waited for, failed: echo: ") as caused:
        client.enqueue("echo", "x", after=[next.id]).wait(timeout=60)
    assert str(caused.value).endswith(failed.value.task.error_message.splitlines()[0])
    with pytest.raises(NoTaskError, match="no such task"):
        client.task("py-none")
    with pytest.raises(ValueError, match="^priority 700: use 0 to 100, higher ones first$"):
        client.enqueue("echo", "x", priority=700)
    with pytest.raises(APIError, match=r"; tasks\[0\]\.max_attempts: ") as refused:
        client.enqueue("echo", "x", max_attempts=-7)
    assert refused.value.status == 422
    with pytest.raises(APIError) as stranger:
        Client(URL, token="wrong", tenant=TENANT).enqueue("echo", "x")
    assert stranger.value.status == 401
    with pytest.raises(ValueError, match=r": for Redis use RedisClient\(url\), or "):
        Client("redis://127.0.0.1:6379")
    with pytest.raises(TypeError, match=r"enqueue has no option 'dely': did you mean delay\?"):
        client.enqueue("echo", "x", dely=1)
    for local in ({"at": datetime(2099, 1, 1)}, {"deadline": datetime(2099, 1, 1)}):
        with pytest.raises(ValueError, match=r"^(at|deadline) datetime.datetime\(2099, 1, 1, 0, 0\) has no time zone: use "):
            client.enqueue("echo", "x", **local)
    for thing, name, text in (
        (next, "get", "a handle has no 'get': use wait(timeout=seconds), and .json(), .text or .result of the task that it returns"),
        (next, "weit", "a handle has no 'weit': did you mean wait?"),
        (client.queue("echo"), "apply_async", "a queue has no 'apply_async': use enqueue(parameters, delay=seconds, at=datetime)"),
        (client, "AsyncResult", "a client has no 'AsyncResult': use task(id), or wait(id, timeout=seconds)"),
    ):
        with pytest.raises(AttributeError, match=f"^{re.escape(text)}$"):
            getattr(thing, name)
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer from http://127.0.0.1:9: .*refused") as ended:
        Client("http://127.0.0.1:9", retries=100).wait("x", timeout=0.3)
    assert type(ended.value.__cause__).__name__ == "ConnectError"
    assert time.monotonic() - started < 30  # the retries alone take minutes
    with pytest.raises(APIError, match="no answer from http://127.0.0.1:9"):
        Client("http://127.0.0.1:9", retries=1).enqueue("echo", "x")


def test_publish(client, caplog):
    for _ in range(2):  # warns once
        nobody = client.publish("py.nobody", "x")
        assert (nobody.subscribers, nobody.dropped) == (0, True)
    assert [record.getMessage() for record in caplog.records] == [
        "topic py.nobody: no subscription matches, so the publication is dropped: add subscribe: [{topic: py.nobody}] to a plugin's "
        "manifest, or run quern subscription create"
    ]
    assert not client.publish("py.orders", {"total": 1}, id="py-p", attributes={"type": "new"}).existed
    origin = {"parent": "py-parent", "traceparent": EVERY_OPTION["traceparent"], "tracestate": "a=b"}
    assert not client.publish("py.orders", "x", **origin).existed
    assert client.publish("py.orders", {"total": 1}, id="py-p", attributes={"type": "new"}).existed


class Losing(http.server.BaseHTTPRequestHandler):
    """A proxy that passes a request on, and then loses the first answer, and refuses the second request."""

    asked = 0

    def do_POST(self):
        type(self).asked += 1
        if self.asked == 2:
            self.send_response(503)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type")}
        with urllib.request.urlopen(urllib.request.Request(URL + self.path, body, headers, method="POST")) as answer:
            text = answer.read()
        if self.asked == 1:
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def test_lost_answer(client):
    Losing.asked = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Losing) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{proxy.server_port}", token=TOKEN, tenant=TENANT) as through:
            handle = through.enqueue("echo", "once")
        proxy.shutdown()
    assert Losing.asked == 3 and not handle.existed
    assert client.wait(handle.id, 60).text == "once"


def test_asynchronous():
    async def produce():
        async with AsyncClient(URL, token=TOKEN, tenant=TENANT) as client:
            handles = await asyncio.gather(*(client.enqueue("echo", str(n)) for n in range(20)))
            tasks = await asyncio.gather(*(handle.wait(60) for handle in handles))
            assert [task.text for task in tasks] == [str(n) for n in range(20)]
            many = await client.queue("echo").enqueue_many(["a", "b"])
            assert (await many[1].wait(60)).text == "b"
            delayed = await client.queue("echo", max_attempts=2).delay(to="ada")
            task = await delayed.wait(60)
            assert task.json() == {"to": "ada"} and task.fields["max_attempts"] == 2
            with pytest.raises(TaskFailed):
                await client.wait((await client.enqueue("echo", "", max_attempts=1)).id, 60)
            with pytest.raises(NoTaskError):
                await client.cancel("py-none")
            assert (await client.publish("py.orders", "x")).topic == "py.orders"

    asyncio.run(produce())


def test_redis(client):
    producer = RedisClient(REDIS, tenant=TENANT)
    id = producer.enqueue("echo", {"by": "redis"})
    assert client.wait(id, 60).json() == {"by": "redis"}
    queue = producer.queue("echo")
    assert client.wait(queue.delay(by="redis"), 60).json() == {"by": "redis"}
    assert queue.enqueue("one", id="py-one", delay=0.1) == "py-one" and client.wait("py-one", 60).text == "one"
    with pytest.raises(TypeError, match="delay takes keyword arguments"):
        queue.delay("redis")
    with pytest.raises(ValueError, match="use 1 to 128 characters"):
        producer.queue("a b")
    assert client.wait(producer.enqueue("echo", "soon", delay=0.2), 60).text == "soon"
    due = datetime.now(timezone.utc) + timedelta(hours=1)
    assert producer.enqueue("unserved", "later", id="py-due", at=due) == "py-due"
    producer.enqueue("unserved", "other", id="py-due")
    task = client.task("py-due")
    assert task.status == "scheduled" and abs(task.fields["eta"] - due.timestamp()) < 0.001 and task.fields["parameters"] == "later"
    for queue, id in (("a b", ""), ("", ""), ("echo", "é")):
        with pytest.raises(ValueError, match="use 1 to 128 characters"):
            producer.enqueue(queue, "x", id=id)
    for queue, id in (("webhook.s", ""), ("echo", ".."), ("echo", "dead-" + "0" * 40)):
        with pytest.raises(ValueError, match="choose another"):
            producer.enqueue(queue, "x", id=id)
    with pytest.raises(ValueError, match="tenant 'a_b'"):
        RedisClient(REDIS, tenant="a_b")
    with pytest.raises(UnicodeDecodeError):
        producer.enqueue("echo", b"\xff")


def test_as_a_handler_encodes(client):
    """Parameters are encoded as what a handler returns and enqueues."""
    parameters = {"price": decimal.Decimal("1.50"), "at": datetime(2026, 1, 2), "id": uuid.UUID(int=1), "of": {1}}
    want = {"price": "1.50", "at": "2026-01-02T00:00:00", "id": str(uuid.UUID(int=1)), "of": [1]}
    assert client.enqueue("echo", parameters).wait(60).json() == want
    assert client.task(RedisClient(REDIS, tenant=TENANT).enqueue("unserved", parameters)).fields["parameters"] == json.dumps(want, separators=(",", ":"))


def test_server_of_the_environment(monkeypatch, tmp_path):
    """Without a URL a client finds the server as the program quern does."""
    for name in ("QUERN_SERVER", "QUERN_TOKEN", "QUERN_TENANT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=r"no URL of a server: give one, such as .*, set QUERN_SERVER, or start `quern dev`"):
        Client()
    dev = {"redis": "", "http": "127.0.0.1:9", "admin": "", "pid": os.getpid()}
    (tmp_path / "quern").mkdir()
    file = tmp_path / "quern" / "dev.json"
    file.write_text(json.dumps(dev))
    with pytest.raises(ValueError, match="serves no API: start it without --admin ''"):
        Client()
    file.write_text(json.dumps({**dev, "admin": URL}))
    assert Client(token=TOKEN, tenant=TENANT).enqueue("unserved", "x").id
    monkeypatch.setenv("QUERN_SERVER", "http://127.0.0.1:9")
    with pytest.raises(quern.client.Unreachable, match="no answer from http://127.0.0.1:9: connection refused: is quern dev, or a host with --admin, running there"):
        AsyncClientRun(lambda client: client.enqueue("echo", "x"), retries=0)
    for name, value in (("QUERN_SERVER", URL), ("QUERN_TOKEN", TOKEN), ("QUERN_TENANT", TENANT)):
        monkeypatch.setenv(name, value)
    assert Client().enqueue("unserved", "x").id


def AsyncClientRun(call, **options):
    async def run():
        async with AsyncClient(**options) as client:
            return await call(client)

    return asyncio.run(run())


def test_errors_name_what_python_has(client):
    with pytest.raises(NoTaskError) as none:
        client.task("py-no-such-task")
    assert "py-no-such-task" in str(none.value) and "/v1/" not in str(none.value)
    with pytest.raises(TimeoutError, match=r"task \S+ is pending after 0.1 seconds: no host serves the queue \"ecko\".*: did you mean echo\?"):
        client.enqueue("ecko", "x").wait(timeout=0.1)


def test_refused_here(client):
    """What cannot be meant is refused before anything is sent."""
    for options in ({"delay": "soon"}, {"timeout": True}, {"at": "now"}, {"backoff_base": [1]}):
        with pytest.raises(TypeError, match=f"^{next(iter(options))} .*: use "):
            client.enqueue("unserved", "x", **options)
    with pytest.raises(ValueError, match="max_attempts 0: use 1 for one attempt"):
        client.queue("unserved", max_attempts=0)
    for options in ({"delay": float("nan")}, {"at": float("inf")}, {"timeout": -1}, {"unique": ""}, {"delay": 1e300}):
        with pytest.raises(ValueError, match=next(iter(options))):
            client.enqueue("unserved", "x", **options)
    loop: dict = {}
    loop["a"] = [loop]
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for parameters, kind, says in (
        ({"items": [{"price": object()}]}, TypeError, r"^parameters.items\[0\].price is of the Python type object, .*: use str\(…\)$"),
        ({"a b": b"x"}, TypeError, r"^parameters\['a b'\] is a bytes, .*: use ….decode\(\)$"),
        ({(1, 2): 3}, TypeError, r"^parameters has the key \(1, 2\), .*: use a str$"),
        ([float("nan")], ValueError, r"^parameters\[0\] is nan, "), (loop, ValueError, r"^parameters.a\[0\] contains itself"),
        (deep, ValueError, "^parameters has more than 900 values in each other"),
        ("a\ud800", ValueError, r"^parameters has half a surrogate pair \(U\+D800\)"),
        ({"a": ["\udfff"]}, ValueError, r"^parameters.a\[0\] has half a surrogate pair \(U\+DFFF\)"),
    ):
        for call in (lambda: client.enqueue("unserved", parameters), lambda: client.publish("py.orders", parameters)):
            with pytest.raises(kind, match=says):
                call()
    producer = RedisClient(REDIS, tenant=TENANT)
    for options in ({"delay": float("nan")}, {"at": float("nan")}):
        with pytest.raises(ValueError):
            producer.enqueue("unserved", "x", id="py-nan", **options)
    with pytest.raises(NoTaskError):
        client.task("py-nan")
    for name in ("", ".", "..", None):
        with pytest.raises(ValueError, match="use a text that is not empty"):
            client.task(name)
    assert Client(URL, token=TOKEN + "\n", tenant=TENANT).enqueue("unserved", "x").id
    for token in ("a\nb", "ü"):
        with pytest.raises(ValueError) as refused:
            Client(URL, token=token)
        assert token not in str(refused.value)
    with pytest.raises(ValueError, match="use one like http://"):
        Client("127.0.0.1:9465")


class Strange(http.server.BaseHTTPRequestHandler):
    """A server that is not Quern's: it answers what its path begins with."""

    answers = {
        "html": (200, b"<html>", {}), "null": (200, b"null", {}), "list": (200, b"[]", {}), "object": (200, b"{}", {}),
        "items": (200, b'{"items":[1]}', {}), "odd": (400, b'{"status":400,"type":null,"errors":[null]}', {}),
        "redirect": (307, b"", {"Location": "/html/"}), "types": (200, b'{"id":[1],"queue":"q","topic":"t","status":"failed","existed":1}', {}),
        "error": (200, b'{"id":"x","queue":"q","status":"failed","error":"text"}', {}), "deep": (200, b"[" * 100_000, {}),
        "busy": (503, b"{}", {"Retry-After": "3600"}),
    }

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        status, body, headers = self.answers[self.path.split("/")[1]]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *_):
        pass


def test_strange_answers():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Strange) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in Strange.answers:
            with Client(f"http://127.0.0.1:{server.server_port}/{name}", retries=0) as strange:
                calls = {
                    "POST queues/q/tasks/batch": lambda: strange.enqueue("q", "x"), "GET tasks/x": lambda: strange.task("x"),
                    "GET tasks/x ": lambda: strange.wait("x", 60), "POST topics/t/publications": lambda: strange.publish("t", "x"),
                }
                for asked, call in calls.items():
                    with pytest.raises(APIError) as refused:
                        call()
                    status, body, _ = Strange.answers[name]
                    method, path = asked.split()
                    came = ("" if status == 200 else f"HTTP status {status}, ") + (repr(body[:80].decode()) + "…" * (len(body) > 80) if body else "no body")
                    if name != "odd":  # a problem of RFC 9457
                        assert str(refused.value) == (
                            f"{method} http://127.0.0.1:{server.server_port}/{name}/v1/tenants/blueque/{path} answered {came}, "
                            "which is not an answer of Quern's API: check the URL"
                        )
        started = time.monotonic()
        with pytest.raises(APIError, match="503"):
            Client(f"http://127.0.0.1:{server.server_port}/busy").wait("x", timeout=0.5)
        assert time.monotonic() - started < 60  # the server asks for an hour
        server.shutdown()


def test_fork(client):
    """After a fork each process has connections of its own."""
    client.enqueue("unserved", "before")
    children = []
    for n in range(4):
        child = os.fork()
        if child == 0:
            ended = 1
            try:
                ended = 0 if client.task(client.enqueue("unserved", f"child {n}").id).fields["parameters"] == f"child {n}" else 2
            finally:
                os._exit(ended)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4


def test_twins():
    """Both clients are the same but for async and await."""
    folder = pathlib.Path(quern.client.__file__).parent
    twin = (folder / "_asynchronous.py").read_text()
    for ours, theirs in (
        ("await asyncio.sleep", "time.sleep"), ("import asyncio\n", ""), ("async def", "def"), ("await ", ""),
        ("__aenter__", "__enter__"), ("__aexit__", "__exit__"), ("aclose", "close"), ("Async", ""),
        ("Tasks of one event loop may", "Threads may"),
    ):
        assert ours in twin, ours
        twin = twin.replace(ours, theirs)

    def normal(source):
        return re.sub(r"\s+", " ", ast.unparse(ast.parse(source)))

    assert normal(twin) == normal((folder / "_synchronous.py").read_text())


def test_verify():
    """TestWebhookVerify has the deliveries of a host; this is the example of Standard Webhooks. The table is that of all languages."""
    verify, folder = quern.client.verify, pathlib.Path(__file__).resolve().parents[3]
    table = json.loads((folder / "testdata" / "webhooks.json").read_text())
    for change in table["cases"]:
        case = {**table, **change}

        def check():
            options = {} if "recent" in case else {"tolerance": float("inf")}
            return verify(case["headers"], case["body"].encode(), case["secret"], **options)

        if "error" not in case:
            assert check() == table["headers"]["webhook-id"], case["name"]
            continue
        with pytest.raises(ValueError, match=re.escape(case["error"])) as raised:
            check()
        assert isinstance(raised.value, quern.client.SignatureError) == ("secret: use" not in case["error"]), case["name"]
    with pytest.raises(TypeError, match="^verify: the body is a dict: give the bytes"):
        verify(table["headers"], {}, table["secret"])


def test_words_of_failures():
    for reason, exit, word in (("error", 65, "fatal"), ("error", 1, "error"), ("timeout", None, "timeout")):
        task = quern.client.Task({"id": "a", "status": "failed", "reason": reason, "error": {"message": "m", "exit_code": exit}})
        assert str(TaskFailed(task)) == f"task a failed ({word}): m"
    with pytest.raises(ValueError, match="^the URL of the server '127.0.0.1:9465': use one like "):
        Client("127.0.0.1:9465")
