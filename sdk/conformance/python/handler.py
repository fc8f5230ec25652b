"""The guest of the conformance kit in Python: it makes the calls that its input lists, one a line, and writes what each was
answered. README.md, one folder up, says how they are written."""

import json
import os
import time

import quern

_ENDS = {"0": None, "65": quern.Fatal, "75": quern.Retry}

remembered = b""


class Ended(Exception):
    def __init__(self, error):
        self.error = error


def number(word):
    """What is missing is 0."""
    try:
        return int(word)
    except ValueError:
        return 0


def data(word):
    """What a word stands for: %61 is a byte, a trailing *3 repeats all before it, and - alone is nothing."""
    if word == "-":
        return b""
    before, star, times = word.rpartition("*")
    if not (star and before and times.isdigit()):
        before, times = word, 1
    parts = before.encode().split(b"%")
    return b"".join([parts[0], *(bytes([int(part[:2], 16)]) + part[2:] for part in parts[1:])]) * int(times)


def text(word):
    return data(word).decode(errors="replace")


def outcome(call, *arguments):
    """ok or the error's name."""
    try:
        call(*arguments)
    except quern.HostError as error:
        return error.code
    return "ok"


def shown(value):
    """A value of a row as text."""
    if isinstance(value, bool):
        return "t" if value else "f"
    return "!" if value is None else value


def config():
    if quern.config("size") is None:
        raise quern.NotFoundError()


def clock():
    if time.time() < 1_700_000_000:
        raise quern.InvalidError()


at_start = {
    "config": outcome(config),
    "log": outcome(quern.log, quern.INFO, "start"),
    "random": outcome(os.urandom, 1),
    "clock": outcome(clock),
    "get": outcome(quern.kv("kit").get, "start"),
    "secret": outcome(quern.secret, "api_key"),
    "save": outcome(quern.checkpoint.save, b"start"),
    "load": outcome(quern.checkpoint.load),
}


