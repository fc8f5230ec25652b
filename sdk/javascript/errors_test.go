package javascript_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/javascript"
)

// TestErrors: what becomes of a task that fails, and its error. An error that ends in … is a prefix.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, source string
		kind         runtime.OutcomeKind
		code         int
		want         string
	}{
		{
			"Error", "export default function run(task) {\n  throw new TypeError('no ink');\n}", runtime.Failed, 1,
			"TypeError: no ink\n    at run (handler.js:2:9)",
		},
		{
			"Async", "export default async (task) => {\n  await null;\n  throw new Error('no ink');\n}", runtime.Failed, 1,
			"Error: no ink\n    at default (handler.js:3:9)",
		},
		{
			"Async callers", "async function inner() {\n  await null;\n  return new Response('ok').json();\n}\nconst middle = async () => await inner();\n" +
				"export default async () => {\n  return (await middle().then((x) => x)).a;\n}", runtime.Failed, 1,
			"SyntaxError: the body is not JSON: it begins with \"ok\" (unexpected token: 'ok')\n    at inner (handler.js:3:29)\n    at middle (handler.js:5:34)\n    at default (handler.js:7:26)",
		},
		{
			"Not a function", "const kv = () => ({});\nexport default function run() {\n  return kv('a').incr('x');\n}", runtime.Failed, 1,
			"TypeError: kv(...).incr is not a function\n    at run (handler.js:3:18)",
		},
		{"Not a function of a task", "export default (job) => job.jsn().id", runtime.Failed, 1, "TypeError: job.jsn is not a function: did you mean json?\n    at default (handler.js:1:29)"},
		{"Not a function of a bucket", "import { kv } from '@quern/sdk';\nexport default () => kv('a').gett('b')", runtime.Failed, 1, "TypeError: kv(...).gett is not a function: did you mean get?…"},
		{"Not a function of the user's", "const kit = { list: [{}] };\nexport default () => kit.list[0]?.jsn(1).a", runtime.Failed, 1, "TypeError: kit.list[0]?.jsn is not a function\n…"},
		{"Not a function by a name", "const ink = 5;\nexport default () => [ink(1)]", runtime.Failed, 1, "TypeError: ink is not a function\n…"},
		{"Not a function in a native one", "export default () => [1].map(5).length", runtime.Failed, 1, "TypeError: not a function: near [1].map(\n…"},
		{"Not a function of the user's message", "export default () => { throw new TypeError('not a function') }", runtime.Failed, 1, "TypeError: not a function\n…"},
		{"Not a constructor", "const Ink = () => 1;\nexport default () => new Ink(1).a", runtime.Failed, 1, "TypeError: Ink is not a constructor\n…"},
		{"Job of BullMQ", "export default (job) => job.updateProgress(50)", runtime.Failed, 1, "TypeError: a task has no updateProgress: use progress(0.5) of @quern/sdk\n…"},
		{"Data of BullMQ", "export default (job) => job.data.id", runtime.Failed, 1, "TypeError: a task has no data: use task.json()\n…"},
		{"JSON", "export default () => JSON.parse('ok')", runtime.Failed, 1, "SyntaxError: unexpected token: 'ok'\n    at default (handler.js:1:…"},
		{
			"Stack", "export default function run() {\n  return new TypeError('no\\n    at ink').stack;\n}", runtime.Complete, 0,
			"TypeError: no\n    at ink\n    at run (handler.js:2:10)",
		},
		{"Text", "export default () => { throw 'no ink' }", runtime.Failed, 1, "no ink"},
		{"Object", "export default () => { throw { ink: 0 } }", runtime.Failed, 1, `thrown: {"ink":0}`},
		{"Undefined", "export default () => { throw undefined }", runtime.Failed, 1, "thrown: undefined"},
		{
			"Call over several lines", "const ink = (a, b) => { throw new Error('no ink') };\nexport default function run(task) {\n  return ink(\n    task.id,\n    String(1),\n    ...[task.queue],\n  ).a;\n}", runtime.Failed, 1,
			"Error: no ink\n    at ink (handler.js:1:31)\n    at run (handler.js:3:10)",
		},
		{
			"Method", "const kit = { ink(a) { throw new Error(a) } };\nexport default function run(task) {\n  return kit\n    .ink(\n    'test').a;\n}", runtime.Failed, 1,
			"Error: test\n    at ink (handler.js:1:30)\n    at run (handler.js:4:6)",
		},
		{
			"Cause", "export default function run() {\n  throw new Error('a', { cause: new RangeError('b') });\n}", runtime.Failed, 1,
			"Error: a\n    at run (handler.js:2:9)\ncaused by: RangeError: b\n    at run (handler.js:2:33)",
		},
		{"Retry", "import { Retry } from '@quern/sdk';\nexport default () => { throw new Retry('no paper', { delay: 1500.5 }) }", runtime.Retry, 75, "no paper"},
		{"Retry as cause", "import { Retry } from '@quern/sdk';\nexport default () => { throw new Error('a', { cause: new Retry('b') }) }", runtime.Retry, 75, "Error: a\n    at default (handler.js:2:30)\ncaused by: b"},
		{"Fatal", "import { Fatal } from '@quern/sdk';\nexport default async () => { throw new Fatal('no picture') }", runtime.Fatal, 65, "no picture"},
		{"Subclass", "import { Fatal } from '@quern/sdk';\nclass Mine extends Fatal {}\nexport default () => { throw new Mine('mine') }", runtime.Fatal, 65, "mine"},
		{
			"Subclass of Error", "class MyErr extends Error { code = 42 }\nclass Own extends MyErr {\n  constructor(a) { super(a + '!') }\n}\nexport default function run(task) {\n  throw new Own('mine');\n}", runtime.Failed, 1,
			"Error: mine!\n    at run (handler.js:6:9)",
		},
		{"Exit", "export default () => process.exit(1)", runtime.Failed, 1, "ReferenceError: process is not defined: a plugin has no process of Node: throw Fatal or Failure instead of process.exit…"},
		{
			"Retry with a bad delay", "import { Retry } from '@quern/sdk';\nexport default () => { throw new Retry('a', { delay: -1 }) }", runtime.Failed, 1,
			"RangeError: delay of Retry: -1: write milliseconds, 0 or more…",
		},
		{"Rejection", "export default async () => {\n  Promise.reject(new Error('lost'));\n  await null;\n  return 'done';\n}", runtime.Failed, 1, "unhandled rejection: Error: lost\n    at default (handler.js:2:18)"},
		{"Rejection of a plain function", "export default () => {\n  (async () => { throw new Error('lost') })();\n  return 'done';\n}", runtime.Failed, 1, "unhandled rejection: Error: lost…"},
		{"Rejection with a text", "export default async () => {\n  Promise.reject('lost');\n}", runtime.Failed, 1, "unhandled rejection: lost\n    at default (handler.js:2:11)"},
		{"Buffer", "export default () => Buffer.from('a')", runtime.Failed, 1, "ReferenceError: Buffer is not defined: use Uint8Array and TextEncoder…"},
		{"Timer that throws", "export default () => new Promise(() => setTimeout(() => { throw new Error('late') }))", runtime.Failed, 1, "Error: late…"},
		{"Microtask that throws", "export default () => { queueMicrotask(() => { throw new Error('soon') }) }", runtime.Failed, 1, "Error: soon…"},
		{"Never settled", "export default () => new Promise(() => {})", runtime.Failed, 1, "Error: the handler's promise is never settled: …"},
		{"Recursion", "function f(n) { return f(n + 1) + 1 }\nexport default () => f(0)", runtime.Failed, 1, "RangeError: Maximum call stack size exceeded\n    at f (handler.js:1:…"},
		{"Recursion through natives", "function f() { return [1].map(f) }\nexport default () => f()", runtime.Failed, 1, "RangeError: Maximum call stack size exceeded…"},
		{"Recursion of getters", "const o = { get a() { return JSON.stringify(this) } };\nexport default () => o.a", runtime.Failed, 1, "RangeError: Maximum call stack size exceeded…"},
		{"Recursion of a proxy", "let p = {}; for (let i = 0; i < 100000; i++) p = new Proxy(p, {});\nexport default () => p.a", runtime.Failed, 1, "RangeError: Maximum call stack size exceeded…"},
		{"Deep JSON", "export default () => JSON.parse('['.repeat(1e6))", runtime.Failed, 1, "…"},
		{"Deep expression", "export default () => eval('('.repeat(1e5))", runtime.Failed, 1, "…"},
		{"Pattern", "export default () => /(a+)+b/.test('a'.repeat(20)) ? 'yes' : 'no'", runtime.Complete, 0, "no"},
		{"No process", "export default () => typeof process + typeof require", runtime.Complete, 0, "undefinedundefined"},
		{"Function as result", "export default () => () => 1", runtime.Failed, 1, "TypeError: the result of the handler (handler.js:1:16) is a function, which JSON does not express: call it"},
		{"BigInt as result", "export default async () => 1n", runtime.Failed, 1, "TypeError: the result of the handler (handler.js:1:16) is a bigint, which JSON does not express: use String"},
		{"Map as result", "\nexport default function run() { return new Map([[1, 2]]) }", runtime.Failed, 1, "TypeError: the result of run (handler.js:2:16) is a Map, which JSON does not express: use Object.fromEntries"},
		{"BigInt in a result", "export default () => ({ a: [0, { 'b c': 1n }] })", runtime.Failed, 1, "TypeError: result.a[1][\"b c\"] of the handler (handler.js:1:16) is a bigint, which JSON does not express: use String"},
		{"BigInt in a body", "import { enqueue } from '@quern/sdk';\nexport default () => enqueue('a', { n: 1n })", runtime.Failed, 1, "TypeError: body.n is a bigint, which JSON does not express: use String\n    at default (handler.js:2:…"},
		{"NaN in a result", "export default () => ({ rates: [null, 0 / 0] })", runtime.Failed, 1, "TypeError: result.rates[1] of the handler (handler.js:1:16) is NaN, which JSON does not express: use null, or String"},
		{"Infinity as result", "export default () => 1 / 0", runtime.Failed, 1, "TypeError: the result of the handler (handler.js:1:16) is Infinity, which JSON does not express: use null, or String"},
		{"Null in a result", "export default () => ({ rates: [null, 1] })", runtime.Complete, 0, `{"rates":[null,1]}`},
		{"Circular result", "export default () => { const a = {}; a.a = a; return a }", runtime.Failed, 1, "TypeError: result.a of the handler (handler.js:1:16) contains itself, which JSON does not express: leave it out"},
		{"toJSON that throws", "export default () => ({ toJSON() { throw new TypeError('mine') } })", runtime.Failed, 1, "TypeError: mine\n    at toJSON (handler.js:1:…"},
		{"Long message", "export default () => { throw new Error('x'.repeat(10000)) }", runtime.Failed, 1, "Error [default (handler.js:1:…"},
		{"AggregateError", "export default () => Promise.any([Promise.reject(new Error('a'))])", runtime.Failed, 1, "AggregateError\n  * Error: a"},
		{"AggregateError without errors", "export default () => { const e = new AggregateError([], 'm'); e.errors = 5; throw e }", runtime.Failed, 1, "AggregateError: m\n    at default (handler.js:1:34)"},
		{
			"AggregateError of itself", "export default () => { const e = new AggregateError([], 'm'); e.errors = [e, e]; throw e }", runtime.Failed, 1,
			"AggregateError: m\n    at default (handler.js:1:34)\n  * AggregateError: m\n  * AggregateError: m",
		},
		{"Symbol as name", "export default () => { throw Object.assign(new Error('m'), { name: Symbol('n') }) }", runtime.Failed, 1, "Symbol(n): m\n    at default (handler.js:1:44)"},
		{
			"Getters that throw", odd + "export default () => { throw odd(new Error('m'), 'message', 'stack', 'cause', 'name') }", runtime.Failed, 1,
			"Error: (its text cannot be read)",
		},
		{"Stack that throws", odd + "export default () => { throw odd(new Error('m'), 'stack') }", runtime.Failed, 1, "Error: m"},
		{
			"Cause that throws", odd + "export default () => { throw odd(new Error('m', { cause: 0 }), 'cause') }", runtime.Failed, 1,
			"Error: m\n    at default (handler.js:2:34)",
		},
		{"Proxy", "export default () => { throw new Proxy(new Error('m'), { get() { throw 7 }, getPrototypeOf() { throw 7 } }) }", runtime.Failed, 1, "(its text cannot be read)"},
		{"Object without text", "export default () => { throw { toJSON() { throw 7 }, get [Symbol.toStringTag]() { throw 7 } } }", runtime.Failed, 1, "(its text cannot be read)"},
		{
			"Retry with an odd delay", "import { Retry } from '@quern/sdk';\n" + odd + "export default () => { throw odd(new Retry('a'), 'delay', 'stack') }",
			runtime.Retry, 75, "a",
		},
		{"Bad input", "export default (task) => task.json()", runtime.Fatal, 65, "the input is not JSON: …"},
		{"Progress of NaN", "import { progress } from '@quern/sdk';\nexport default () => progress(NaN)", runtime.Failed, 1, "QuernError: progress: invalid: NaN: use 0 to 1, such as 0.5 (EINVAL)…"},
		{"Await at the top", "const a = await Promise.resolve('top');\nawait new Promise((done) => setTimeout(done, 5));\nexport default () => a", runtime.Complete, 0, "top"},
		{"Timer of the start", "setTimeout(() => { throw new Error('never') }, 1e6);\nexport default () => new Promise((done) => setTimeout(done, 1, 'ok'))", runtime.Complete, 0, "ok"},
		{
			"SDK's names", "import * as sdk from '@quern/sdk';\nexport default () => Object.keys(sdk).sort()", runtime.Complete, 0,
			`["Failure","Fatal","QuernError","Retry","SQLError","checkpoint","config","database","enqueue","http","kv","log","progress","publish","secrets"]`,
		},

		{"Start: throws", "\nconst a = {};\na.b.c = 1;\nexport default () => {}", runtime.Failed, 1, "the plugin did not start: TypeError: cannot set property 'c' of undefined\n    at <anonymous> (handler.js:3:1)"},
		{"Start: syntax", "export default () => {\n  let = 3 +;\n}", runtime.Failed, 1, "the plugin did not start: SyntaxError: …"},
		{"Start: no default", "export const a = 1", runtime.Failed, 1, "the plugin did not start: TypeError: handler.js exports no default: write export default function (task) { ... }"},
		{"Start: no function", "export default 5", runtime.Failed, 1, "the plugin did not start: TypeError: handler.js exports a default of type number: …"},
		{"Start: import of Node", "import fs from 'node:fs';\nexport default () => {}", runtime.Failed, 1, "the plugin did not start: ReferenceError: there is no module \"node:fs\": Node's own modules do not exist here…"},
		{"Start: import", "import a from 'left-pad';\nexport default () => {}", runtime.Failed, 1, "the plugin did not start: ReferenceError: there is no module \"left-pad\": bundle it into handler.js…"},
		{"Start: unknown name", "import { nothing } from '@quern/sdk';\nexport default () => {}", runtime.Failed, 1, "the plugin did not start: SyntaxError: @quern/sdk has no nothing: it has Failure, Fatal, QuernError, Retry, SQLError, checkpoint, config, database, enqueue, http, kv, log, progress, publish, secrets…"},
		{"Start: never settled", "await new Promise(() => {});\nexport default () => {}", runtime.Failed, 1, "the plugin did not start: Error: an await at the top level of the module is never settled…"},
		{"Start: rejection", "Promise.reject(new Error('lost'));\nexport default () => {}", runtime.Failed, 1, "the plugin did not start: unhandled rejection: Error: lost\n    at <anonymous> (handler.js:1:16)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := write(t, test.source).run(runtime.Call{})
			got := o.Message
			if o.Kind == runtime.Complete {
				got = string(o.Output)
			}
			if o.Kind != test.kind || o.Code != test.code || !like(got, test.want) {
				t.Errorf("%s %d %q, want %s %d %q\nlog: %s", o.Kind, o.Code, got, test.kind, test.code, test.want, strings.Join(o.log, "\n"))
			}
			if test.name == "Retry" && o.RetryAfter != 1501*time.Millisecond {
				t.Errorf("again after %v", o.RetryAfter)
			}
		})
	}
}

