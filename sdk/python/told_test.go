package python_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
)

// TestLost: a task of asyncio that failed, and that nothing has awaited, fails the handler.
func TestLost(t *testing.T) {
	p := handler(t, `
import asyncio, quern
kept = set()
async def bad(): raise KeyError("lost")
async def fatal(): raise quern.Fatal("never")
async def start(work, keep=False):
    task = asyncio.create_task(work())
    if keep: kept.add(task)
    del task
    await asyncio.sleep(0.001)
    return "done"
async def awaited():
    task = asyncio.create_task(bad())
    try: await task
    except KeyError: return "caught"
async def gathered(): return str(await asyncio.gather(bad(), bad(), return_exceptions=True))
async def cancelled():
    asyncio.create_task(asyncio.sleep(60)).cancel()
    await asyncio.sleep(0)
    return "cancelled"
async def own():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: print("handled", context["exception"]))
    return await start(bad)
async def both():
    await start(bad)
    raise ValueError("first")
WORK = {
    "dropped": lambda: start(bad), "kept": lambda: start(bad, True), "sync": lambda: asyncio.run(start(bad)), "fatal": lambda: start(fatal),
    "sync kept": lambda: asyncio.run(start(bad, True)), "awaited": awaited, "gathered": gathered, "cancelled": cancelled, "own": own, "both": both,
}
def handle(task): return WORK[task.text]()
`)
	const lost = "a task of asyncio that nothing has awaited failed: KeyError: 'lost' [handler.py:4 in bad]\nTraceback (most recent call last):\n"
	for input, want := range map[string]struct {
		kind runtime.OutcomeKind
		says string
	}{
		"dropped": {runtime.Failed, lost}, "kept": {runtime.Failed, lost}, "sync": {runtime.Failed, lost}, "sync kept": {runtime.Failed, lost},
		"fatal":   {runtime.Fatal, "a task of asyncio that nothing has awaited failed: never"},
		"awaited": {runtime.Complete, "caught"}, "gathered": {runtime.Complete, "[KeyError('lost'), KeyError('lost')]"},
		"cancelled": {runtime.Complete, "cancelled"}, "own": {runtime.Complete, "done"},
		"both": {runtime.Failed, "ValueError: first [handler.py:"},
	} {
		for range 2 { // each task starts without what the last one has lost
			r := p.run(t, input)
			if got := string(r.Output) + r.Message; r.Kind != want.kind || !strings.HasPrefix(got, want.says) {
				t.Errorf("%s: %s %s\nwant %s %s\n%s", input, r.Kind, got, want.kind, want.says, r.logged())
			}
			if logs := slices.Contains(r.log, "error: KeyError: 'lost'"); logs != (input == "both") {
				t.Errorf("%s: its log\n%s", input, r.logged())
			}
		}
	}
}

// TestResultNotJSON: a result that JSON does not express is named by its path and its function.
func TestResultNotJSON(t *testing.T) {
	p := handler(t, `
import datetime, decimal
loop = {"a": []}
loop["a"].append(loop)
deep = []
for _ in range(100_000): deep = [deep]
class Odd:
    def isoformat(self): raise ValueError("odd")
async def work(): pass
WORK = {
    "object": object(), "nested": {"a": [1, {"b-c": object()}]}, "set": {"a": {1}}, "date": {"at": datetime.date(2026, 1, 2), "n": decimal.Decimal("1.5")},
    "bytes": [b""], "nan": {"a": [float("nan")]}, "loop": loop, "deep": deep, "key": [{(1, 2): 3}], "function": len, "odd": Odd(),
}
def handle(task):
    return {"a": work()} if task.text == "coroutine" else WORK[task.text]
`)
	const of = "TypeError: the result of handle (handler.py:14)"
	for input, want := range map[string]string{
		"object": of + " is of the Python type object, which JSON does not express: use str(…)",
		"nested": of + ".a[1]['b-c'] is of the Python type object, which JSON does not express: use str(…)",
		"set":    `{"a":[1]}`, "date": `{"at":"2026-01-02","n":"1.5"}`,
		"bytes":     of + "[0] is a bytes, which JSON does not express: use ….decode()",
		"nan":       "ValueError: the result of handle (handler.py:14).a[0] is nan, which JSON does not express: use None, or str(…)",
		"loop":      "ValueError: the result of handle (handler.py:14).a[0] contains itself, which JSON does not express: leave it out",
		"deep":      "ValueError: the result of handle (handler.py:14) has more than 900 values in each other: make it flatter",
		"key":       of + "[0] has the key (1, 2), which JSON does not express: use a str",
		"function":  of + " is a builtin_function_or_method, which JSON does not express: use str(…)",
		"odd":       "ValueError: odd",
		"coroutine": of + ".a is a coroutine, which JSON does not express: use await …",
	} {
		r := p.run(t, input)
		if got := strings.TrimPrefix(string(r.Output)+r.Message, ""); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s\nwant %s", input, got, want)
		}
	}
}

