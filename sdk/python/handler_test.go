package python_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
)

// TestResult is what the values become that a handler returns.
func TestResult(t *testing.T) {
	p := handler(t, `
import dataclasses, datetime, decimal, uuid
@dataclasses.dataclass
class Point:
    x: int
    y: list
VALUES = {
    "none": None, "str": "é", "bytes": b"\xff\x00", "bytearray": bytearray(b"a"), "dict": {"a": [1, None, True, 1.5, "é"]},
    "number": 7, "dataclass": Point(1, [Point(2, [])]), "date": datetime.date(2026, 1, 2), "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=1), "set": {1}, "empty": "", "lone": "a\ud800", "lone in JSON": ["\ud800"],
}
def handle(task):
    return VALUES[task.text]
`)
	for input, want := range map[string]string{
		"none": "", "str": "é", "bytes": "\xff\x00", "bytearray": "a", "dict": `{"a":[1,null,true,1.5,"é"]}`, "number": "7",
		"dataclass": `{"x":1,"y":[{"x":2,"y":[]}]}`, "date": `"2026-01-02"`, "decimal": `"1.10"`,
		"uuid": `"00000000-0000-0000-0000-000000000001"`, "set": "[1]", "empty": "", "lone": "a?", "lone in JSON": `["?"]`,
	} {
		if got := p.result(t, input); got != want {
			t.Errorf("%s: %q, want %q", input, got, want)
		}
	}
}