// odd defines a function that gives an error getters that throw.
const odd = "const odd = (e, ...names) => (names.forEach((name) => Object.defineProperty(e, name, { get() { throw 7 } })), e);\n"

// like compares with a text that may end in …, which stands for any.
func like(got, want string) bool {
	if prefix, ok := strings.CutSuffix(want, "…"); ok && strings.HasPrefix(got, prefix) {
		return true
	}
	return got == want
}

func TestNoHandler(t *testing.T) {
	t.Parallel()
	p := write(t, "")
	delete(p.files, "/app/handler.js")
	o := p.run(runtime.Call{})
	if want := "the plugin did not start: Error: there is no /app/handler.js: build the plugin with quern plugin build"; o.Kind != runtime.Failed || o.Message != want {
		t.Errorf("%s %q", o.Kind, o.Message)
	}
}

// TestMemory: a handler that needs more than limits.memory fails, and the error says so; the next task is not affected.
func TestMemory(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"Objects": `const all = []; for (;;) all.push({ a: all.length });`,
		"Strings": `const all = []; for (;;) all.push("x".repeat(100000) + all.length);`,
		"Bytes":   `const all = []; for (;;) all.push(new Uint8Array(1 << 20));`,
		"Closure": `let f = () => 1; for (;;) { const g = f; f = () => g; }`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := handler(t, `if (task.text() === "ok") return "ok";`+body)
			p.Limits.Memory = 32 << 20
			pool := p.bind()
			o := p.runIn(pool, runtime.Call{})
			if o.Kind != runtime.LimitExceeded || o.Limit.Name != "memory" {
				t.Errorf("%s: %s", o.Kind, o.Message)
			}
			if !strings.Contains(o.Message, "InternalError [default (handler.js:1:") {
				t.Errorf("it does not say where: %s", o.Message)
			}
			if o := p.runIn(pool, runtime.Call{Input: []byte("ok")}); string(o.Output) != "ok" {
				t.Errorf("then: %s: %s", o.Kind, o.Message)
			}
		})
	}
}

