"""Asks a host for everything, and returns what it was answered, line by line."""

import logging
from datetime import timedelta

import quern


class Paper:
    def __init__(self):
        self.lines = []

    def ask(self, what, function, *arguments, **options):
        try:
            answer = function(*arguments, **options)
        except quern.ConflictError as error:
            answer = f"{error.code} {error.present!r}"
        except quern.HostError as error:
            answer = error.code
        self.lines.append(f"{what}: {answer if isinstance(answer, str) else repr(answer)}"[:200])
        return answer


def handle(task):
    verb, _, url = task.text.partition(" ")
    if verb != "ask":
        return fail(verb)
    paper = Paper()
    for part in (describe, said, settings, names, values, numbers, swaps, lists, checkpoints, children, publications, dependencies):
        part(paper, task)
    requests(paper, url)
    return "\n".join(paper.lines)


def fail(verb):
    if verb == "retry":
        raise quern.Retry("no paper", delay=1.5)
    if verb == "exit":
        raise SystemExit("no ink")
    raise {"fatal": quern.Fatal("no picture"), "failure": quern.Failure("as it is")}.get(verb, ValueError("out of ink"))


def describe(paper, task):
    paper.lines.append(repr((
        task.id, task.queue, task.tenant, task.plugin, task.attempt, task.max_attempts, task.previous_error, task.parent, task.key,
        task.traceparent, task.headers, task.cancelled, task.deadline is None,
    )))


def said(paper, task):
    paper.ask("progress", quern.progress, 0.5, "half")
    paper.ask("progress", quern.progress, 7, "é" * 600)
    paper.ask("progress", quern.progress, float("nan"), "nothing")
    for level, text, fields in ((0, "trace", None), (3, "text é", {"a": '"x"\n'}), (4, "", None), (5, "x", None), (-1, "x", None),
                                (2, "x" * 4097, None), (2, "x", {"a": "x" * 3072})):
        paper.ask(f"log {level} {len(text)}", quern.log, level, text, fields)
    logging.getLogger("shop").warning("low on %s", "ink", extra={"left": 3})
    logging.info("two\nlines")
    logging.debug("not shown")


def settings(paper, task):
    for name in ("size", "none", ""):
        paper.ask("config", quern.config, name)
        paper.ask("config or else", quern.config, name, "else")
    for name in ("api_key", "none"):
        paper.ask("secret", quern.secret, name)


def names(paper, task):
    long = "é" * 128
    for name in ("", "a", long, long + "x", "a\n", "\x7f", "\u0085", "*", "a b", b"\xff"):
        for bucket in ("rw", "other", name):
            b, what = quern.kv(bucket), f"{name[:10]!r} in {bucket[:10]!r}"
            paper.ask(what + " get", b.get, name)
            paper.ask(what + " set", b.set, name, b"")
            paper.ask(what + " swap", b.swap, name, None, b"")
            paper.ask(what + " increment", b.increment, name)
            paper.ask(what + " list", b.list, name, "", 1)
            paper.ask(what + " after", b.list, "", name, 1)
            paper.ask(what + " delete", b.delete, name)


def values(paper, task):
    b = quern.kv("rw")
    paper.ask("most", b.set, "k", b"x" * (512 << 10))
    paper.ask("more", b.set, "k", b"x" * ((512 << 10) + 1))
    paper.ask("too big, and no name", b.set, "\n", b"x" * ((512 << 10) + 1))
    paper.ask("too big, and swapped", b.swap, "k", b"", b"x" * ((512 << 10) + 1))
    for value in (b"", "é", None, {"a": [1, "é"]}, 7, [True]):
        paper.ask(f"set {value!r}", b.set, "k", value)
        paper.ask(f"get {value!r}", b.get, "k")
    paper.ask("ttl", b.set, "k", b"x", timedelta(hours=1))
    paper.ask("ttl below 0", b.set, "k", b"x", -1)
    paper.ask("ttl below 0, swapped", b.swap, "k", b"x", b"y", -1)
    paper.ask("still", b.get, "k")
    paper.ask("default", b.get, "missing", "default")


def numbers(paper, task):
    b = quern.kv("rw")
    for value in ("", "0", "-0", "+1", "01", " 1", "1 ", "1e3", "-5", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "x"):
        b.set("n", value)
        for delta in (0, 1, -1, (1 << 63) - 1, -(1 << 63)):
            paper.ask(f"{value!r} and {delta}", b.increment, "n", delta)
    b.delete("n")
    paper.ask("from nothing", b.increment, "n", -(1 << 63))


def swaps(paper, task):
    b = quern.kv("rw")
    for old in (b"x", b"", None, None, b"", b"one", b"two"):
        paper.ask(f"swap {old!r}", b.swap, "s", old, "one", 3600)
    paper.ask("delete", b.delete, "s")
    paper.ask("delete", b.delete, "s")