// TestFailure is what becomes of what a handler raises.
func TestFailure(t *testing.T) {
	p := setup(t, map[string]string{
		"handler.py": `
import datetime, sys, json, quern, lib.work
def deep(n): return deep(n + 1)
def recurse_repr():
    a = []
    for _ in range(100000): a = [a]
    return repr(a)
class Odd(Exception):
    def __str__(self): raise ValueError
def odd(): raise Odd()
class OddFatal(quern.Fatal):
    def __str__(self): raise SystemExit(3)
def late(delay):
    error = quern.Retry("later")
    error.delay = delay
    return error
def cause():
    try: 1 / 0
    except ZeroDivisionError as e: raise quern.Fatal("no luck") from e
def long(): raise ValueError("x" * 10000)
def chain(link):
    last = None
    for i in range(20000):
        error = ValueError(i)
        setattr(error, link, last)
        last = error
    raise last
class OddFailure(quern.Failure):
    status = property(lambda self: 1 / 0)
class OddType(type):
    def __getattribute__(self, name): raise ValueError
class OddName(Exception, metaclass=OddType): pass
def damaged(): raise KeyError("bottom")
damaged.__code__ = damaged.__code__.replace(co_linetable=b"\xff")
class Stream:
    def flush(self): pass
def without(change):
    print("end", end="")
    change()
    return "ok"
def loop(depth):
    if depth: exec(compile(f"def f{depth}(): loop({depth} - 1)\nf{depth}()", f"/app/{'n' * 40}{depth}.py", "exec"), {"loop": loop})
    else: raise KeyError("bottom")
WORK = {
    "error": lambda: lib.work.fail({}), "retry": lambda: quern.Retry("later", delay=1.5), "plain": lambda: quern.Retry("later"),
    "fatal": lambda: quern.Fatal("never"), "failure": lambda: quern.Failure("as it is"), "exit": lambda: sys.exit(7), "exit0": lambda: sys.exit(),
    "said": lambda: sys.exit("said"), "deep": lambda: deep(0), "repr": recurse_repr, "nested": lambda: json.loads("[" * 100000),
    "unprintable": lambda: {"a": object()}, "odd": odd, "cause": cause, "long": long, "frames": lambda: loop(60),
    "notjson": lambda: task.json(), "compile": lambda: eval("(" * 5000 + ")" * 5000), "memory": lambda: bytearray(1 << 30),
    "syntax": lambda: eval("1 +"), "odd fatal": lambda: OddFatal(), "odd exit": lambda: sys.exit(Odd()), "long delay": lambda: quern.Retry("later", delay=1e9),
    "text delay": lambda: quern.Retry("later", delay="30"), "nan delay": lambda: quern.Retry("later", delay=float("nan")),
    "causes": lambda: chain("__cause__"), "contexts": lambda: chain("__context__"), "odd status": lambda: OddFailure("m"), "odd name": lambda: OddName("m"),
    "syntax of numbers": lambda: SyntaxError("x", (5, 1, 1, "t")), "damaged": damaged, "text status": lambda: setattr(quern.Failure, "status", "x") or quern.Failure("m"),
    "closed": lambda: without(sys.stdout.close), "deleted": lambda: without(lambda: delattr(sys, "stdout")),
    "replaced": lambda: without(lambda: setattr(sys, "stdout", Stream())), "none": lambda: without(lambda: setattr(sys, "stdout", None)),
    "past delay": lambda: quern.Retry("later", delay=datetime.timedelta(-1)), "set delay": lambda: late("30"),
}
def handle(given):
    global task
    task = given
    result = WORK[task.text]()
    if isinstance(result, Exception): raise result
    return result
`,
		"lib/__init__.py": "",
		"lib/work.py":     "def fail(order):\n    return order['name']\n",
	}, runtime.Profile{})
	for input, want := range map[string]struct {
		kind    runtime.OutcomeKind
		message string // a pattern
		delay   time.Duration
		log     string // the last line; "…" for any
	}{
		"error":   {runtime.Failed, `KeyError: 'name' \[lib/work.py:2 in fail < handler.py:\d+ in <lambda> < handler.py:\d+ in handle\]\n.*\nKeyError: 'name'`, 0, ""},
		"retry":   {runtime.Retry, `later`, 1500 * time.Millisecond, ""},
		"plain":   {runtime.Retry, `later`, 0, ""},
		"fatal":   {runtime.Fatal, `never`, 0, ""},
		"failure": {runtime.Failed, `as it is`, 0, ""},
		"exit":    {runtime.Failed, `sys\.exit\(7\)`, 0, ""},
		"exit0":   {runtime.Complete, ``, 0, ""},
		"said":    {runtime.Failed, `said`, 0, ""},
		"deep": {
			runtime.Failed, `RecursionError: maximum recursion depth exceeded.* \[handler.py:3 in deep < \(\d+ more\) < .* in handle\]\n.*\nRecursionError: maximum recursion depth exceeded`, 0,
			"",
		},
		"repr":        {runtime.Failed, `RecursionError: .*\nRecursionError: maximum recursion depth exceeded while getting the repr of an object`, 0, ""},
		"nested":      {runtime.Failed, `RecursionError: .*`, 0, "…"},
		"compile":     {runtime.Failed, `(RecursionError|MemoryError|SyntaxError).*`, 0, "…"},
		"unprintable": {runtime.Failed, `TypeError: the result of handle \(handler.py:\d+\).a is of the Python type object, which JSON does not express: use str\(…\).*`, 0, "…"},
		"odd":         {runtime.Failed, `handler.Odd: \(its text cannot be read\) .*\nhandler.Odd: <exception str\(\) failed>`, 0, ""},
		"cause":       {runtime.Fatal, `no luck`, 0, "error: quern.errors.Fatal: no luck"},
		"long":        {runtime.Failed, `ValueError \[handler.py:\d+ in long < .*\]: x+`, 0, "…"},
		"frames":      {runtime.Failed, `KeyError: 'bottom' \[handler.py:\d+ in loop < n{40}1.py:1 in f1 < .*`, 0, "error: KeyError: 'bottom'"},
		"notjson":     {runtime.Fatal, `the input is not JSON: it begins with 'notjson': Expecting value: line 1 column 1 \(char 0\)`, 0, ""},
		"memory":      {runtime.LimitExceeded, `memory limit of 64MiB reached: MemoryError \[handler.py:.*\nMemoryError`, 0, ""},
		"syntax":      {runtime.Failed, `SyntaxError: invalid syntax .*\nSyntaxError: invalid syntax`, 0, ""},
		"odd fatal":   {runtime.Fatal, `\(its text cannot be read\)`, 0, ""},
		"odd exit":    {runtime.Failed, `\(its text cannot be read\)`, 0, ""},
		"long delay":  {runtime.Retry, `later`, 365 * 24 * time.Hour, ""},
		"text delay":  {runtime.Failed, `ValueError: delay of Retry: '30': expected seconds or a timedelta, 0 or more .*`, 0, "…"},
		"nan delay":   {runtime.Failed, `ValueError: delay of Retry: nan: .*`, 0, "…"},
		"causes":      {runtime.Failed, `ValueError: 19999 \[handler.py:\d+ in chain < handler.py:\d+ in <lambda> < handler.py:\d+ in handle\]\n.*`, 0, "…"},
		"contexts":    {runtime.Failed, `ValueError: 19999 \[handler.py:\d+ in chain < .*`, 0, "…"},
		"odd status":  {runtime.Failed, `m`, 0, "…"},
		"odd name":    {runtime.Failed, `OddName: m \[.*`, 0, "…"},
		"damaged":     {runtime.Failed, `KeyError: 'bottom' \[.*`, 0, "…"},
		"text status": {runtime.Failed, `m`, 0, "…"},

		"syntax of numbers": {runtime.Failed, `SyntaxError: x \[.*handler.py:\d+ in handle\].*`, 0, "…"},

		"closed":   {runtime.Complete, ``, 0, "end"},
		"deleted":  {runtime.Complete, ``, 0, "end"},
		"replaced": {runtime.Complete, ``, 0, "end"},
		"none":     {runtime.Complete, ``, 0, "end"},

		"past delay": {runtime.Failed, `ValueError: delay of Retry: datetime.timedelta\(days=-1\): .*`, 0, "…"},
		"set delay":  {runtime.Retry, `later`, 0, ""},
	} {
		r := p.run(t, input)
		last := ""
		if len(r.log) > 0 {
			last = r.log[len(r.log)-1]
		}
		if r.Kind != want.kind || !regexp.MustCompile("^(?s:"+want.message+")$").MatchString(r.Message) || r.RetryAfter != want.delay ||
			want.log != "…" && last != want.log {
			t.Errorf("%s: %s %q after %v, log %q\nwant %s %q after %v, log %q", input, r.Kind, r.Message, r.RetryAfter, last, want.kind, want.message, want.delay, want.log)
		}
	}
}