// TestStillRunning: a handler that the host stops is told with the place in the source, however it is kept busy. Between jobs no
// function runs.
func TestStillRunning(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"For":        "export default function run() {\n  let n = 0;\n  for (;;) {\n    n++;\n  }\n}",
		"While":      "export default function run() {\n  let n = 0;\n  while (\n    n >= 0) n = (n + 1) % 7;\n}",
		"Callback":   "const spin = () => {\n  let a = 0;\n  do\n    a ^= 1;\n  while (true);\n};\nexport default (task) => spin();",
		"Async":      "export default async function run() {\n  await null;\n\n  for (;;) await null;\n}",
		"RegExp":     "export default function run() {\n  const text = 'a'.repeat(40);\n\n  return /^(a|a)*$/.test(text + 'b');\n}",
		"Microtasks": "export default function run() {\n  const again = () =>\n\n    queueMicrotask(again);\n  again();\n}",
		"Log":        "export default function run() {\n  for (let n = 0; ; n++)\n\n    console.log(n, 'x'.repeat(100));\n}",
		"Sort":       "export default function run() {\n  const all = [3, 1, 2];\n\n  for (;;) all.sort((a, b) => a - b);\n}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := write(t, source)
			p.Limits.Timeout = 2 * time.Second
			limit := "timeout"
			switch name {
			case "While":
				p.Limits, limit = runtime.Limits{CPU: 3 * time.Second}, "cpu"
			case "Log":
				p.Limits, limit = runtime.Limits{Log: 8 << 10}, "log"
			}
			o := p.run(runtime.Call{})
			if o.Kind != runtime.LimitExceeded || o.Limit.Name != limit || !strings.Contains(o.Message, ", or raise limits.") ||
				!regexp.MustCompile(` exceeded at or after (callbacks that queue others|\w* ?\(?handler\.js:4:)`).MatchString(o.Message) {
				t.Errorf("%s: %s", o.Kind, o.Message)
			}
			if len(o.Backtrace) == 0 || strings.HasPrefix(o.Backtrace[0], "or ") {
				t.Errorf("frames %q", o.Backtrace)
			}
		})
	}
}

