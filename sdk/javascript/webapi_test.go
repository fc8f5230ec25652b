package javascript_test

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the engine has it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"hash"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
)

// webAPI are the lines of README.md's table of Web APIs, by the names that the table has. Each is a handler's body; check(got,
// want) compares by JSON.
var webAPI = map[string]string{
	"console": `
		console.log("a", 1, { b: [1, "x"], m: new Map([["k", new Set([1])]]) });
		console.log("%s is %d%%, %j", "it", 5, { a: 1 });
		console.debug("d"); console.info("two\nlines"); console.warn("w"); console.error("e");
		console.trace("t"); console.assert(false, "no"); console.assert(true, "yes");
		console.group("g"); console.log("in"); console.groupEnd();
		console.count(); console.count();
		console.log([new Date(0), /x/g, null, undefined, 1n, Symbol("s"), () => 1, class A {}, new Uint8Array(2)]);
		const o = {}; o.o = o; console.log(o);
		console.log("x".repeat(5000));
		console.log(new URL("https://example.org/"), -0, [[[[[1]]]]]);`,
	"TextEncoder": `
		check([...new TextEncoder().encode("aä€😀\ud800")], [97, 195, 164, 226, 130, 172, 240, 159, 152, 128, 239, 191, 189]);
		const target = new Uint8Array(4);
		check(new TextEncoder().encodeInto("a€€", target), { read: 2, written: 4 });
		check(new TextEncoder().encoding, "utf-8");`,
	"TextDecoder": `
		const bytes = (...b) => new Uint8Array(b);
		check(new TextDecoder().decode(bytes(0xef, 0xbb, 0xbf, 0xe2, 0x82, 0xac)), "€");
		check(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes(0xef, 0xbb, 0xbf)), "\ufeff");
		check(new TextDecoder().decode(bytes(0xe2, 0x82, 0x41, 0xff)), "\ufffdA\ufffd");
		check(new TextDecoder().decode(bytes(0xed, 0xa0, 0x80)), "\ufffd\ufffd\ufffd");
		check(new TextDecoder().decode(bytes(0xf0, 0x9f, 0x98, 0x80).buffer), "😀");
		fails(TypeError, () => new TextDecoder("utf8", { fatal: true }).decode(bytes(0xff)));
		check(new TextDecoder("utf-16le").decode(bytes(0x3d, 0xd8, 0x00, 0xde, 0x41, 0x00)), "😀A");
		check(new TextDecoder("utf-16").encoding, "utf-16le");
		fails(TypeError, () => new TextDecoder("utf-16le", { fatal: true }).decode(bytes(0x3d, 0xd8)));
		check(new TextDecoder("latin1").decode(bytes(0xe9, 0x80, 0x41)), "é€A");
		check(new TextDecoder("latin1").encoding, "windows-1252");
		const stream = new TextDecoder();
		check(stream.decode(bytes(0xe2, 0x82), { stream: true }) + stream.decode(bytes(0xac, 0xf0), { stream: true }) + stream.decode(), "€\ufffd");
		check(new TextDecoder().decode(), "");
		const buffer = new ArrayBuffer(4, { maxByteLength: 1 << 20 }), view = new Uint8Array(buffer).fill(65), fixed = new Uint8Array(buffer, 0, 4);
		const decoded = (length) => (buffer.resize(length), new TextDecoder().decode(view));
		check([decoded(2), decoded(0), decoded(3), decoded(1 << 20).length], ["AA", "", "\0\0\0", 1 << 20]);
		buffer.resize(2); fails(TypeError, () => new TextDecoder().decode(fixed));
		fails(RangeError, () => new TextDecoder("shift_jis"));`,
	"URL": `
		const u = new URL("../b?x=1&y=%20#f", "https://user:pass@EXAMPLE.org:443/a/c/d");
		check(u.href, "https://user:pass@example.org/a/b?x=1&y=%20#f");
		check([u.protocol, u.host, u.hostname, u.port, u.pathname, u.search, u.hash, u.origin, u.username],
			["https:", "example.org", "example.org", "", "/a/b", "?x=1&y=%20", "#f", "https://example.org", "user"]);
		u.searchParams.append("z", "ä b"); u.port = "8080"; u.pathname = "/ä ö";
		check(u.href, "https://user:pass@example.org:8080/%C3%A4%20%C3%B6?x=1&y=+&z=%C3%A4+b#f");
		check(new URL("http://[2001:0db8::0:1]/").hostname, "[2001:db8::1]");
		check(new URL("http://0x7f.1/").hostname, "127.0.0.1");
		check(new URL("https://münchen.example/").hostname, "xn--mnchen-3ya.example");
		check(new URL("mailto:a@b.c").pathname, "a@b.c");
		check(JSON.stringify({ u: new URL("http://a/") }), '{"u":"http://a/"}');
		check([URL.canParse("http://a"), URL.canParse("nonsense"), URL.canParse("b", "http://a")], [true, false, true]);
		fails(TypeError, () => new URL("nonsense"));`,
	"URLSearchParams": `
		const p = new URLSearchParams("?a=1&b=2&a=3");
		check(p.getAll("a"), ["1", "3"]); p.delete("b"); p.append("c", "ä&="); p.set("a", "0"); p.sort();
		check(String(p), "a=0&c=%C3%A4%26%3D"); check(p.has("c"), true); check([...p.keys()], ["a", "c"]);
		check(String(new URLSearchParams({ x: "1", y: "a b" })), "x=1&y=a+b");
		check(String(new URLSearchParams([["x", "1"]])), "x=1"); check(p.size, 2);`,
	"fetch": ``, // TestFetch
	"Headers": `
		const h = new Headers({ "X-A": " 1 ", b: "2" });
		h.append("x-a", "3"); h.append("Set-Cookie", "a=1"); h.append("Set-Cookie", "b=2");
		check(h.get("X-a"), "1, 3"); check(h.get("none"), null); check(h.has("B"), true); check(h.getSetCookie(), ["a=1", "b=2"]);
		check([...h], [["b", "2"], ["set-cookie", "a=1"], ["set-cookie", "b=2"], ["x-a", "1, 3"]]);
		h.set("x-a", "4"); h.delete("b"); check([...new Headers(h).keys()], ["set-cookie", "set-cookie", "x-a"]);
		const seen = []; h.forEach((value, name) => seen.push(name + value)); check(seen.length, 3);
		fails(TypeError, () => h.set("a b", "1")); fails(TypeError, () => h.set("a", "1\n2"));`,
	"Request": `
		const r = new Request("https://example.org/a", { method: "post", body: "x", headers: { "X-A": "1" } });
		check([r.method, r.url, r.headers.get("x-a"), r.headers.get("content-type"), await r.clone().text()],
			["POST", "https://example.org/a", "1", "text/plain;charset=UTF-8", "x"]);
		check(await new Request(r).text(), "x");
		fails(TypeError, () => new Request("/relative")); fails(TypeError, () => new Request("http://a", { body: "x" }));`,
	"Response": `
		const r = Response.json({ a: 1 }, { status: 201 });
		check([r.status, r.ok, r.headers.get("content-type")], [201, true, "application/json"]);
		check(await r.clone().json(), { a: 1 }); check(await r.text(), '{"a":1}'); check(r.bodyUsed, true);
		await rejects(TypeError, r.text());
		check([...await new Response(new Uint8Array([1, 2])).bytes()], [1, 2]);
		check((await new Response("ab").arrayBuffer()).byteLength, 2);
		check(await new Response(new URLSearchParams({ a: "b" })).text(), "a=b");
		check((await new Response("ab", { headers: { "content-type": "text/x" } }).blob()).type, "text/x");
		check(Response.redirect("http://a/").status, 302); check(Response.error().type, "error");
		fails(RangeError, () => new Response("", { status: 99 }));`,
	"Blob": `
		const b = new Blob(["ä", new Uint8Array([65]), new Blob(["z"])], { type: "Text/Plain" });
		check([b.size, b.type, await b.text(), await b.slice(2, 3).text(), (await b.arrayBuffer()).byteLength], [4, "text/plain", "äAz", "A", 4]);`,
	"AbortController": `
		const c = new AbortController(); const seen = [];
		c.signal.addEventListener("abort", (e) => seen.push(e.type)); c.signal.onabort = () => seen.push("on");
		c.abort(); c.abort(); check(seen, ["on", "abort"]); check([c.signal.aborted, c.signal.reason.name], [true, "AbortError"]);
		fails(DOMException, () => c.signal.throwIfAborted());`,
	"AbortSignal": `
		check(AbortSignal.abort("why").reason, "why");
		const s = AbortSignal.timeout(5); check(s.aborted, false);
		await new Promise((done) => s.addEventListener("abort", done)); check([s.aborted, s.reason.name], [true, "TimeoutError"]);
		const c = new AbortController(), any = AbortSignal.any([c.signal, AbortSignal.timeout(100000)]); c.abort("x"); check(any.reason, "x");
		fails(TypeError, () => new AbortSignal());`,
	"Event, EventTarget": `
		const t = new EventTarget(); let n = 0;
		const f = (e) => { n++; e.preventDefault(); };
		t.addEventListener("a", f, { once: true }); t.addEventListener("b", f); t.addEventListener("b", f);
		check(t.dispatchEvent(new Event("a", { cancelable: true })), false); t.dispatchEvent(new Event("a")); t.dispatchEvent(new Event("b"));
		t.removeEventListener("b", f); t.dispatchEvent(new Event("b")); check(n, 2);`,
	"crypto.getRandomValues": `
		const a = crypto.getRandomValues(new Uint8Array(65536)), b = crypto.getRandomValues(new Uint32Array(4));
		check(new Set(a).size, 256); check(new Set(b).size, 4);
		const buffer = new ArrayBuffer(8, { maxByteLength: 64 }), view = new Uint8Array(buffer);
		buffer.resize(64); crypto.getRandomValues(view); check(view.subarray(8).some((b) => b > 0), true);
		buffer.resize(0); check(crypto.getRandomValues(view).length, 0);
		fails(DOMException, () => crypto.getRandomValues(new Uint8Array(65537))); fails(DOMException, () => crypto.getRandomValues([1]));`,
	"crypto.randomUUID": `
		check(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()), true);
		check(crypto.randomUUID() === crypto.randomUUID(), false);`,
	"crypto.subtle.digest": `
		const hex = async (name, text) => Array.from(new Uint8Array(await crypto.subtle.digest(name, new TextEncoder().encode(text))), (b) => b.toString(16).padStart(2, "0")).join("");
		check(await hex("SHA-1", "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
		check(await hex({ name: "sha-256" }, "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
		check(await hex("SHA-256", ""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
		check(await hex("SHA-384", "abc"), "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7");
		check(await hex("SHA-512", "abc"), "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
		check(await hex("SHA-1", "a".repeat(56)), "c2db330f6083854c99d4b5bfb6e8f29f201be699");
		check(await hex("SHA-256", "a".repeat(1000)), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
		const buffer = new ArrayBuffer(8, { maxByteLength: 8 }), view = new Uint8Array(buffer); buffer.resize(0);
		check(await crypto.subtle.digest("SHA-1", view).then((sum) => new Uint8Array(sum)[0]), 0xda);
		await rejects(DOMException, crypto.subtle.digest("MD5", new Uint8Array()));`,
	"crypto.subtle: HMAC": `
		const bytes = (t) => new TextEncoder().encode(t), algorithm = { name: "HMAC", hash: "SHA-256" };
		const key = await crypto.subtle.importKey("raw", bytes("Jefe"), algorithm, false, ["sign", "verify"]);
		const mac = await crypto.subtle.sign("HMAC", key, bytes("what do ya want for nothing?"));
		check(Array.from(new Uint8Array(mac), (b) => b.toString(16).padStart(2, "0")).join(""), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
		check([await crypto.subtle.verify("HMAC", key, mac, bytes("what do ya want for nothing?")), await crypto.subtle.verify("HMAC", key, mac, bytes("x"))], [true, false]);
		await rejects(DOMException, crypto.subtle.exportKey("raw", key));
		await rejects(DOMException, crypto.subtle.importKey("raw", bytes("x"), "AES-GCM", false, ["encrypt"]));`,
	"structuredClone": `
		const o = { d: new Date(5), r: /a/gi, m: new Map([[{ k: 1 }, new Set([1n])]]), b: new Uint8Array([1, 2]), e: new TypeError("t", { cause: 1 }), a: [1, , 3], n: null };
		o.self = o;
		const c = structuredClone(o);
		check([c !== o, c.self === c, c.d.getTime(), c.d !== o.d, String(c.r), [...c.m][0][0].k, [...c.b], c.e instanceof TypeError, c.e.message, c.e.cause, 1 in c.a, c.a.length],
			[true, true, 5, true, "/a/gi", 1, [1, 2], true, "t", 1, false, 3]);
		c.b[0] = 9; check(o.b[0], 1);
		const buffer = new ArrayBuffer(4); check(structuredClone(buffer, { transfer: [buffer] }).byteLength, 4); check(buffer.byteLength, 0);
		fails(DOMException, () => structuredClone(() => 1)); fails(DOMException, () => structuredClone({ s: Symbol() }));`,
	"setTimeout, clearTimeout, setInterval, clearInterval": `
		const seen = []; let n = 0;
		setTimeout((x) => seen.push(x), 20, "c"); setTimeout(() => seen.push("a")); const id = setTimeout(() => seen.push("never"), 1); clearTimeout(id);
		setTimeout(() => seen.push("b"), 5);
		await new Promise((done) => { const i = setInterval(() => { if (++n === 3) { clearInterval(i); setTimeout(done, 30); } }, 2); });
		check(seen, ["a", "b", "c"]); check(n, 3);
		const before = Date.now(); await new Promise((done) => setTimeout(done, 30)); check(Date.now() - before >= 29, true);
		fails(TypeError, () => setTimeout("code"));`,
	"queueMicrotask": `
		const seen = []; setTimeout(() => seen.push(3)); queueMicrotask(() => seen.push(2)); seen.push(1);
		await new Promise((done) => setTimeout(done, 5)); check(seen, [1, 2, 3]);`,
	"atob, btoa": `
		check(btoa("aé\0"), "YekA"); check(atob(" YekA\n"), "aé\0"); check(atob("YQ"), "a");
		fails(DOMException, () => btoa("€")); fails(DOMException, () => atob("a"));`,
	"performance.now": `
		const a = performance.now(); await new Promise((done) => setTimeout(done, 10)); const b = performance.now();
		check([a >= 0, a < 1000, b - a >= 9, Math.abs(performance.timeOrigin + b - Date.now()) < 1000], [true, true, true, true]);`,
	"Math.random, Date": `
		check(Math.random() !== Math.random(), true); check(Math.abs(Date.now() - new Date().getTime()) < 1000, true);
		let sum = 0; for (let i = 0; i < 1000; i++) sum += Math.random(); check(sum > 400 && sum < 600, true);`,
}