// TestStart is a handler that cannot be imported: every task says why.
func TestStart(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"raises":      {map[string]string{"handler.py": "import lib\n", "lib.py": "\nraise ValueError('bad table')\n"}, "ValueError: bad table [lib.py:2 in <module> < handler.py:1 in <module>]"},
		"syntax":      {map[string]string{"handler.py": "def handle(task):\n    return (\n"}, "SyntaxError: '(' was never closed [handler.py:2 in <module>]"},
		"none":        {map[string]string{"other.py": ""}, "there is no /app/handler.py: a plugin in Python is a file handler.py with a function handle(task)"},
		"no handle":   {map[string]string{"handler.py": "def run(task): pass\n"}, "handler.py has no function handle: add def handle(task)"},
		"a constant":  {map[string]string{"handler.py": "handle = 7\n"}, "handle in handler.py is a int: expected a function, def handle(task)"},
		"arguments":   {map[string]string{"handler.py": "import quern\n\ndef handle(job, token):\n    return 1\n"}, "handler.py:3: handle takes 2 arguments: a handler takes one, the task: def handle(task)"},
		"no argument": {map[string]string{"handler.py": "async def handle(): return 1\n"}, "handler.py:1: handle takes no arguments: a handler takes one, the task: def handle(task)"},
		"missing":     {map[string]string{"handler.py": "import ssl\ndef handle(task): pass\n"}, "ModuleNotFoundError: No module named 'ssl' in a handler of Quern: the host speaks TLS: use quern.http, or urllib.request with an https URL [handler.py:1 in <module>]"},
		"closed":      {map[string]string{"handler.py": "import sys\nsys.stdout.close()\nraise ValueError('bad table')\n"}, "ValueError: bad table [handler.py:3 in <module>]"},
		"service":     {map[string]string{"handler.py": "import quern\nquern.secret('a')\n"}, "quern.errors.NoHostError: secret 'a': this works only in a task: call it in handle, not while the module is imported"},
	} {
		t.Run(name, func(t *testing.T) {
			p := setup(t, test.files, runtime.Profile{})
			for range 2 {
				if r := p.run(t, ""); r.Kind != runtime.Failed || !strings.HasPrefix(r.Message, "the plugin did not start: "+test.want) {
					t.Errorf("%s %q\nwant %q\n%s", r.Kind, r.Message, test.want, r.logged())
				}
			}
		})
	}
}