class Guest:
    def __init__(self, task):
        self.task, self.output = task, bytearray()

    def tell(self, verb, answer, *values):
        self.output += f"{verb} {answer}".encode()
        for value in values:
            value = value if isinstance(value, bytes) else str(value).encode()
            self.output += b" " + (value if len(value) <= 64 else b"#%d" % len(value))
        self.output += b"\n"

    def line(self, words):
        if words[0] == "on":
            if number(words[1]) != self.task.attempt:
                return
            words = words[2:]
        elif words[0] == "once":
            if quern.checkpoint.load() is not None:
                return
            quern.checkpoint.save(b"once")
            words = words[1:]
        call = getattr(self, "call_" + words[0], None)
        if call is None:
            self.output += f"{words[0]} is no call of this guest\n".encode()
            return
        try:
            result = call(*words[1:])
        except quern.SQLError as error:
            self.tell(words[0], error.sqlstate, *([error.constraint] if error.constraint else []))
        except quern.HostError as error:
            present = getattr(error, "present", None)
            self.tell(words[0], error.code, *([] if present is None else [present]))
        else:
            if result is not NotImplemented:
                self.tell(words[0], "ok", *(result if isinstance(result, (list, tuple)) else [] if result is None else [result]))

    def call_write(self, word):
        self.output += data(word)
        return NotImplemented

    def call_end(self, status, why):
        kind = _ENDS.get(status, quern.Failure)
        raise Ended(kind and kind(text(why)))

    def call_retry(self, ms, why):
        raise Ended(quern.Retry(text(why), delay=abs(number(ms)) / 1000, key=number(ms) < 0))

    def call_trap(self):
        os.abort()

    def call_json(self):
        self.task.json()

    def call_size(self):
        return len(self.task.input)

    def call_sum(self):
        total = 2166136261
        for byte in self.task.input:
            total = (total ^ byte) * 16777619 & 0xFFFFFFFF
        return total

    def call_text(self, field):
        task = self.task
        return [
            lambda: task.id, lambda: task.queue, lambda: task.tenant, lambda: task.plugin, lambda: task.previous_error,
            lambda: task.parent, lambda: task.key, lambda: task.traceparent,
        ][number(field)]()

    def call_header(self, name):
        return self.task.headers.get(name, "")

    def call_number(self, field):
        return {"1": self.task.max_attempts, "4": self.task.reschedules}.get(field, self.task.attempt)

    def call_deadline(self):
        return round(self.task.deadline.timestamp() / 60) if self.task.deadline else 0

    def call_cancelled(self):
        return int(self.task.cancelled)

    def call_await(self):
        quern.progress(0, "waiting")
        while not self.task.cancelled:
            time.sleep(0.01)

    def call_log(self, level, line, *rest):
        quern.log(number(level), text(line), {text(name): text(value) for name, value in zip(rest[::2], rest[1::2])})

    def call_progress(self, hundredths, message):
        quern.progress(number(hundredths) / 100, text(message))

    def call_save(self, value):
        quern.checkpoint.save(data(value))

    def call_load(self):
        value = quern.checkpoint.load()
        if value is None:
            raise quern.NotFoundError()
        return value

    def call_get(self, bucket, key):
        value = quern.kv(data(bucket)).get(data(key))
        if value is None:
            raise quern.NotFoundError()
        return value

    def call_set(self, bucket, key, value, ttl):
        quern.kv(data(bucket)).set(data(key), data(value), number(ttl) / 1000)

    def call_delete(self, bucket, key):
        return int(quern.kv(data(bucket)).delete(data(key)))

    def call_increment(self, bucket, key, delta):
        return quern.kv(data(bucket)).increment(data(key), number(delta))

    def call_swap(self, bucket, key, old, value, ttl):
        quern.kv(data(bucket)).swap(data(key), None if old == "!" else data(old), data(value), number(ttl) / 1000)

    def call_list(self, bucket, prefix, after, limit):
        return quern.kv(data(bucket)).list(data(prefix), data(after), number(limit))

    def call_http(self, method, url, value, body, ms):
        answer = quern.http.request(method, text(url), headers={"X-Ask": text(value)}, data=data(body), timeout=number(ms) / 1000)
        return answer.status, answer.headers.get("X-Answer", ""), answer.content

    def call_sql(self, name, count, *words):
        values, statement = words[:number(count)], " ".join(words[number(count):])
        rows = quern.database(name).query(statement, *(None if value == "!" else text(value) for value in values))
        return [rows.affected, *(shown(value) for row in rows for value in row.values())]

    def call_kinds(self, name):
        row = quern.database(name).query_row("SELECT * FROM kinds WHERE id = 'a'")
        row |= {"id": "b", "document": json.dumps(row["document"])}  # None would be NULL
        places = ", ".join(f"${n}" for n in range(1, len(row) + 1))
        quern.database(name).execute(f"INSERT INTO kinds VALUES ({places})", *row.values())

    def call_commit(self, name):
        quern.database(name).commit()

    def call_rollback(self, name):
        quern.database(name).rollback()

    def call_step(self, name, step, value, *words):
        def do():
            quern.database(name).execute(" ".join(words))
            return text(value)

        return quern.database(name).once(step, do)

    def call_config(self, name):
        value = quern.config(text(name))
        if value is None:
            raise quern.NotFoundError()
        return value

    def call_secret(self, name):
        return quern.secret(text(name))

    def call_clock(self, id):
        real, monotonic = time.time(), time.monotonic()
        time.sleep(0.001)
        if id == "0" and real < 1_700_000_000:
            return "too early"
        if id == "1" and time.monotonic() - monotonic < 0.001:
            return "back"

    def call_sleep(self, ms):
        before = time.monotonic_ns()
        time.sleep(number(ms) / 1000)
        if time.monotonic_ns() - before < number(ms) * 1_000_000:
            return "too short"

    def call_random(self):
        return os.urandom(8).hex()

    def call_remember(self, word):
        global remembered
        was, remembered = remembered, data(word)
        return was

    def call_enqueue(self, queue, body, *rest):
        options = {}
        for name, word in zip(rest[::2], rest[1::2]):
            value = text(word)
            if name in ("id", "key", "unique", "when", "fair_key", "concurrency_key"):
                options[name] = value
            elif name == "after":
                options["after"] = [value]
            elif name == "label":
                options["labels"] = {"kit": value}
            elif name == "header":
                options["headers"] = {"kit": value}
            elif name in ("priority", "fair_weight", "max_concurrent"):
                options[name] = number(value)
            elif name == "attempts":
                options["max_attempts"] = number(value)
            elif name in ("delay", "at", "timeout"):
                options[name] = number(value) / 1000
        return quern.enqueue(data(queue), data(body), **options)

    def call_publish(self, _, body, *rest):
        options = {name: text(word) for name, word in zip(rest[::2], rest[1::2])}
        attributes = {"kit": options["attribute"]} if "attribute" in options else None
        return quern.publish(options["topic"], data(body), id=options.get("id", ""), attributes=attributes)

    def call_dependencies(self):
        return [f"{one.id} {one.end}" for one in self.task.dependencies()]

    def call_result(self, id):
        return self.task.result_of(text(id))

    def call_start(self, name):
        self.tell("start", at_start[name])
        return NotImplemented


def handle(task):
    guest = Guest(task)
    try:
        for line in task.input.decode("latin-1").split("\n"):
            if line.strip(" ") and not line.startswith("#"):
                guest.line(line.encode("latin-1").decode().split(" "))
    except Ended as ended:
        if ended.error is not None:
            raise ended.error from None
    return bytes(guest.output)