// TestStillWaiting: a handler that the host stops while it waits is told with what it waits for. A wait that is over is not.
func TestStillWaiting(t *testing.T) {
	t.Parallel()
	const timer = "setTimeout < <anonymous> (handler.js:2:"
	for name, test := range map[string]struct{ body, want string }{
		"Timer":    {"await sleep(3600000)", timer},
		"Polls":    {"for (;;) await sleep(9)", timer},
		"Interval": {"setInterval(() => {}, 10); await new Promise(() => {})", "setInterval (the handler's promise is not settled) < run (handler.js:4:"},
		"Fetch":    {"await fetch('http://a.example/b?key=c')", "GET http://a.example/b: "},
		"After":    {"await sleep(1000); await fetch('http://a.example/ok'); await sleep(3600001)", timer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := write(t, "const sleep = (ms) => new Promise((resolve) =>\n  setTimeout(resolve, ms));\nexport default async function run() {\n  "+test.body+";\n}")
			p.Limits.Timeout = 3 * time.Second
			o := p.run(runtime.Call{Services: service.Services{HTTP: stuck{}}})
			if o.Limit.Name != "timeout" || !strings.HasPrefix(strings.Replace(o.Message, " at or after ", " at ", 1), "timeout of 3s exceeded at "+test.want) {
				t.Errorf("%s: %s", o.Kind, o.Message)
			}
		})
	}
}

