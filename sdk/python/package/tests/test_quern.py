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
        raise {"retry": quern.Retry("later", delay=timedelta(seconds=1.5)), "held": quern.Retry("later", delay=2, key=True),
               "fatal": quern.Fatal("never")}.get(task.text, ValueError("bad"))

    assert testing.run(handle, "retry").delay == 1.5 and not testing.run(handle, "retry").key
    assert testing.run(handle, "held").delay == 2 and testing.run(handle, "held").key
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
        f"TypeError: the result of handle (test_quern.py:{line}).a[0] is of the Python type object, which JSON does not express: use str(…)"
    )
    result = testing.run(lambda task: quern.enqueue("q", {"at": object()}))
    assert result.error == "TypeError: the body.at is of the Python type object, which JSON does not express: use str(…)"


def test_unknown_name():
    with pytest.raises(AttributeError, match="quern has no 'Retri': did you mean 'Retry'"):
        quern.Retri
    with pytest.raises(ImportError):
        from quern import nothing  # noqa: F401


def test_raises_what_the_engine_raises(tmp_path):
    """A handler natively has no more than in the engine; a test has."""
    import os
    import socket
    import sqlite3
    import subprocess
    import threading

    def append():
        with open(tmp_path / "a", "a"):
            pass

    for work, kind, text in (
        (append, OSError, "a handler writes no files: use io.BytesIO"), (lambda: os.mkdir(tmp_path / "b"), OSError, "a handler writes no files"),
        (lambda: (tmp_path / "c").write_text("x"), OSError, "a handler writes no files"),
        (lambda: socket.create_connection(("127.0.0.1", 9)), OSError, "a handler has no sockets: use quern.http"),
        (lambda: subprocess.run(["true"]), OSError, "a handler starts no processes: enqueue a task"),
        (lambda: os.system("true"), OSError, "a handler starts no processes"),
        (lambda: threading.Thread(target=print).start(), RuntimeError, "a handler has no threads: use asyncio"),
    ):
        result = testing.run(lambda task, work=work: work())
        assert (result.status, result.error.partition(":")[0]) == ("failed", kind.__name__) and text in result.error
    assert not list(tmp_path.iterdir())
    append()

    async def sleeps(task):
        assert await asyncio.to_thread(lambda: 3) == 3
        return sqlite3.connect(":memory:").execute("select 1").fetchone()

    assert testing.run(sleeps).json() == [1]

    def api(method, url, headers, body):
        append()
        return 200, {}, "ok"

    assert testing.run(lambda task: quern.http.get("http://a.example/").text, http=api).text == "ok"