// TestUnknown: a name that quern does not have, and a module that nobody has, at the top and within the handler.
func TestUnknown(t *testing.T) {
	for source, want := range map[string]string{
		"from quern import Retri":                       "ImportError: quern has no 'Retri': did you mean 'Retry'?",
		"from quern import nothing":                     "ImportError: quern has no 'nothing': it has Bucket, Column, Database, Dependency, Failure, Fatal, Retry, ",
		"import quern; quern.fatal":                     "AttributeError: quern has no 'fatal': did you mean 'Fatal'?",
		"import numpi":                                  "ModuleNotFoundError: No module named 'numpi': list its package in requirements.txt, and build the plugin again",
		"import numpy.linalg":                           "ModuleNotFoundError: No module named 'numpy': numpy has native code, which a plugin cannot load, and no version without: use the module statistics, or a plugin in Go or C",
		"from redis import Redis":                       "ModuleNotFoundError: No module named 'redis': redis needs sockets, which a plugin does not have: use quern.kv, and grant capabilities.kv in the manifest",
		"import yaml":                                   "ModuleNotFoundError: No module named 'yaml': list pyyaml in requirements.txt, and build the plugin again",
		"from handel import x":                          "ModuleNotFoundError: No module named 'handel': list its package in requirements.txt, and build the plugin again",
		"import quern; quern.enqueue('a', countdown=1)": "TypeError: quern.enqueue has no option 'countdown': did you mean delay? (seconds, or a timedelta)",
		"import ssl":                                    "ModuleNotFoundError: No module named 'ssl' in a handler of Quern: the host speaks TLS: ",
	} {
		for place, p := range map[string]*plugin{
			"top": handler(t, source+"\ndef handle(task): pass\n"), "handler": handler(t, "def handle(task):\n    "+source+"\n"),
		} {
			r := p.run(t, "")
			message := strings.TrimPrefix(strings.TrimPrefix(r.Message, ""), "the plugin did not start: ")
			if !strings.HasPrefix(message, want) || !strings.Contains(message, "\n"+want) {
				t.Errorf("%s at %s: %s\nwant %s", source, place, r.Message, want)
			}
		}
	}
}

// TestMisspelled: a module of the plugin's own, and the function handle.
func TestMisspelled(t *testing.T) {
	for source, want := range map[string]string{
		"from prising import x\ndef handle(task): pass\n":   "ModuleNotFoundError: No module named 'prising': did you mean pricing (pricing.py)? [handler.py:1 in <module>]\n",
		"import tool\ndef handle(task): pass\n":             "ModuleNotFoundError: No module named 'tool': did you mean tools (tools)? [handler.py:1 in <module>]\n",
		"from quern import Retry\ndef handel(task): pass\n": "handler.py has no function handle: did you mean handel? rename it to handle",
		"def run(task): pass\n":                             "handler.py has no function handle: add def handle(task)",
	} {
		p := setup(t, map[string]string{"handler.py": source, "pricing.py": "", "tools/__init__.py": ""}, runtime.Profile{})
		if r := p.run(t, ""); !strings.HasPrefix(r.Message, "the plugin did not start: "+want) {
			t.Errorf("%q: %s\nwant %s", source, r.Message, want)
		}
	}
}