// stuck answers requests of /ok alone.
type stuck struct{}

func (stuck) Do(ctx context.Context, r service.Request) (service.Response, error) {
	if strings.HasSuffix(r.URL, "/ok") {
		return service.Response{Status: 200}, nil
	}
	<-ctx.Done()
	return service.Response{}, ctx.Err()
}

// TestPristine: no task sees what another has done, and random numbers and times are its own.
func TestPristine(t *testing.T) {
	t.Parallel()
	for _, warm := range []bool{false, true} {
		p := write(t, `
			let count = 0; Math.random(); performance.now(); const start = Date.now();
			export default () => [++count, Math.random(), crypto.randomUUID(), performance.now() < 1000, Date.now() >= start]`)
		if warm {
			p.Warm = []byte{}
		}
		pool := p.bind()
		seen := map[string]bool{}
		for range 20 {
			o := p.runIn(pool, runtime.Call{})
			result, count := string(o.Output), "[1,"
			if warm {
				count = "[2,"
			}
			if seen[result] || !strings.HasPrefix(result, count) || !strings.HasSuffix(result, ",true,true]") {
				t.Fatalf("%s: %s %q", o.Kind, o.Message, result)
			}
			seen[result] = true
		}
	}
}

// TestWarm: a timer that the warm call leaves is no task's.
func TestWarm(t *testing.T) {
	t.Parallel()
	p := handler(t, `
		if (task.text() === "warm") {
			setTimeout(() => { throw new Error("left") }, 10);
			return;
		}
		await new Promise((done) => setTimeout(done, 20));
		return "ok";`)
	p.Warm = []byte("warm")
	pool := p.bind()
	for range 3 {
		if o := p.runIn(pool, runtime.Call{}); string(o.Output) != "ok" {
			t.Errorf("%s: %s\n%s", o.Kind, o.Message, strings.Join(o.log, "\n"))
		}
	}
}

