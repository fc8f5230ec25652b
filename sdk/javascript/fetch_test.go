package javascript_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
)

// serve starts an HTTP server for a test, and returns its address and a client that is granted it.
func serve(t *testing.T) (url string, granted service.HTTP) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-r.Context().Done()
		case "/moved":
			http.Redirect(w, r, "/echo?from=moved", http.StatusFound)
		case "/kept":
			http.Redirect(w, r, "/echo", http.StatusTemporaryRedirect)
		case "/around":
			http.Redirect(w, r, "/around", http.StatusFound)
		case "/missing":
			http.NotFound(w, r)
		case "/bytes":
			_, _ = w.Write([]byte{0, 255, 254})
		default:
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Add("Set-Cookie", "a=1")
			w.Header().Add("Set-Cookie", "b=2")
			fmt.Fprintf(w, `{"method":%q,"uri":%q,"type":%q,"x":%q,"body":%q}`,
				r.Method, r.RequestURI, r.Header.Get("Content-Type"), r.Header.Get("X-A"), body)
		}
	}))
	t.Cleanup(server.Close)
	client := egress.New(egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	grant, err := egress.ParseGrant(server.URL, []string{"GET", "POST"})
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, client.For("tenant", []egress.Grant{grant}, nil)
}

func TestFetch(t *testing.T) {
	t.Parallel()
	url, granted := serve(t)
	for name, body := range map[string]string{
		"GET": `
			const r = await fetch(url + "/echo?a=b#c", { headers: { "x-a": "1" } });
			check([r.status, r.ok, r.url, r.redirected, r.headers.get("content-type"), r.headers.getSetCookie()],
				[200, true, url + "/echo?a=b#c", false, "application/json", ["a=1", "b=2"]]);
			check(await r.json(), { method: "GET", uri: "/echo?a=b", type: "", x: "1", body: "" });`,
		"POST": `
			const answer = async (init) => (await fetch(url + "/echo", { method: "POST", ...init })).json();
			check((await answer({ body: "ä" })).type + (await answer({ body: "ä" })).body, "text/plain;charset=UTF-8ä");
			check((await answer({ body: new URLSearchParams({ a: "b c" }) })).body, "a=b+c");
			check((await answer({ body: new Uint8Array([65]), headers: { "Content-Type": "x/y", "Content-Length": "1", Host: "x" } })).type, "x/y");
			check((await answer({ body: new Blob(["b"], { type: "t/t" }) })).type, "t/t");
			check((await (await fetch(new Request(url + "/echo", { method: "POST", body: JSON.stringify({}) }))).json()).body, "{}");`,
		"Bytes": `check([...await (await fetch(url + "/bytes")).bytes()], [0, 255, 254]);`,
		"URL":   `check((await fetch(new URL("/echo", url))).status, 200);`,
		"Status": `
			const r = await fetch(url + "/missing"); check([r.status, r.ok, await r.text()], [404, false, "404 page not found\n"]);`,
		"Redirects": `
			const r = await fetch(url + "/moved", { method: "POST", body: "x" });
			check([r.redirected, r.url, (await r.json()).method], [true, url + "/echo?from=moved", "GET"]);
			check((await (await fetch(url + "/kept", { method: "POST", body: "x" })).json()).body, "x");
			check((await fetch(url + "/moved", { redirect: "manual" })).status, 302);
			await rejects(TypeError, fetch(url + "/moved", { redirect: "error" }));
			await rejects(TypeError, fetch(url + "/around"));`,
		"Denied": `
			try { await fetch("https://example.org/secret?token=1"); } catch (e) {
				check([e.name, e.code, e.message], ["TypeError", "EDENIED", "fetch: GET https://example.org/secret: denied: the manifest does not allow it: add {host: \"https://example.org\", methods: [GET]} to capabilities.http (EDENIED)"]);
				return;
			}
			throw new Error("granted");`,
		"Secrets": `
			const text = async (promise) => { try { await promise; } catch (e) { return e.message; } throw new Error("no error"); };
			check(await text(fetch(url + "/moved?token=1", { redirect: "error" })), "fetch: " + url + "/moved redirects to /echo");
			check(await text(fetch(url + "/around?token=1")), "fetch: " + url + "/around has redirected 20 times");
			check(await text(fetch("//ada:word@example.org/a?token=1#b")), "//example.org/a: not an absolute URL");`,
		"Timeout": `
			try { await fetch(url + "/slow", { signal: AbortSignal.timeout(50) }); } catch (e) { check(e.name, "TimeoutError"); return; }
			throw new Error("answered");`,
		"Aborted": `
			const c = new AbortController(); c.abort();
			try { await fetch(url + "/echo", { signal: c.signal }); } catch (e) { check(e.name, "AbortError"); return; }
			throw new Error("answered");`,
		"Invalid": `await rejects(TypeError, fetch("/relative")); await rejects(TypeError, fetch(url, { body: "x" }));`,
		"http": `
			const r = http({ method: "POST", url: url + "/echo", headers: { "X-A": ["1"] }, body: "b" });
			check([r.status, r.headers["content-type"], r.json().body, r.json().x], [200, ["application/json"], "b", "1"]);
			check(http(url + "/missing").status, 404);
			fails(QuernError, () => http({ url: "nonsense" })); fails(TypeError, () => http({ url, heads: {} }));`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := checks + `import { http, QuernError } from "@quern/sdk"; const url = "` + url + `";` +
				"export default async function (task) {" + body + "\n}"
			o := write(t, source).run(runtime.Call{Services: service.Services{HTTP: granted}})
			if o.Kind != runtime.Complete {
				t.Errorf("%s: %s\n%s", o.Kind, o.Message, strings.Join(o.log, "\n"))
			}
		})
	}
}

// TestQuernError: an error of the host has its code, and the call.
func TestQuernError(t *testing.T) {
	t.Parallel()
	o := write(t, `import { kv, QuernError } from "@quern/sdk";
		export default () => {
			try { kv("a").get("b"); } catch (e) { return [e instanceof QuernError, e.name, e.code, e.call, e.message]; }
		}`).run(runtime.Call{})
	want := `[true,"QuernError","EDENIED","kv_get","kv get a/b: denied: the manifest grants no kv_get, or there is none here (EDENIED)"]`
	if string(o.Output) != want {
		t.Errorf("%s: %s %s", o.Kind, o.Message, o.Output)
	}
	for call, want := range map[string]string{
		`kv("a").set("b", "")`: "kv set a/b: ", `kv("a").list({ prefix: "b" })`: "kv list a/b: ", `enqueue("mail", "")`: "enqueue mail: ",
		`secrets.get("key")`: "secrets.get key: ", `publish("mail", "")`: "publish mail: ", `http("https://ada:word@a.example/b?c=d")`: "http GET https://a.example/b: ",
	} {
		o := write(t, `import * as quern from "@quern/sdk"; const { kv, enqueue, publish, secrets, http } = quern;
			export default () => `+call).run(runtime.Call{})
		if o.Kind != runtime.Failed || !strings.HasPrefix(o.Message, "QuernError: "+want) {
			t.Errorf("%s: %s %s", call, o.Kind, o.Message)
		}
	}
}