// TestTracebackOnce: the error has the traceback, without the SDK's frames; the log has only one that the error has no room for.
func TestTracebackOnce(t *testing.T) {
	p := handler(t, `
import quern
def long(): raise ValueError("x" * 10000)
WORK = {"short": lambda: {}["a"], "service": lambda: quern.secret("a"), "long": long}
def handle(task): WORK[task.text]()
`)
	for input, logs := range map[string]bool{"short": false, "service": false, "long": true} {
		r := p.run(t, input)
		if got := strings.Count(r.Message, "Traceback (most recent call last):"); r.Kind != runtime.Failed || !logs && got != 1 {
			t.Errorf("%s: %s, %d times in\n%s", input, r.Kind, got, r.Message)
		}
		if got := slices.Contains(r.log, "error: Traceback (most recent call last):"); got != logs {
			t.Errorf("%s: its log\n%s", input, r.logged())
		}
		if strings.Contains(r.Message, "/quern/") {
			t.Errorf("%s: frames of the SDK in\n%s", input, r.Message)
		}
	}
}

// TestWritesNoFiles is what a handler is told that writes a file.
func TestWritesNoFiles(t *testing.T) {
	p := handler(t, `
import os, pathlib, shutil, sqlite3, tempfile
def spooled():
    with tempfile.SpooledTemporaryFile() as file:
        file.write(b"ok")
        file.seek(0)
        return file.read()
WORK = {
    "open": lambda: open("x", "w"), "append": lambda: open("/app/handler.py", "a"), "path": lambda: pathlib.Path("x").write_text("x"),
    "mkdir": lambda: os.mkdir("/x"), "remove": lambda: os.remove("/app/handler.py"), "copy": lambda: shutil.copy("/app/handler.py", "/app/x"),
    "named": lambda: tempfile.NamedTemporaryFile(), "folder": lambda: tempfile.TemporaryDirectory(), "temporary": lambda: tempfile.TemporaryFile(),
    "spooled": spooled, "tmp": lambda: open("/tmp/a", "w"), "var": lambda: pathlib.Path("/var/log/a").write_text("x"), "deep": lambda: os.makedirs("/tmp/a/b"),
    "database": lambda: sqlite3.connect("/tmp/a.db").execute("create table a (b)"), "none": lambda: open("/tmp/a"),
}
def handle(task): return WORK[task.text]()
`)
	for _, input := range []string{"open", "append", "path", "mkdir", "remove", "copy", "named", "folder", "temporary", "tmp", "var", "deep"} {
		r := p.run(t, input)
		if r.Kind != runtime.Failed || !strings.Contains(r.Message, "a handler writes no files: use io.BytesIO") {
			t.Errorf("%s: %s %s", input, r.Kind, r.Message)
		}
	}
	if r := p.run(t, "database"); !strings.Contains(r.Message, "a handler writes no files: use sqlite3.connect(':memory:'), or quern.kv") {
		t.Errorf("database: %s", r.Message)
	}
	if r := p.run(t, "none"); !strings.Contains(r.Message, "FileNotFoundError") {
		t.Errorf("none: %s", r.Message)
	}
	if got := p.result(t, "spooled"); got != "ok" {
		t.Errorf("spooled: %s", got)
	}
}