// TestWarmTask: the warm call has no task, whose description is empty there.
func TestWarmTask(t *testing.T) {
	t.Parallel()
	p := write(t, `let seen; export default (task) => { seen ??= task.toJSON(); return seen; }`)
	p.Warm = []byte{}
	o := p.runIn(p.bind(), runtime.Call{TaskID: "task", Queue: "q", Attempt: 1})
	want := `{"id":"","queue":"","tenant":"","plugin":"","attempt":0,"maxAttempts":0,"reschedules":0,"key":"","parent":"","previousError":"","traceparent":"","headers":{}}`
	if string(o.Output) != want {
		t.Errorf("in the warm call it was %s, want %s: %s", o.Output, want, o.Message)
	}
}

// esbuild bundles an entry point of testdata by the program of npm, with its source map. What `quern plugin build` does beside
// is tested in cmd/quern.
func esbuild(t testing.TB, entry string) *plugin {
	t.Helper()
	binary(t)
	tools, err := filepath.Abs("../../build/engines/downloads/npm-javascript")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(tools, "node_modules/.bin/esbuild"), entry, "--bundle", "--format=esm", "--target=es2023",
		"--sourcemap=external", "--external:@quern/sdk", "--outfile="+filepath.Join(dir, "handler.js"), "--log-level=warning",
		"--minify-whitespace", "--minify-syntax")
	cmd.Dir = dir // sources are named relative to the bundle
	cmd.Env = append(cmd.Environ(), "NODE_PATH="+packages(t))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("esbuild %s: %v\n%s", entry, err, said)
	}
	p := write(t, readAll(t, filepath.Join(dir, "handler.js")))
	if p.files[javascript.PositionsFile], err = javascript.Positions([]byte(readAll(t, filepath.Join(dir, "handler.js.map")))); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSourceMap(t *testing.T) {
	t.Parallel()
	p := esbuild(t, "mapped/handler.ts")
	o := p.run(runtime.Call{Input: []byte(`{"name":"Ada"}`)})
	if want := "TypeError: Ada has no ink\n    at check (mapped/ink.ts:8:9)\n    at greet (mapped/handler.ts:10:3)\n    at handle (mapped/handler.ts:16:10)"; o.Message != want {
		t.Errorf("%q, want %q", o.Message, want)
	}
	p.files[javascript.PositionsFile] = []byte("quernpos\xff\xff\xff\xff")
	if o := p.run(runtime.Call{Input: []byte(`{"name":"Ada"}`)}); !strings.HasPrefix(o.Message, "TypeError: Ada has no ink\n    at ") || !strings.Contains(o.Message, "(handler.js:1:") {
		t.Errorf("%q", o.Message)
	}
}