// checks are the functions with which the bodies compare.
const checks = `
	function check(got, want) {
		const g = JSON.stringify(got), w = JSON.stringify(want);
		if (g !== w) throw new Error("got " + g + ", want " + w);
	}
	function fails(type, f) {
		try { f(); } catch (e) { if (e instanceof type) return; throw new Error("threw " + e.name + ": " + e.message); }
		throw new Error("threw nothing: " + f);
	}
	async function rejects(type, p) {
		try { await p; } catch (e) { if (e instanceof type) return; throw new Error("rejected with " + e.name + ": " + e.message); }
		throw new Error("not rejected");
	}
`

func TestWebAPI(t *testing.T) {
	t.Parallel()
	for name, body := range webAPI {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := write(t, checks+"export default async function (task) {"+body+"\n}").run(runtime.Call{})
			if o.Kind != runtime.Complete {
				t.Errorf("%s: %s", o.Kind, o.Message)
			}
			if name == "console" {
				checkConsole(t, o.log)
			}
		})
	}
}

func checkConsole(t *testing.T, log []string) {
	t.Helper()
	want := []string{
		`a 1 { b: [ 1, "x" ], m: Map(1) { "k" => Set(1) { 1 } } }`, `it is 5%, {"a":1}`, "debug: d", "two", "lines", "warning: w", "error: e",
		"trace: Trace: t", "trace:     at default (handler.js:18:11)", "error: Assertion failed: no", "g", "  in", "default: 1", "default: 2",
		`[`, `  1970-01-01T00:00:00.000Z,`, `  /x/g,`, `  null,`, `  undefined,`, `  1n,`, `  Symbol(s),`, `  [Function (anonymous)],`,
		`  [class A],`, `  Uint8Array(2) [ 0, 0 ]`, `]`, `{ o: [Circular] }`,
		strings.Repeat("x", 5000),
		"URL { https://example.org/ } -0 [ [ [ [ [Array] ] ] ] ]",
	}
	if !slices.Equal(log, want) {
		t.Errorf("log:\n%s\nwant:\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
}

// TestReadme: the table of README.md lists what TestWebAPI tests.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Web APIs")
	table, _, _ = strings.Cut(table, "\n## ")
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(table, -1) {
		if name := strings.ReplaceAll(row[1], "`", ""); name != "" {
			listed = append(listed, name)
		}
	}
	for name := range webAPI {
		if !slices.Contains(listed, name) {
			t.Errorf("the table has no %s", name)
		}
	}
	for _, name := range listed {
		if _, ok := webAPI[name]; !ok {
			t.Errorf("nothing tests %s", name)
		}
	}
}

// TestDigests compares the sums of inputs of all lengths up to two blocks of SHA-512, where padding may go wrong, with Go's.
func TestDigests(t *testing.T) {
	t.Parallel()
	var got map[string][]string
	if err := json.Unmarshal([]byte(handler(t, `
		const sums = {};
		for (const name of ["SHA-1", "SHA-256", "SHA-384", "SHA-512"]) {
			sums[name] = [];
			for (let n = 0; n <= 256; n++) sums[name].push(btoa(String.fromCharCode(...new Uint8Array(await crypto.subtle.digest(name, new Uint8Array(n).fill(n))))));
		}
		return sums;`).input("")), &got); err != nil {
		t.Fatal(err)
	}
	for name, sum := range map[string]func() hash.Hash{"SHA-1": sha1.New, "SHA-256": sha256.New, "SHA-384": sha512.New384, "SHA-512": sha512.New} {
		for n := range 257 {
			h := sum()
			h.Write(bytes.Repeat([]byte{byte(n)}, n))
			if want := base64.StdEncoding.EncodeToString(h.Sum(nil)); got[name][n] != want {
				t.Errorf("%s of %d bytes: %s, want %s", name, n, got[name][n], want)
			}
		}
	}
}

// TestTimers: many timers cost little fuel, and those of equal delays run in the order in which they were set.
func TestTimers(t *testing.T) {
	t.Parallel()
	p := write(t, checks+`export default async () => {
		const many = 10000, ran = [], far = [];
		for (let i = 0; i < many; i++) far.push(setTimeout(() => ran.push(-1), 1e9 - i));
		for (const id of far) clearTimeout(id);
		for (let i = 0; i < many; i++) {
			const id = setTimeout(() => ran.push(i), i % 7);
			if (i % 5 === 0) clearTimeout(id);
		}
		await new Promise((done) => setTimeout(done, 10));
		const expected = Array.from({ length: many }, (_, i) => i).filter((i) => i % 5);
		check(ran.length, expected.length);
		for (let d = 0; d < 7; d++) check(ran.filter((i) => i % 7 === d), expected.filter((i) => i % 7 === d));
	}`)
	p.Limits.CPU = 10 * time.Second
	if o := p.run(runtime.Call{}); o.Kind != runtime.Complete {
		t.Errorf("%s: %s", o.Kind, o.Message)
	}
}

// TestNoSharedMemory: SharedArrayBuffer, which code takes for a sign that there is Atomics, is not there.
func TestNoSharedMemory(t *testing.T) {
	t.Parallel()
	if got := handler(t, `return [typeof SharedArrayBuffer, typeof Atomics, "SharedArrayBuffer" in globalThis].join()`).input(""); got != "undefined,undefined,false" {
		t.Error(got)
	}
}

// The engine's globals are those of globals.d.ts and of the build's list: no more, and no fewer.
func TestGlobals(t *testing.T) {
	t.Parallel()
	types := readAll(t, "globals.d.ts")
	_, list, _ := strings.Cut(readAll(t, "../../cmd/quern/build/names.go"), "const engineNames = `")
	list, _, _ = strings.Cut(list, "`")
	var have map[string][]string // by class, "" for globalThis
	if err := json.Unmarshal([]byte(handler(t, `
		const names = (o) => Object.getOwnPropertyNames(o ?? {}).filter((name) => name !== "constructor" && !(name in Function));
		const all = { "": names(globalThis).filter((name) => name !== "__core-js_shared__") };
		for (const name of task.text().split(" ")) {
			const value = globalThis[name];
			all[name] = typeof value === "function" ? [...names(value), ...names(value.prototype)] : names(value);
		}
		return all`).input(strings.Join(declared(types, `declare var (\w+)`), " "))), &have); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(list)
	slices.Sort(want)
	slices.Sort(have[""])
	if !slices.Equal(have[""], want) {
		t.Errorf("the engine has %q, engineNames of cmd/quern/build %q", have[""], want)
	}
	for _, name := range declared(types, `declare (?:var|function) (\w+)`) {
		if name != "process" && !slices.Contains(want, name) { // the build replaces process.env
			t.Errorf("globals.d.ts has %s, the engine does not", name)
		}
	}
	for name, members := range have {
		body := strings.Join(declared(types, `(?ims)^((?:interface|declare var) `+name+`\b(?:[^\n]*\};|.*?^\};?)$)`), "")
		for _, member := range members {
			if name != "" && name != "process" && !strings.HasSuffix(member, "_ERR") && !regexp.MustCompile(`\b`+member+`\b`).MatchString(body) {
				t.Errorf("the engine has %s.%s, globals.d.ts does not", name, member)
			}
		}
	}
}

// declared is what a pattern with one group finds in a text.
func declared(text, pattern string) (found []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}
