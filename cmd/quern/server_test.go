package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// secured is a server of the API that asks for tokens, for a tenant of its own, and a user who knows none of it yet.
func secured(t *testing.T, args ...string) (u *user, url, tenant string, tokens map[string]string) {
	t.Helper()
	admin := newUser(t, queuetest.Shared(t).URL())
	tenant = queuetest.Tenant()
	tokens, entries := make(map[string]string), "tokens:\n"
	for name, role := range map[string]string{"viewer": "viewer", "operator": "operator", "admin": "admin", "blind": "viewer"} {
		r := admin.run("admin", "token", name, "--role", role, "--tenants", tenant)
		tokens[name] = strings.TrimSpace(r.stdout)
		if entries += r.stderr; name == "blind" {
			entries += "  payloads: false\n"
		}
	}
	entries += "certificates:\n- {name: machine, role: operator, subject: machine.example}\n"
	file := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), entries)
	c := admin.start(append([]string{"admin", "--admin", "127.0.0.1:0", "--tenants", tenant, "--tokens", file}, args...)...)
	return newUser(t, "").with(map[string]string{"QUERN_TENANT": tenant}), "http://" + c.stderr.await(t, adminListening), tenant, tokens
}

// Who has a token works by the API as its role allows, whichever way the token comes; no message repeats it.
func TestServerTokens(t *testing.T) {
	t.Parallel()
	u, url, tenant, tokens := secured(t)
	operator, viewer := tokens["operator"], tokens["viewer"]
	file := write(t, filepath.Join(t.TempDir(), "token"), operator+"\n")
	several := write(t, filepath.Join(t.TempDir(), "lines"), operator+"\n"+operator)
	anonymous := u.with(map[string]string{"QUERN_SERVER": url})
	if r := anonymous.with(map[string]string{"QUERN_TOKEN": operator}).run("enqueue", "mail", "hello", "--id", "one"); r.status != exitDone || r.stdout != "one\n" {
		t.Fatalf("%+v", r)
	}
	for _, args := range []string{"--token-file " + file, "--token " + operator, "--server " + url + "/ --token " + operator} {
		if r := anonymous.run(strings.Fields("task show one -o json " + args)...); r.status != exitDone || !strings.Contains(r.stdout, `"parameters":"hello"`) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	for args, want := range map[string]string{
		"queue ls":                                     "no token, and no client certificate: the server wants one of them: give the token with --token-file, or in QUERN_TOKEN\n",
		"queue ls --token wrong":                       "the token is unknown or was revoked: ask for a new one\n",
		"queue pause mail --token VIEWER":              "viewer has the role viewer: pause-queue needs the role operator: use a token that may, or ask an admin for one",
		"audit --token OPERATOR":                       "operator has the role operator: read-audit needs the role admin",
		"queue ls --token VIEWER --tenant other":       `viewer may not see tenant "other", only ` + tenant,
		"task delete one --token OPERATOR":             "operator has the role operator: delete-task needs the role admin",
		"queue ls --token VIEWER --token-file F":       "both --token and --token-file are set: leave one of them out",
		"queue ls --token= ":                           "--token or --token-file is empty",
		"queue ls --token-file none":                   "--token-file: open none: no such file or directory: name a file with the token",
		"queue ls --server http://a@b/":                "it has a user: leave that out, and give a token",
		"queue ls --server http:example":               `URL of a server "http:example": use https://HOST:PORT`,
		"queue ls --server 127.0.0.1:17":               `URL of a server "127.0.0.1:17": use https://HOST:PORT`,
		"queue ls --token-file LINES":                  "--token-file: the token has a space or a line break in it: give the token alone",
		"queue ls --token VIEWER --server URL/v1":      "the API is not below this path: leave the path out, or name the base path of the server",
		"queue ls --server redis://127.0.0.1":          "use https://HOST:PORT",
		"queue ls --server http://x?ca=f":              "ca needs https://",
		"queue ls --server https://x?ac=f":             `parameter "ac": use ca, cert and key, which name files`,
		"queue ls --server https://x?ca=none":          `ca "none": name a readable PEM file`,
		"queue ls --server http://x/#/queues":          "leave out what begins with #",
		"queue ls --server= ":                          "--server",
		"queue ls --redis redis://x --server http://y": "both --server and --redis are set: leave one of them out",
		"enqueue mail --replicas 1 --token VIEWER":     "the API does not wait for replicas: use --redis",
		"bench --server http://x":                      "quern bench does not work over --server: it uses Redis itself, name it with --redis",
		"bench":                                        "QUERN_SERVER is set, and quern bench does not work over a server: it uses Redis itself, name it with --redis",
	} {
		args = strings.NewReplacer("VIEWER", viewer, "OPERATOR", operator, "LINES", several, "URL", url).Replace(args)
		fields := strings.Fields(args)
		r := anonymous.run(fields...)
		if r.status == exitDone || r.stdout != "" || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, viewer) || strings.Contains(r.stderr, operator) {
			t.Errorf("%s: %+v, expected %q and no token", args, r, want)
		}
	}
	// What a hint says to type has the server and the file of the token, and never the token.
	r := u.run("task", "delete", "one", "--server", url, "--token-file", file)
	if want := "needs the role admin"; !strings.Contains(r.stderr, want) {
		t.Errorf("%+v", r)
	}
	for flags, want := range map[string]string{
		"--token-file " + file:       "`quern task cancel --server " + url + " --token-file " + file + " one`",
		"--token " + tokens["admin"]: "`quern task cancel --server " + url + ` --token "${QUERN_TOKEN:?set it to your token}" one` + "`",
	} {
		write(t, file, tokens["admin"])
		if r := u.run(append([]string{"task", "delete", "one", "--server", url}, strings.Fields(flags)...)...); !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %s, expected %s", flags, r.stderr, want)
		}
	}
}