// TestErrorFuel: an error of a handler with npm packages costs little, however often its stack is read.
func TestErrorFuel(t *testing.T) {
	t.Parallel()
	p := esbuild(t, "mapped/bundled.ts")
	if o := p.run(runtime.Call{Input: []byte("number")}); o.Kind != runtime.Complete || o.Fuel > 1e6 {
		t.Errorf("a number as result: %d fuel: %s", o.Fuel, o.Message)
	}
	for input, most := range map[string]int64{"throw": 2e6, "1": 2e6, "11": 4e6} {
		o := p.run(runtime.Call{Input: []byte(input)})
		if text := o.Message + string(o.Output); !strings.Contains(text, "at run (mapped/bundled.ts:7:17)") || o.Fuel > most {
			t.Errorf("%s: %d fuel, want at most %d: %s", input, o.Fuel, most, text)
		}
	}
}

// TestNoSecretIsCut: what a handler says that is too long is cut by the host alone, which leaves nothing of a secret. The places
// are those where the SDK cut texts, and those where the host does.
func TestNoSecretIsCut(t *testing.T) {
	t.Parallel()
	p := write(t, `
import { Fatal, Retry, log, progress, secrets } from "@quern/sdk";
const ways = {
  error: (text) => { throw new Error(text); }, fatal: (text) => { throw new Fatal(text); }, retry: (text) => { throw new Retry(text); },
  thrown: (text) => { throw text; }, object: (text) => { throw { text }; }, cause: (text) => { throw new Error("xxx", { cause: new Error(text) }); },
  many: (text) => { throw new AggregateError([new Error(text)], "xxx"); }, rejected: (text) => { Promise.reject(new Error(text)); },
  log: (text) => log.info(text), console: (text) => console.error(text), progress: (text) => progress(0.5, text),
  name: (text) => { const error = new Error("xxx"); error.name = text; throw error; },
};
export default (task) => {
  const [way, before] = task.text().split(" ");
  ways[way]("x".repeat(before) + secrets.get("tok") + "y".repeat(5000));
};`)
	pool, tested := p.bind(), 0
	for _, secret := range []string{"QZKWJVQZ", "QZKWJVXGQYZKWJVQ"} {
		for _, way := range strings.Fields("error fatal retry thrown object cause many rejected log console progress name") {
			for _, place := range []int{100, 400 - len("Error: "), 1024, 1300, 2000 - len("Error: "), 2000, 4096 - len("Error: "), 4096, 8192, 65536} {
				for _, inside := range []int{1, 7, len(secret) - 1} {
					said := ""
					o := p.runIn(pool, runtime.Call{
						Input:    fmt.Appendf(nil, "%s %d", way, place-inside),
						Services: service.Services{Secrets: onlySecret(secret)}, Progress: func(_ float64, message string) { said += message },
					})
					all := o.Message + o.Stderr + strings.Join(o.log, "\n") + said
					if o.Kind == runtime.LimitExceeded || !strings.Contains(all, "xxx") || strings.ContainsAny(strings.ReplaceAll(all, "[secret tok]", ""), "QZJ") {
						t.Errorf("%s with a secret of %d bytes, %d of them before %d: %s %.3000q\nlog %.9000q, %q", way, len(secret), inside, place, o.Kind, o.Message, o.log, said)
					}
					tested++
				}
			}
		}
	}
	t.Logf("%d texts", tested)
}

// onlySecret has one value for any name.
type onlySecret string

func (s onlySecret) Secret(context.Context, string) ([]byte, error) { return []byte(s), nil }