def lists(paper, task):
    b = quern.kv("list")
    for key in ("b", "a", "ab", "a b", "é", "Z", "abc", "-", "+", "b\U0010ffff"):
        b.set(key, b"")
    for prefix, after, limit in (("", "", 10), ("", "", 3), ("a", "", 10), ("a", "ab", 10), ("a", "Z", 10), ("a", "b", 10), ("", "b", 10),
                                 ("x", "", 10), ("", "é", 10), ("+", "", 10), ("", "", 0), ("", "", -1), ("", "", 1000), ("", "", 1001)):
        paper.ask(f"list {prefix!r} after {after!r}, {limit}", b.list, prefix, after, limit)
    paper.ask("keys", lambda: list(b.keys("a")))


def checkpoints(paper, task):
    paper.ask("load", quern.checkpoint.load)
    paper.ask("save", quern.checkpoint.save, {"page": 1})
    paper.ask("load", quern.checkpoint.load)
    paper.ask("save too much", quern.checkpoint.save, b"x" * ((1 << 20) + 1))
    paper.ask("save nothing", quern.checkpoint.save, b"")
    paper.ask("load", quern.checkpoint.load)


def children(paper, task):
    for queue in ("mail", "mail.out", "done", "other", "", "a b", "x" * 129):
        paper.ask(f"enqueue {queue[:20]!r}", lambda: bool(quern.enqueue(queue, "body")))
    for options in (
        {"fair_key": "f", "fair_weight": 1000, "concurrency_key": "c", "max_concurrent": 1_000_000}, {"fair_weight": 2}, {"max_concurrent": 2},
        {"fair_key": "f", "fair_weight": 1001}, {"concurrency_key": "c", "max_concurrent": -1}, {"fair_key": "ü" * 129}, {"concurrency_key": "x" * 257},
        {"id": "mine"}, {"id": "a b"}, {"id": "x" * 129}, {"key": "k"}, {"labels": {"a": 'b"'}}, {"priority": 0}, {"priority": 100},
        {"priority": 101}, {"priority": -1}, {"delay": 1}, {"delay": -1}, {"at": 1700000000.5}, {"at": -1}, {"at": 253402300800},
        {"delay": 1, "at": 1700000000}, {"max_attempts": 3}, {"max_attempts": -1}, {"max_attempts": 1000001}, {"timeout": 60}, {"timeout": -1},
        {"after": ["mine"]}, {"after": ["mine", "other"], "when": "any"}, {"after": ["mine"], "when": "never"}, {"when": "any"}, {"after": ["a b"]},
        {"unique": True}, {"unique": "u"}, {"unique": quern.Unique("u", 3600)}, {"unique": quern.Unique("u", 0.5)},
    ):
        paper.ask(f"enqueue with {str(options)[:60]}", lambda: bool(quern.enqueue("done", b"", **options)))


def publications(paper, task):
    for topic in ("orders", "bills.paid", "other", "", "a b", "bills.*", "x" * 129):
        paper.ask(f"publish {topic[:20]!r}", lambda: bool(quern.publish(topic, "body")))
    for options in ({"id": "mine"}, {"id": "a b"}, {"attributes": {"type": 'made "now"'}}, {"attributes": {"Type": "x"}}, {"attributes": {"a": "\n"}}):
        paper.ask(f"publish with {options}", lambda: bool(quern.publish("orders", b"", **options)))


def dependencies(paper, task):
    paper.ask("dependencies", lambda: [one for one in task.dependencies() if one.end != "waiting"])  # which a test cannot say
    for id in ("empty", "full", "bad", "other", ""):
        paper.ask(f"result of {id!r}", task.result_of, id)


def requests(paper, url):
    def ask(what, method, to, **options):
        def answer():
            response = quern.http.request(method, to, **options)
            headers = {name: value for name, value in response.headers.items() if name not in ("date", "content-length", "connection", "server")}
            return repr((response.status, response.text, sorted(headers.items()), response.retry_after))

        paper.ask(what, answer)

    ask("get", "GET", url + "/", params={"q": "a b"})
    ask("post", "POST", url + "/echo?a=b", headers={"X-Two": ["1", "2"], "Content-Type": "text/x"}, data="body")
    ask("post json", "POST", url + "/echo", json={"a": "é"})
    ask("post form", "POST", url + "/echo", data={"a": "é b"})
    ask("moved", "GET", url + "/moved")
    ask("missing", "GET", url + "/missing")
    ask("not granted", "GET", "http://denied.example/path?secret#secret")
    ask("ftp", "GET", "ftp://127.0.0.1/")
    ask("no host", "GET", "/path")
    ask("a user", "GET", "http://me:secret@127.0.0.1/path")
    ask("method", "get", url + "/")
    ask("connect", "CONNECT", url + "/")