// A setting of the environment or the configuration file yields to a flag, also where the one names a Redis and the other a server.
func TestServerSettings(t *testing.T) {
	t.Parallel()
	u, url, tenant, tokens := secured(t)
	redis := queuetest.Shared(t).URL()
	config := write(t, filepath.Join(t.TempDir(), "quern.yaml"), fmt.Sprintf("server: %s\ntoken-file: %s\ntenant: %s\n", url, write(t, filepath.Join(t.TempDir(), "token"), tokens["operator"]), tenant))
	u.must("enqueue", "mail", "--id", "one", "--config", config)
	for name, r := range map[string]result{
		"flag over variable": u.with(map[string]string{"QUERN_REDIS_URL": "redis://127.0.0.1:1/0"}).run("task", "show", "one", "--server", url, "--token", tokens["viewer"]),
		"flag over file":     u.run("task", "show", "one", "--redis", redis, "--config", config),
		"variable over file": u.with(map[string]string{"QUERN_REDIS_URL": redis}).run("task", "show", "one", "--config", config),
		"variables":          u.with(map[string]string{"QUERN_SERVER": url, "QUERN_TOKEN": tokens["viewer"]}).run("task", "show", "one"),
	} {
		if r.status != exitDone || !strings.Contains(r.stdout, "one") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	both := u.with(map[string]string{"QUERN_SERVER": url, "QUERN_REDIS_URL": redis}).run("queue", "ls")
	if both.status != exitUsage || !strings.Contains(both.stderr, "both QUERN_SERVER and QUERN_REDIS_URL are set: leave one of them out") {
		t.Errorf("%+v", both)
	}
}

// A server that is away, or another one, is told with its remedy, at once.
func TestServerAway(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved/v1/tenants/blueque/queues":
			http.Redirect(w, r, "http://example.com/", http.StatusFound)
		case "/proxy/v1/tenants/blueque/queues":
			w.WriteHeader(http.StatusBadGateway)
		case "/login/v1/tenants/blueque/queues":
			w.WriteHeader(http.StatusUnauthorized)
		case "/busy/v1/tenants/blueque/queues":
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			fmt.Fprint(w, "<html>")
		}
	}))
	defer other.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := plain.Addr().String()
	_ = plain.Close()
	for url, want := range map[string]string{
		"http://" + free:     "connection refused: start `quern admin` there, or name another with --server",
		other.URL:            "the answer is not from Quern's API",
		other.URL + "/moved": "it answers with a redirect to http://example.com/: use that URL if you trust it",
		other.URL + "/proxy": "it answers HTTP 502 Bad Gateway",
		other.URL + "/login": "it answers HTTP 401 Unauthorized, which is no answer of Quern's API: a proxy in front of it refuses you: log in there",
		other.URL + "/busy":  "it answers HTTP 429 Too Many Requests, which is no answer of Quern's API: try again",
		strings.Replace(other.URL, "http:", "https:", 1): "it speaks no TLS there: use http:// instead of https://",
	} {
		if r := u.run("queue", "ls", "--server", url); r.status != exitRefused || r.stdout != "" || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %+v, expected %q", url, r, want)
		}
	}
}