// TestHostErrors is what the errors of the host tell: what was asked for.
func TestHostErrors(t *testing.T) {
	p := handler(t, `
import quern
b = quern.kv("weather")
calls = [lambda: b.get("Berlin"), lambda: b.set(b"Berlin", 1), lambda: b.delete("Berlin"), lambda: b.increment("Berlin"), lambda: b.swap("Berlin", None, 1),
    lambda: b.list("B"), lambda: quern.enqueue("mail"), lambda: quern.secret("key")]
def handle(task):
    said = []
    for call in calls:
        try: call()
        except quern.DeniedError as error:
            asked, why = str(error).split(": ", 1)
            said.append(asked)
            assert why.startswith("denied: the manifest grants no "), why
    return said
`)
	const want = `["kv get weather/Berlin","kv set weather/Berlin","kv delete weather/Berlin","kv increment weather/Berlin","kv swap weather/Berlin",` +
		`"kv list weather/B","enqueue to mail","secret 'key'"]`
	if r := p.run(t, ""); string(r.Output) != want {
		t.Errorf("%s %s\n%s\nwant\n%s", r.Kind, r.Message, r.Output, want)
	}
}

// TestLog is what reaches the task's log.
func TestLog(t *testing.T) {
	p := handler(t, `
import logging, sys, warnings, quern
logging.basicConfig(level=logging.DEBUG)
log = logging.getLogger("shop")
def handle(task):
    print("printed", 1)
    print("to stderr", file=sys.stderr)
    logging.debug("a %s", "b")
    log.info("sold", extra={"item": "x", "n": 2})
    log.warning("two\nlines")
    quern.log(quern.ERROR, "raw", {"a": 1})
    try: 1 / 0
    except ZeroDivisionError: log.exception("failed")
    warnings.warn("old")
    logging.info("lone \ud800", extra={"a": "\ud801"})
    sys.stdout.write("no newline")
`)
	want := []string{
		"printed 1", "to stderr", "debug: a b", `sold {"item":"x","n":2,"logger":"shop"}`, `warning: two {"logger":"shop"}`, "warning: lines",
		`error: raw {"a":1}`, `error: failed {"logger":"shop"}`, "error: Traceback (most recent call last):", `error:   File "/app/handler.py", line 12, in handle`,
		"error:     try: 1 / 0", "error:          ~~^~~", "error: ZeroDivisionError: division by zero",
		`warning: /app/handler.py:14: UserWarning: old {"logger":"py.warnings"}`, `warning:   warnings.warn("old")`, "warning: ", `lone ? {"a":"?"}`, "no newline",
	}
	if r := p.run(t, ""); r.Kind != runtime.Complete || !slices.Equal(r.log, want) {
		t.Errorf("%s %s\n%s\nwant\n%s", r.Kind, r.Message, r.logged(), strings.Join(want, "\n"))
	}
}

