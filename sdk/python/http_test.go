package python_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
)

// TestHTTP asks a real server by quern.http and by urllib.request.
func TestHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/busy" {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		w.Header().Add("X-Two", "1")
		w.Header().Add("X-Two", "2")
		fmt.Fprint(w, r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), " ", r.Header.Get("X-Ask"), " ", string(body))
	}))
	t.Cleanup(server.Close)
	client := egress.New(egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	grant, err := egress.ParseGrant(server.URL, []string{"GET", "POST"})
	if err != nil {
		t.Fatal(err)
	}
	p := handler(t, `
import json, urllib.error, urllib.request, quern
def lib(request): 
    with urllib.request.urlopen(request) as answer: return [answer.status, answer.headers.get_all("x-two"), answer.read().decode()]
def denied(url):
    try: return urllib.request.urlopen(url)
    except urllib.error.URLError as error: return str(error)
WORK = {
    "get": lambda url: [(a := quern.http.get(url + "/a", params={"q": "b c"}, headers={"X-Ask": "x"})).status, a.headers["X-Two"], a.text],
    "json": lambda url: quern.http.post(url + "/a", json={"é": 1}).text,
    "form": lambda url: quern.http.post(url + "/a", data={"a": "b c"}).text,
    "busy": lambda url: quern.http.get(url + "/busy").raise_for_status(),
    "put": lambda url: quern.http.put(url + "/a"),
    "urllib": lambda url: lib(url + "/a"),
    "urllib post": lambda url: lib(urllib.request.Request(url + "/a", data=b"body", headers={"X-Ask": "x", "Content-Type": "text/plain"})),
    "urllib busy": lambda url: lib(url + "/busy"),
    "urllib denied": lambda url: denied("https://example.com/"),
}
def handle(task):
    name, url = task.text.split(" http")
    return WORK[name]("http" + url)
`)
	for name, want := range map[string]struct {
		kind runtime.OutcomeKind
		says string
	}{
		"get":           {runtime.Complete, `[200,"1, 2","GET /a?q=b+c  x "]`},
		"json":          {runtime.Complete, `POST /a application/json  {"é":1}`},
		"form":          {runtime.Complete, `POST /a application/x-www-form-urlencoded  a=b+c`},
		"busy":          {runtime.Retry, "GET " + server.URL + "/busy: the answer has status 503"},
		"put":           {runtime.Failed, "quern.errors.DeniedError: PUT " + server.URL + "/a: denied: the manifest does not allow it: add PUT to methods of " + server.URL + " in capabilities.http [handler.py:"},
		"urllib":        {runtime.Complete, `[200,["1","2"],"GET /a   "]`},
		"urllib post":   {runtime.Complete, `[200,["1","2"],"POST /a text/plain x body"]`},
		"urllib busy":   {runtime.Failed, "urllib.error.HTTPError: HTTP Error 503: Service Unavailable"},
		"urllib denied": {runtime.Complete, "<urlopen error GET https://example.com/: denied: the manifest does not allow it: add {host: \"https://example.com\", methods: [GET]} to capabilities.http>"},
	} {
		r := p.call(t, runtime.Call{Input: []byte(name + " " + server.URL), Services: service.Services{HTTP: client.For("acme", []egress.Grant{grant}, nil)}})
		if got := string(r.Output) + r.Message; r.Kind != want.kind || len(got) < len(want.says) || got[:len(want.says)] != want.says {
			t.Errorf("%s: %s %s\nwant %s %s\n%s", name, r.Kind, got, want.kind, want.says, r.logged())
		}
	}
}