def test_urllib():
    """urllib.request asks the test's function in a task, as in the engine the host, and a server outside of tasks."""
    import urllib.error
    import urllib.request
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"from the server")

        def log_message(self, *_):
            pass

    def ask(url):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
            return answer.read().decode()

    seen = []

    def api(method, url, headers, body):
        seen.append((method, url, body))
        return (503, {}, "") if url.endswith("/busy") else (200, {"x-two": ["1", "2"]}, ask(server))

    def handle(task):
        request = urllib.request.Request("https://a.example/a", data=b"body", headers={"X-Ask": "x"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            got = [answer.status, answer.headers.get_all("x-two"), answer.read().decode(), ask("http://a.example/b")]
        try:
            ask("https://a.example/busy")
        except urllib.error.HTTPError as error:
            return [*got, str(error)]

    with HTTPServer(("127.0.0.1", 0), Answers) as listener:
        server = f"http://127.0.0.1:{listener.server_port}/"
        thread = Thread(target=listener.serve_forever)
        thread.start()
        try:
            result = testing.run(handle, http=api)
            assert ask(server) == "from the server"
        finally:
            listener.shutdown()
            thread.join()
    assert result.json() == [200, ["1", "2"], "from the server", "from the server", "HTTP Error 503: Service Unavailable"]
    assert seen == [("POST", "https://a.example/a", b"body"), ("GET", "http://a.example/b", b""), ("GET", "https://a.example/busy", b"")]
    denied = testing.run(lambda task: ask("https://a.example/"))
    assert denied.status == "failed" and "URLError" in denied.error and "GET https://a.example/: this test answers no HTTP: set quern_host.http = " in denied.error


def test_exit_says_its_status():
    """The error names the status, and no line of the log takes its place."""
    import sys

    def handle(task):
        print("a line of the log")
        sys.exit(3)

    assert testing.run(handle).error == "sys.exit(3)"


def test_names_of_other_libraries():
    bucket, host = quern.kv("b"), testing.Host(kv={"b": {"a": "x"}})
    for work, text in (
        (lambda task: quern.enqueue("q", countdown=3), "TypeError: quern.enqueue has no option 'countdown': did you mean delay? (seconds, or a timedelta)"),
        (lambda task: quern.enqueue("q", max_retries=3), "TypeError: quern.enqueue has no option 'max_retries': did you mean max_attempts? (the first run counts, too)"),
        (lambda task: quern.enqueue("q", max_atempts=3), "TypeError: quern.enqueue has no option 'max_atempts': did you mean max_attempts?"),
        (lambda task: quern.Retry("x", countdown=5), "TypeError: quern.Retry has no option 'countdown': did you mean delay? (seconds, or a timedelta)"),
        (lambda task: quern.Fatal("x", delay=5), "TypeError: quern.Fatal has no option 'delay': another attempt is made by quern.Failure or quern.Retry"),
        (lambda task: quern.enqueue("q", at=datetime(2030, 1, 1)), "ValueError: at datetime.datetime(2030, 1, 1, 0, 0) has no time zone: use datetime.now(timezone.utc) or .astimezone(), or a delay"),
        (lambda task: quern.Retry("x", key=True), "ValueError: key of Retry without a delay: write how long the tasks with this key are to wait, such as delay=30"),
        (lambda task: quern.Failure("x", key=True), "TypeError: quern.Failure has no option 'key': use delay"),
        (lambda task: task.retry(), "AttributeError: a task has no 'retry': raise quern.Retry(why, delay=seconds), or quern.Failure if the attempt counts"),
        (lambda task: task.request, "AttributeError: a task has no 'request': use task.id, task.attempt, task.headers"),
        (lambda task: task.atempt, "AttributeError: a task has no 'atempt': did you mean attempt?"),
        (lambda task: bucket.incr("a"), "AttributeError: a bucket has no 'incr': use increment(key)"),
        (lambda task: bucket.increment("a"), "quern.errors.ConflictError: kv increment b/a: the present value is no decimal number"),
        (lambda task: task.result_of("bad"), "quern.errors.NotFoundError: task bad failed and has no result"),
    ):
        assert host.run(work, after={"bad": None}).error == text


def test_status_says_why():
    status = testing.run(lambda task: {}["a"]).status
    assert status == "failed" and status.why.startswith("KeyError: 'a'\nTraceback") and "quern/testing.py" not in status.why
    assert testing.run(lambda task: None).status.why == ""


def test_plugin_takes_no_services(quern_plugin_of):
    with pytest.raises(TypeError, match=r"takes no 'kv', only input and after: list a test with kv and http under tests in mail\.yaml"):
        quern_plugin_of("mail").run("x", kv={})


@pytest.fixture
def quern_plugin_of(tmp_path):
    def plugin(name):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n")
        return testing.Plugin(tmp_path)

    return plugin


@pytest.mark.parametrize("kv", [
    "{kv: [{bucket: a, access: rw}, {access: r, bucket: 'b c'}]}", "\n  kv: [{bucket: a}, {bucket: b c}]\n  env: {bucket: x}",
    "\n  kv:\n  - bucket: a  # x\n    access: rw\n  # - bucket: d\n  - {bucket: \"b c\"}\n  http: [{host: \"http://x\", methods: [GET]}]",
    "\n  kv:\n    - access: r\n      bucket: a\n    - bucket: b c\nname: x", "\n  kv: [ # all\n    {bucket: a}, # one\n\n    {bucket: b c,\n     access: rw},\n  ]",
])
def test_buckets_of_the_manifest(tmp_path, kv):
    from quern import _manifest

    (tmp_path / "a.yaml").write_text(f"capabilities: {kv}\n")
    assert _manifest.read(tmp_path / "a.yaml").buckets == ["a", "b c"]


def test_manifest_denies(tmp_path, monkeypatch):
    """What a host denies is denied in tests, with its words, also where the test gives it: TestDenialsInTests compares them."""
    from quern import _manifest, _native

    (tmp_path / "a.yaml").write_text(
        "capabilities:\n  kv:\n  - bucket: read\n  - {bucket: all, access: rw}\n  secrets:\n  - key\n  enqueue: {queues: [\"mail.*\"]}\n"
        "  http: [{host: \"https://api.example.com\", methods: [GET]}, {host: https://*.b.example, methods:\n    [GET, POST]}]\n"
    )
    monkeypatch.setattr(_native, "manifest", _manifest.read(tmp_path / "a.yaml"))
    host = testing.Host(kv={name: {} for name in ("read", "all", "other")}, secrets={"key": "x", "other": "x"}, http=lambda *_: (200, {}, "ok"))
    for work in (
        lambda: quern.enqueue("mail.bulk"), lambda: quern.kv("all").set("a", "b"), lambda: quern.kv("read").get("a"), lambda: quern.secret("key"),
        lambda: quern.http.get("https://api.example.com:443/a").text, lambda: quern.http.post("https://a.B.example/").text,
    ):
        assert host.run(lambda task, work=work: work()).error == ""
    for work, why in (
        (lambda: quern.enqueue("other"), 'enqueue to other: denied: queue "other" is not granted: add "other" to queues in capabilities.enqueue'),
        (lambda: quern.publish("t"), 'publish to t: denied: topic "t" is not granted: add capabilities: {publish: {topics: ["t"]}}'),
        (lambda: quern.kv("other").get("a"), 'kv get other/a: denied: bucket "other" is not granted: add {bucket: "other"} to capabilities.kv'),
        (lambda: quern.kv("read").increment("a"), 'kv increment read/a: denied: bucket "read" is granted for reading only: add access: rw to bucket "read" in capabilities.kv'),
        (lambda: quern.secret("other"), 'secret \'other\': denied: secret "other" is not granted: add "other" to capabilities.secrets'),
        (lambda: quern.database("shop").execute("SELECT 1"), 'sql shop: denied: database "shop" is not granted: add capabilities: {sql: [{database: "shop"}]}'),
        (lambda: quern.http.post("https://api.example.com/a"), "POST https://api.example.com/a: denied: the manifest does not allow it: add POST to methods of https://api.example.com in capabilities.http"),
        (lambda: quern.http.get("http://b.example:81/?q"), 'GET http://b.example:81/: denied: the manifest does not allow it: add {host: "http://b.example:81", methods: [GET]} to capabilities.http'),
    ):
        assert host.run(lambda task, work=work: work()).error == "quern.errors.DeniedError: " + why


@pytest.mark.parametrize(("text", "config", "env"), [
    ("config:\n  greeting: Hello # x\n  url: \"https://a/#b\"\n  'q': 'it''s'\n\n# c\ncapabilities:\n  kv: [{bucket: a}]\n  env:\n    MODE: prod\n", {"greeting": "Hello", "url": "https://a/#b", "q": "it's"}, {"MODE": "prod"}),
    ("config: {a: b, c: \"d,}\", e: 3}\ncapabilities: {kv: [{bucket: x, access: rw}], env: {A: b, C: d}}\n", {"a": "b", "c": "d,}", "e": "3"}, {"A": "b", "C": "d"}),
    ("name: x\n", {}, {}), ("config:\ncapabilities:\n", {}, {}),
])
def test_manifest(tmp_path, text, config, env):
    from quern import _manifest

    (tmp_path / "a.yaml").write_text(text)
    manifest = _manifest.read(_manifest.path_of(tmp_path))
    assert (manifest.config, manifest.env) == (config, env)
    (tmp_path / "a.yaml").write_text("config:\n  a: |\n    x\n")
    with pytest.raises(ValueError, match=r"a\.yaml: '\|' is not read in tests"):
        _manifest.read(tmp_path / "a.yaml")


def test_databases():
    denied = testing.run(lambda task: quern.database("shop").execute("SELECT 1"))
    assert denied.error == (
        "quern.errors.DeniedError: sql shop: the test gives no database 'shop': quern_host.databases['shop'] = "
        "'postgres://USER@HOST/DATABASE', or test in the engine: quern plugin test --database shop=postgres://USER@HOST/DATABASE"
    )


@pytest.mark.parametrize(("arguments", "error"), [
    ((("a", 1),), "TypeError: argument 1 is a tuple: pass its parts one by one, as in query(statement, 1, 'a'), or a list for an array"),
    ((1, {1}), "TypeError: argument 2 is of the type set: pass str(…), or json.dumps(…) for json"),
    (([{"a": 1}],), "TypeError: argument 1 is a list with a dict: pass json.dumps(…) of the list for json, or of each dict for json[]"),
    (({"a": b""},), "TypeError: argument 1.a is a bytes, which JSON does not express: use ….decode()"),
])
def test_arguments_that_a_database_does_not_take(arguments, error):
    assert testing.run(lambda task: quern.database("shop").query("SELECT $1", *arguments)).error == error


def test_a_database_that_is_not_there():
    result = testing.run(lambda task: quern.database("shop").query("SELECT 1"), databases={"shop": "postgres://nobody@127.0.0.1:1/shop"})
    assert "need psycopg: pip install 'quern[sql]'" in result.error or "UnavailableError: sql shop: connection to server at " in result.error


def test_names_of_other_libraries_on_a_database():
    with pytest.raises(AttributeError, match=r"a database has no 'fetchrow': use query_row\(statement, …\)"):
        quern.database("shop").fetchrow("SELECT 1")


def test_handle_takes_the_task():
    def none(): ...
    def two(job, token): ...
    def named(task, *, token): ...
    def fits(task, token=None, *, other=1): return "ok"
    def any_number(*args): return "ok"

    assert testing.run(fits).text == testing.run(any_number).text == "ok"
    for handle, takes in ((none, "no arguments"), (two, "2 arguments"), (named, "2 arguments")):
        line, name = handle.__code__.co_firstlineno, handle.__name__
        assert testing.run(handle).error.endswith(f"test_quern.py:{line}: {name} takes {takes}: a handler takes one, the task: def {name}(task)")


def test_endless_loop_ends(monkeypatch):
    def handle(task):
        while True:
            try:
                pass
            except Exception:
                pass

    monkeypatch.setattr(testing, "LONGEST", 0.05)
    with pytest.raises(testing.Overtime, match="the task has run for 0.05 s: is that an endless loop?") as ended:
        testing.run(handle)
    assert any(frame.name == "handle" for frame in ended.traceback)
    assert testing.run(lambda task: "ok").text == "ok"


def test_bucket_is_named():
    with pytest.raises(AttributeError, match=r"^quern\.kv has no 'set': name the bucket: quern\.kv\('BUCKET'\)\.set\(…\)$"):
        quern.kv.set("a", "b")
    with pytest.raises(AttributeError, match="^quern.kv has no 'sett': it takes the name of a bucket"):
        quern.kv.sett


def test_denial_names_the_manifest_and_the_fixture():
    result = testing.run(lambda task: quern.kv("seen").get("a"))
    assert result.error == ("quern.errors.DeniedError: kv get seen/a: this test has no bucket 'seen': use quern_host, which has the manifest's, or "
                            "set quern_host.kv['seen'] = {}, or give testing.run kv={'seen': {}}")
    assert testing.run(lambda task: quern.http.get("http://a.example/b?c")).error.startswith(
        "quern.errors.DeniedError: GET http://a.example/b: this test answers no HTTP: set quern_host.http = lambda method, url, headers, body: "
    )
    assert "test_quern.py" in result.traceback and "_services.py" not in result.traceback and "_native.py" not in result.traceback


def test_input_is_shown():
    assert testing.run(lambda task: task.json(), "@orders.json").error.startswith("the input is not JSON: it begins with '@orders.json': ")
    assert testing.run(lambda task: task.json(), "").error.startswith("the input is not JSON: it is empty: ")
