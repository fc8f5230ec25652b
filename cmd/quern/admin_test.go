package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

var adminListening = regexp.MustCompile(`listening: admin=(\S+)`)

// ask sends a request to the API with a token.
func ask(t *testing.T, method, url, token string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL())
	tenant := queuetest.Tenant()
	u.must("enqueue", "mail", "hello", "--tenant", tenant)
	c := u.start("admin", "--admin", "127.0.0.1:0", "--tenants", tenant)
	base := "http://" + c.stderr.await(t, adminListening) + "/v1/tenants/" + tenant
	if status, body := ask(t, http.MethodPost, base+"/queues/mail/pause", ""); status != http.StatusOK || !strings.Contains(body, `"paused":true`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := ask(t, http.MethodGet, base+"/queues/mail", ""); status != http.StatusOK || !strings.Contains(body, `"pending":1`) {
		t.Errorf("%d %s", status, body)
	}
	var log []struct {
		Who, Action, On, From string
		Status                int
	}
	if err := json.Unmarshal([]byte(u.must("audit", "--tenant", tenant, "-o", "json")), &log); err != nil {
		t.Fatal(err)
	}
	if len(log) != 1 || log[0].Who != "local" || log[0].Action != "pause-queue" || log[0].On != "queue mail" || log[0].From != "127.0.0.1" || log[0].Status != 200 {
		t.Errorf("%+v", log)
	}
	if text := u.must("audit", "--tenant", tenant); !strings.Contains(text, "pause-queue") {
		t.Errorf("%s", text)
	}
	if log := c.stderr.String(); !strings.Contains(log, "audit: who=local action=pause-queue") {
		t.Errorf("the log is %s", log)
	}
	c.stop()
	if status := c.wait(); status != exitDone {
		t.Errorf("exit %d", status)
	}
}

// A host serves the API beside its tasks, also confined, and follows the file of tokens.
func TestServeAdmin(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL())
	tenant := queuetest.Tenant()
	r := u.run("admin", "token", "ada", "--role", "operator", "--tenants", tenant, "--expires", "1h")
	token := strings.TrimSpace(r.stdout)
	if r.status != exitDone || token == "" || strings.Contains(r.stderr, token) || !strings.Contains(r.stderr, "name: ada") {
		t.Fatalf("%+v", r)
	}
	file := write(t, filepath.Join(t.TempDir(), "access", "tokens.yaml"), "tokens:\n"+r.stderr)
	c, _ := u.host(t.TempDir(), "--tenants", tenant, "--admin", "127.0.0.1:0", "--tokens", file)
	base := "http://" + c.stderr.await(t, adminListening) + "/v1/"
	if status, body := ask(t, http.MethodGet, base+"tenants/"+tenant+"/nodes", token); status != http.StatusOK || !strings.Contains(body, `"kind":"quern"`) {
		t.Errorf("%d %s", status, body)
	}
	second := u.run("admin", "token", "eve", "--role", "viewer")
	fresh := write(t, filepath.Join(filepath.Dir(file), "next"), "tokens:\n"+second.stderr)
	if err := os.Rename(fresh, file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new token", func() bool {
		status, _ := ask(t, http.MethodGet, base+"me", strings.TrimSpace(second.stdout))
		return status == http.StatusOK
	})
	if status, _ := ask(t, http.MethodGet, base+"me", token); status != http.StatusUnauthorized {
		t.Errorf("the old token gets %d", status)
	}
}

func TestWrongAdmin(t *testing.T) {
	t.Parallel()
	busy := queuetest.Shared(t)
	u := newUser(t, busy.URL())
	empty := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), "{}")
	for args, want := range map[string]struct {
		status int
		text   string
	}{
		"--admin foo":                             {exitUsage, `address "foo" is no HOST:PORT with a port of 0 to 65535: use one such as 127.0.0.1:9465`},
		"--admin 127.0.0.1:x":                     {exitUsage, `address "127.0.0.1:x" is no HOST:PORT`},
		"--admin 127.0.0.1:65536":                 {exitUsage, `address "127.0.0.1:65536" is no HOST:PORT`},
		"--admin 0.0.0.0:0":                       {exitUsage, "can be reached from other machines"},
		"--admin 127.0.0.1:0 --tokens none":       {exitUsage, `--tokens "none": no such file`},
		"--admin 127.0.0.1:0 --tokens " + empty:   {exitUsage, "it has no tokens, certificates or oidc"},
		"--admin 127.0.0.1:0 --admin-cert none":   {exitUsage, "HTTPS needs a certificate and its key"},
		"--admin 127.0.0.1:0 --tenants A_B":       {exitUsage, `--tenants "A_B"`},
		"--admin 127.0.0.1:0 --tenants a,a":       {exitUsage, "each once"},
		"--admin " + busy.Addr():                  {exitRefused, "choose another address"},
		"--admin 127.0.0.1:0 --redis http://x":    {exitUsage, "--redis"},
		"token":                                   {exitUsage, "got 0 arguments"},
		"token ada --role boss":                   {exitUsage, "viewer, operator, admin"},
		"token ada --role viewer --tenants Upper": {exitUsage, "Upper"},
		"token ada --role viewer --expires -1h":   {exitUsage, "--expires"},
	} {
		r := u.run(append([]string{"admin"}, strings.Fields(args)...)...)
		if r.status != want.status || !strings.Contains(r.stderr, want.text) || r.stdout != "" {
			t.Errorf("%s: exit %d: %s%s; want exit %d with %q", args, r.status, r.stdout, r.stderr, want.status, want.text)
		}
	}
}

// selfSigned writes a certificate and its key, and returns its serial number.
func selfSigned(t *testing.T, cert, key string) *big.Int {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return template.SerialNumber
}

// A Redis that is away is told at once; the API is served meanwhile.
func TestAdminWithoutRedis(t *testing.T) {
	t.Parallel()
	c := newUser(t, "redis://127.0.0.1:1/0").start("admin", "--admin", "127.0.0.1:0")
	c.stderr.await(t, regexp.MustCompile(`cannot reach Redis: requests are refused with 503 until it answers: redis=127.0.0.1:1`))
}

// A renewed certificate counts for new connections; while the files do not fit together, the last good one does.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL())
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	first := selfSigned(t, cert, key)
	c := u.start("admin", "--admin", "127.0.0.1:0", "--admin-cert", cert, "--admin-key", key)
	address := c.stderr.await(t, adminListening)
	shown := func() *big.Int {
		connection, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", address) //nolint:gosec // it looks at the certificate itself
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber
	}
	if got := shown(); got.Cmp(first) != 0 {
		t.Errorf("certificate %d, want %d", got, first)
	}
	write(t, key, "damaged")
	eventually(t, "a line about the damaged key", func() bool { shown(); return strings.Contains(c.stderr.String(), "the last good ones count") })
	if got := shown(); got.Cmp(first) != 0 {
		t.Errorf("with a damaged key: certificate %d, want %d", got, first)
	}
	second := selfSigned(t, cert, key)
	eventually(t, "the renewed certificate", func() bool { return shown().Cmp(second) == 0 })
}