// A page that some proxy shows, with status 200, is no success of any command.
func TestServerIsAnother(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/queues/json/") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "{}")
			return
		}
		fmt.Fprint(w, "<html>")
	}))
	defer other.Close()
	for _, args := range []string{"queue pause mail", "queue limit mail 3", "kv get bucket key", "enqueue mail hello", "enqueue json hello", "task delete one"} {
		r := newUser(t, "").run(append(strings.Fields(args), "--server", other.URL)...)
		if r.status != exitRefused || r.stdout != "" || !strings.Contains(r.stderr, "the answer is not from Quern's API") {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.pem and NAME.key.
func (a *authority) issue(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotAfter = time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, a.file(name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(a.t, a.file(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// A client certificate takes the place of a token; a private authority is named in the URL. The API may lie below a path.
func TestServerTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.issue("machine.example", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	u, url, _, tokens := secured(t, "--admin-cert", a.file("server.pem"), "--admin-key", a.file("server.key"), "--admin-ca", a.file("ca.pem"), "--base-path", "/quern")
	url = strings.Replace(url, "http:", "https:", 1) + "/quern"
	ca := "?ca=" + a.file("ca.pem")
	if out := u.must("enqueue", "mail", "--id", "one", "--server", url+ca+"&cert="+a.file("machine.example.pem")+"&key="+a.file("machine.example.key")); out != "one\n" {
		t.Errorf("%q", out)
	}
	if out := u.must("queue", "ls", "--server", url+ca, "--token", tokens["viewer"]); !strings.Contains(out, "mail") {
		t.Errorf("%q", out)
	}
	for args, want := range map[string]string{
		"--server " + url:                                  `name the authority that signed the certificate of CN=server with ?ca=FILE in the URL of --server`,
		"--server " + url + ca:                             "no token",
		"--server " + url + ca + "&cert=none&key=":         `cert "none" and key ""`,
		"--server http" + strings.TrimPrefix(url, "https"): "quern: ask http://",
	} {
		if r := u.run(append([]string{"queue", "ls"}, strings.Fields(args)...)...); r.status == exitDone || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, expected %q", args, r, want)
		}
	}
}

// A large task and bytes of any kind come whole through the API, and so does a long list.
func TestServerWhole(t *testing.T) {
	t.Parallel()
	u := over("server").tenant(t)
	large := strings.Repeat("x\x00\xff", 2<<20)
	if r := u.feed(large, "enqueue", "mail", "-", "--id", "large", "--label", "a=b=c d", "--key", "ü/&?"); r.status != exitDone {
		t.Fatalf("%+v", r)
	}
	id := u.must("task", "show", "large", "-o", "json")
	if !regexp.MustCompile(`"key":"ü/&\?",.*"labels":\{"a":"b=c d"\}`).MatchString(id) || len(id) < len(large) {
		t.Errorf("%d bytes: %.300s", len(id), id)
	}
	if r := u.feed(strings.Repeat("x", 16<<20+1), "enqueue", "mail", "-"); r.status != exitUsage || !strings.Contains(r.stderr, "the API takes at most 16 MiB: enqueue the task through Redis instead") {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	for _, name := range []string{"..", "a/b", "%2F", "a b?c#d"} {
		if r := u.run("queue", "show", name); !strings.Contains(r.stderr, "queue") || r.status == exitDone {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := u.feed(lines(1, 2500), "enqueue", "many", "--file", "-", "--id", "x"); r.status != exitDone {
		t.Fatalf("%+v", r)
	}
	for args, want := range map[string]int{"--limit 1000": 1000, "--limit 1000 --offset 2000": 500, "--offset 2499": 1, "--offset 9999": 0} {
		if got := strings.Count(u.must(append([]string{"task", "ls", "many"}, strings.Fields(args)...)...), " pending "); got != want {
			t.Errorf("%s: %d tasks, expected %d", args, got, want)
		}
	}
}