// TestAsync is a handler that awaits.
func TestAsync(t *testing.T) {
	p := handler(t, `
import asyncio, time
async def work(n):
    await asyncio.sleep(0.02)
    return n
async def handle(task):
    if task.text == "stuck": await asyncio.get_running_loop().create_future()
    if task.text == "raise": raise ValueError("awaited")
    if task.text == "timeout":
        async with asyncio.timeout(0.01): await asyncio.sleep(60)
    asyncio.create_task(asyncio.sleep(60))
    began = time.monotonic()
    results = await asyncio.gather(*map(work, range(10)), asyncio.to_thread(lambda: 10))
    return {"sum": sum(results), "together": time.monotonic() - began < 5}
`)
	if got := p.result(t, ""); got != `{"sum":55,"together":true}` {
		t.Error(got)
	}
	for input, want := range map[string]string{
		"stuck": "the handler awaits what nothing can end", "raise": "ValueError: awaited [handler.py:8 in handle]", "timeout": "TimeoutError",
	} {
		if r := p.run(t, input); r.Kind != runtime.Failed || !strings.Contains(r.Message, want) {
			t.Errorf("%s: %s %s", input, r.Kind, r.Message)
		}
	}
}

// TestRandom: no task draws the numbers of another, and none those of the start, unless it has a seed of its own.
func TestRandom(t *testing.T) {
	p := handler(t, `
import os, random, secrets, uuid
drawn = random.random()
system, seeded = random.Random(), random.Random(7)
def handle(task):
    return [random.random(), system.random(), random.randrange(10**9), secrets.token_hex(8), str(uuid.uuid4()), os.urandom(4).hex(),
            random.getstate()[1][:3], seeded.random()] if task.text == "" else {"same": [seeded.random(), hash("a"), drawn]}
`)
	first, second := p.result(t, ""), p.result(t, "")
	parts := regexp.MustCompile(`[^\[\],]+`)
	a, b := parts.FindAllString(first, -1), parts.FindAllString(second, -1)
	for i := range a {
		if same := a[i] == b[i]; same != (i == len(a)-1) && i != 8 {
			t.Errorf("value %d: %s and %s", i, a[i], b[i])
		}
	}
	if one, two := p.result(t, "same"), p.result(t, "same"); one != two {
		t.Errorf("%s and %s", one, two)
	}
}

// TestMissing: code may look for a module that is not there; an error that nobody catches says what to do instead.
func TestMissing(t *testing.T) {
	p := handler(t, `
import importlib.util
def handle(task):
    if task.text == "look": return [importlib.util.find_spec(name) for name in ("ssl", "mmap", "_lzma")]
    try: import ssl
    except ImportError as error: raise RuntimeError("no TLS") from error
`)
	if got := p.result(t, "look"); got != "[null,null,null]" {
		t.Error(got)
	}
	if r := p.run(t, ""); !strings.Contains(r.Message, "No module named 'ssl' in a handler of Quern: the host speaks TLS: ") {
		t.Error(r.Message)
	}
}

// TestHashSeed: the hash seed is 0 or what the manifest sets; what is not a seed fails every task.
func TestHashSeed(t *testing.T) {
	run := func(env map[string]string) ran {
		return setup(t, map[string]string{"handler.py": "def handle(task): return hash('a')"}, runtime.Profile{Env: env}).run(t, "")
	}
	unset, zero, seven := run(nil), run(map[string]string{"PYTHONHASHSEED": "0"}), run(map[string]string{"PYTHONHASHSEED": "7"})
	if string(unset.Output) != string(zero.Output) || seven.Kind != runtime.Complete || string(seven.Output) == string(zero.Output) {
		t.Errorf("unset %s, 0 %s, 7 %s %s", unset.Output, zero.Output, seven.Output, seven.Message)
	}
	for _, seed := range []string{"random", "7x", "-1", "4294967296", ""} {
		want := `the plugin did not start: PYTHONHASHSEED is "` + seed + `": expected a number from 0 to 4294967295`
		if r := run(map[string]string{"PYTHONHASHSEED": seed}); r.Kind != runtime.Failed || r.Message != want {
			t.Errorf("%s: %s %s %s", seed, r.Kind, r.Message, r.Output)
		}
	}
}