// TestPlaceOfLimit: what reaches a limit is told by file and line.
func TestPlaceOfLimit(t *testing.T) {
	files := map[string]string{"handler.py": `import asyncio, re, time, lib
def spin():
    while True: pass
def deep(n): deep(n - 1) if n else spin()
def keep():
    kept = []
    while True: kept.append(bytes(1 << 20))
async def later():
    while True: pass
WORK = {
    "loop": spin, "library": lib.work, "recursion": lambda: deep(50), "native": lambda: re.match("(a+)+$", "a" * 40 + "b"), "memory": keep,
    "async": later,
}
def handle(task): return WORK[task.text]()
async def nap(): await asyncio.sleep(3600)
WORK["sleep"] = lambda: time.sleep(3600)
WORK["asyncio"] = lambda: asyncio.run(nap())
`, "lib.py": "def work():\n    n = 0\n    while True:\n        n += 1\n"}
	const remedy = ": let it compute less there, or raise limits.cpu in the plugin's manifest"
	p := setup(t, files, runtime.Profile{Limits: runtime.Limits{CPU: time.Second, Memory: 64 << 20}})
	for input, want := range map[string]struct{ begins, ends string }{
		"loop":      {"cpu limit of 1s exceeded at handler.py:3 in spin < handler.py:14 in handle", remedy},
		"library":   {"cpu limit of 1s exceeded at lib.py:", " in work < handler.py:14 in handle" + remedy},
		"recursion": {"cpu limit of 1s exceeded at handler.py:3 in spin < handler.py:4 in deep < (50 more) < handler.py:11 in <lambda> < handler.py:14 in handle", remedy},
		"native":    {"cpu limit of 1s exceeded at re/__init__.py:166 in match < handler.py:11 in <lambda> < handler.py:14 in handle", remedy},
		"async":     {"cpu limit of 1s exceeded at handler.py:9 in later", remedy},
		"memory":    {"memory limit of 64MiB reached: MemoryError [handler.py:7 in keep < handler.py:14 in handle]: let it keep less at a time, or raise limits.memory in the plugin's manifest to 128MiB\nTraceback (most recent call last):\n", "\nMemoryError"},
	} {
		r := p.run(t, input)
		if r.Kind != runtime.LimitExceeded || !strings.HasPrefix(r.Message, want.begins) || !strings.HasSuffix(r.Message, want.ends) {
			t.Errorf("%s: %s %s\nwant %s … %s", input, r.Kind, r.Message, want.begins, want.ends)
		}
		if input == "loop" && (!slices.Equal(r.Backtrace, []string{"handler.py:3 in spin", "handler.py:14 in handle"}) || r.Fuel < 1e9 || r.Fuel > 1.1e9) {
			t.Errorf("%s: %q, fuel %d", input, r.Backtrace, r.Fuel)
		}
	}
	if r := p.run(t, "loop"); !strings.HasPrefix(r.Message, "cpu limit of 1s exceeded at handler.py:3 in spin") { // the instance is as before
		t.Errorf("again: %s", r.Message)
	}
	p = setup(t, files, runtime.Profile{Limits: runtime.Limits{Timeout: patience}})
	const handle, computed = " < handler.py:14 in handle", " (it computed all the time: an endless loop?)"
	for input, place := range map[string]string{
		"loop":  "handler.py:3 in spin" + handle,
		"sleep": "handler.py:16 in <lambda>" + handle, "asyncio": "handler.py:17 in <lambda>" + handle,
	} {
		r := p.call(t, runtime.Call{Input: []byte(input), Timeout: 3 * time.Second})
		want := "timeout of 3s exceeded at " + place + ": let it end sooner there, or give the task a longer timeout"
		// A guest that got no processor may have waited for its turn.
		if !strings.HasPrefix(strings.Replace(r.Message, computed, "", 1), want) {
			t.Errorf("%s %s\nwant %s", r.Kind, r.Message, want)
		}
	}
	p = setup(t, map[string]string{"handler.py": "def table():\n    while True: pass\nTABLE = table()\ndef handle(task): pass\n"},
		runtime.Profile{Limits: runtime.Limits{CPU: time.Second}})
	r := p.run(t, "")
	if want := "before its first task: cpu limit of 10s exceeded at handler.py:2 in table < handler.py:3 in <module>: "; !strings.HasPrefix(r.Message, want) {
		t.Errorf("at import: %s %s\nwant %s", r.Kind, r.Message, want)
	}
}