// TestHostileXML: a chain of entities does not exhaust the stack, as it did in expat before CVE-2024-8176 was fixed.
func TestHostileXML(t *testing.T) {
	p := handler(t, `
from xml.parsers import expat
def handle(task):
    chain = "".join(f"<!ENTITY e{n} '&e{n - 1};'>" for n in range(1, 60000))
    expat.ParserCreate().Parse(f"<!DOCTYPE a [<!ENTITY e0 'x'>{chain}]><a>&e59999;</a>", True)
    return "parsed"
`)
	if got := p.result(t, ""); got != "parsed" {
		t.Error(got)
	}
}

// TestPristine: what a task leaves is gone.
func TestPristine(t *testing.T) {
	p := handler(t, "seen = []\ndef handle(task):\n    seen.append(task.text)\n    return seen\n")
	for range 3 {
		if got := p.result(t, "x"); got != `["x"]` {
			t.Error(got)
		}
	}
}

// TestWarmTimers: a timer that the warm call leaves runs in no task.
func TestWarmTimers(t *testing.T) {
	p := setup(t, map[string]string{"handler.py": `
import asyncio
fired = []
async def handle(task):
    asyncio.get_running_loop().call_later(0.01, fired.append, task.text)
    if task.text != "warm": await asyncio.sleep(0.05)
    return fired
`}, runtime.Profile{Warm: []byte("warm")})
	for range 2 {
		if got := p.result(t, "task"); got != `["task"]` {
			t.Error(got)
		}
	}
}

// TestWarmTask: the warm call has no task, whose description is empty there.
func TestWarmTask(t *testing.T) {
	p := setup(t, map[string]string{"handler.py": `
seen = []
def handle(task):
    seen.append([task.id, task.queue, task.tenant, task.plugin, task.previous_error, task.parent, task.key, task.traceparent,
                 task.attempt, task.max_attempts, task.deadline])
    return seen[0]
`}, runtime.Profile{Warm: []byte("warm")})
	if got, want := p.result(t, "task"), `["","","","","","","","",0,0,null]`; got != want {
		t.Errorf("in the warm call it was %s, want %s", got, want)
	}
}

// TestRecursion: native recursion ends as RecursionError at the limit, and a higher limit within what the stack allows.
func TestRecursion(t *testing.T) {
	p := handler(t, `
import copy, functools, json, pickle, re, sys, ast
import xml.etree.ElementTree as tree
def nested(n):
    a = []
    for _ in range(n): a = [a]
    return a
class Call:
    def __getattr__(self, name): return getattr(self, name + "x")
class Equal:
    def __eq__(self, other): return self == other
class Add:
    def __add__(self, other): return self + other
    def __repr__(self): return f"{self!r}"
    def __hash__(self): return hash(self)
    def __call__(self, *a): return functools.partial(self)()
    def __iter__(self): return iter(sorted([self], key=lambda s: list(s)))
def mapped(x): return list(map(mapped, [x]))
def sorter(x): return sorted([1], key=sorter)
def regex(x): return re.sub("a", regex, "a")
def evaluate(x): return eval("evaluate(1)")
def wrapped(x): return functools.reduce(wrapped, [1, 2]) if True else 0
def imported(x): return json.loads("[1]", object_hook=None, parse_int=imported)
def maximum(x): return max([1, 2], key=maximum)
WORK = {
    "repr": lambda: repr(nested(10**5)), "json": lambda: json.loads("[" * 10**5), "dumps": lambda: json.dumps(nested(10**5)), "copy": lambda: copy.deepcopy(nested(10**5)),
    "pickle": lambda: pickle.dumps(nested(10**5)), "equal": lambda: nested(10**5) == nested(10**5), "getattr": lambda: Call().a, "eq": lambda: Equal() == 1,
    "add": lambda: Add() + 1, "str": lambda: repr(Add()), "hash": lambda: hash(Add()), "call": lambda: Add()(), "iter": lambda: list(Add()), "map": lambda: mapped(1),
    "sort": lambda: sorter(1), "regex": lambda: regex("a"), "eval": lambda: evaluate(1), "hook": lambda: imported(1), "max": lambda: maximum(1),
    "re": lambda: re.compile("(" * 10**4 + ")" * 10**4), "rematch": lambda: re.match("(?:(?:a|b)*?c)*", "ab" * 10**5), "ast": lambda: ast.literal_eval("-" * 10**5 + "1"), "source": lambda: eval("(" * 10**5 + ")" * 10**5),
    "source2": lambda: eval("+".join("1" * 1 for _ in range(10**5))), "source3": lambda: eval("[" * 90 + "]" * 90), "source4": lambda: eval("not " * 10**4 + "1"), "source5": lambda: eval("a" + ".a" * 10**5), "source6": lambda: eval("lambda:" * 10**4 + "1"),
    "xml": lambda: len(tree.tostring(tree.fromstring("<a>" * 10**4 + "</a>" * 10**4))), "tuple": lambda: hash(functools.reduce(lambda a, _: (a,), range(10**5), ())), "isinstance": lambda: isinstance(1, functools.reduce(lambda a, _: (a,), range(10**5), int) if 0 else functools.reduce(lambda a, _: (a,), range(10**5), (str,))),
}
def handle(task):
    name, _, limit = task.text.partition(" ")
    if limit: sys.setrecursionlimit(int(limit))
    try: WORK[name]()
    except (RecursionError, MemoryError, OverflowError, NameError, SyntaxError, ValueError) as error: return f"{type(error).__name__}: {error}"[:100]
    return "no error"
`)
	for _, limit := range []string{"", " 2000", " 100000"} {
		for _, name := range []string{
			"repr", "json", "dumps", "copy", "pickle", "equal", "getattr", "eq", "add", "str", "hash", "call", "iter", "map", "sort", "regex", "eval", "hook", "max",
			"re", "rematch", "ast", "source", "source2", "source3", "source4", "source5", "source6", "xml", "tuple", "isinstance",
		} {
			r := p.run(t, name+limit)
			if r.Kind == runtime.Trap {
				t.Errorf("%s%s: %s %s", name, limit, r.Kind, r.Message)
			}
			t.Logf("%s%s: %s %s %s", name, limit, r.Kind, r.Output, r.Message)
		}
	}
}

// TestNoSecretIsCut: what a handler says that is too long is cut by the host alone, which leaves nothing of a secret. The places
// are those where the SDK cut texts, and those where the host does.
func TestNoSecretIsCut(t *testing.T) {
	p := handler(t, `
import logging, quern
def handle(task):
    way, before = task.text.split()
    text = "x" * int(before) + quern.secret("tok") + "y" * 5000
    if way == "error": raise ValueError(text)
    if way == "lines": raise ValueError("x\n" * int(before) + quern.secret("tok") + "\ny" * 5000)
    if way == "fatal": raise quern.Fatal(text)
    if way == "cause":
        try: raise KeyError(text)
        except KeyError as error: raise ValueError("x") from error
    if way == "log": logging.info(text)
    if way == "fields": logging.info("xxx", extra={"a": "b" * 3000, "text": "x" * int(before) + quern.secret("tok")})
    if way == "print": print(text)
    if way == "progress": quern.progress(0.5, text)
    if way == "name": raise type(text, (Exception,), {})("x")
`)
	tested := 0
	for _, secret := range []string{"QZKWJVQZ", "QZKWJVXGQYZKWJVQ"} {
		for _, way := range []string{"error", "lines", "fatal", "cause", "log", "fields", "print", "progress", "name"} {
			for _, place := range []int{100, 240 - len("ValueError: "), 400 - len("ValueError: "), 1000, 1024, 4000, 4093, 4096, 8192, 65536} {
				for _, inside := range []int{1, 7, len(secret) - 1} {
					said := ""
					r := p.call(t, runtime.Call{
						Input:    fmt.Appendf(nil, "%s %d", way, place-inside),
						Services: service.Services{Secrets: secrets(secret)}, Progress: func(_ float64, message string) { said += message },
					})
					all := r.Message + r.Stderr + r.logged() + said
					if r.Kind == runtime.LimitExceeded || !strings.Contains(all, "xxx") && way != "lines" || strings.ContainsAny(strings.ReplaceAll(all, "[secret tok]", ""), "QZJ") {
						t.Errorf("%s with a secret of %d bytes, %d of them before %d: %s %.3000q\nlog %.9000q, %q", way, len(secret), inside, place, r.Kind, r.Message, r.log, said)
					}
					tested++
				}
			}
		}
	}
	t.Logf("%d texts", tested)
}

// secrets has one value for any name.
type secrets string

func (s secrets) Secret(context.Context, string) ([]byte, error) { return []byte(s), nil }

// TestFormatsWhatIsShown: an exception's text of millions of lines costs as little as one of a few.
func TestFormatsWhatIsShown(t *testing.T) {
	p := setup(t, map[string]string{"handler.py": `
import quern
WORK = {"error": ValueError, "fatal": quern.Fatal, "cause": RuntimeError, "group": lambda text: ExceptionGroup("many", [ValueError(text), ValueError("last")])}
def handle(task):
    error = WORK[task.text]("line\n" * 5_000_000)
    if task.text == "cause": raise ValueError("short") from error
    raise error
`}, runtime.Profile{Limits: runtime.Limits{CPU: time.Second, Memory: 256 << 20}})
	for input, want := range map[string]string{
		"error": "ValueError [handler.py:7 in handle]: line\nline\n", "fatal": "line\nline\n",
		"cause": "ValueError: short [handler.py:6 in handle]\n", "group": "ExceptionGroup: many (2 sub-exceptions) [handler.py:7 in handle]\n",
	} {
		if r := p.run(t, input); !strings.HasPrefix(r.Message, want) {
			t.Errorf("%s: %s %.200q, %d lines of the log; want %q", input, r.Kind, r.Message, len(r.log), want)
		}
	}
}

// TestProcessTime: it is in seconds, and recursion is as deep as elsewhere.
func TestProcessTime(t *testing.T) {
	p := handler(t, `
import os, sys, time
def deep(n): return n and 1 + deep(n - 1)
def handle(task):
    began = time.monotonic(), time.process_time(), os.times().user, os.times().elapsed
    while time.monotonic() < began[0] + 0.01: pass
    took = [now - then for now, then in zip((time.monotonic(), time.process_time(), os.times().user, os.times().elapsed), began)]
    return [max(took) < min(took) + 30, min(took) > 0.005, sys.getrecursionlimit(), deep(900)]
`)
	if got := p.result(t, ""); got != "[true,true,1000,900]" {
		t.Error(got)
	}
}

// TestLeastLimits: the engine starts with as little memory as it declares, so that less is refused at load, and however little
// its tasks may burn.
func TestLeastLimits(t *testing.T) {
	least := need(t).Info().MemoryMin
	if err := need(t).Admits(runtime.Limits{Memory: least - 1}); err == nil || !strings.Contains(err.Error(), "limits.memory") {
		t.Errorf("with less memory: %v", err)
	}
	p := setup(t, map[string]string{"handler.py": "def handle(task): return 'ok'\n"}, runtime.Profile{Limits: runtime.Limits{Memory: least, CPU: 10 * time.Millisecond}})
	if got := p.result(t, ""); got != "ok" {
		t.Error(got)
	}
}
