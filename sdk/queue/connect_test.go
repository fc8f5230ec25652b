package queue_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// reaches enqueues a task through a URL and reads it on the server.
func reaches(t *testing.T, rawURL string, server *queuetest.Server) error {
	t.Helper()
	client, err := queue.New(rawURL, queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		return err
	}
	defer client.Close()
	id, err := client.Queue("q").Enqueue(t.Context(), nil, queue.Options{})
	if err != nil {
		return err
	}
	n, err := server.Client(t).Exists(t.Context(), client.Store().Keys.Task(id)).Result()
	if err == nil && n != 1 {
		err = errors.New("the task is not on the server")
	}
	return err
}

// A program that names no Redis uses QUERN_REDIS_URL, or else that of `quern dev`; there is no third one.
func TestNoURL(t *testing.T) {
	server := queuetest.Shared(t)
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("QUERN_REDIS_URL", "")
	err := reaches(t, "", server)
	if !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), "write redis://127.0.0.1:6379/0, or set QUERN_REDIS_URL") {
		t.Errorf("without any: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "quern"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "quern", "dev.json"), fmt.Appendf(nil, `{"redis": %q, "pid": 1}`, server.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reaches(t, "", server); err != nil {
		t.Errorf("with that of quern dev: %v", err)
	}
	t.Setenv("QUERN_REDIS_URL", "http://other")
	if err := reaches(t, "", server); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("with QUERN_REDIS_URL: %v", err)
	}
}

// The error of a login that is missing or wrong names the remedy, and no password.
func TestLogin(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--requirepass", "s3cret")
	for user, word := range map[string]string{"": "NOAUTH", ":wr0ng@": "WRONGPASS"} {
		err := reaches(t, "redis://"+user+server.Addr()+"/0", server)
		if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "wr0ng") ||
			!strings.HasSuffix(err.Error(), ": give user and password in the URL: redis://USER:PASSWORD@HOST:PORT/DB") {
			t.Errorf("%q: %v", user, err)
		}
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	admin := server.Client(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">p/w?d#1", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	for _, rawURL := range []string{
		server.URL(), "redis://" + server.Addr(), "redis://" + server.Addr() + "?read_timeout=2s&pool_size=3",
		"redis://worker:" + url.QueryEscape("p/w?d#1") + "@" + server.Addr() + "/0",
	} {
		if err := reaches(t, rawURL, server); err != nil {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
	rdb := must[redis.UniversalClient](t)(queue.Connect("redis://" + server.Addr() + "/3?max_retries=5"))
	defer rdb.Close()
	if options := rdb.(*redis.Client).Options(); options.DB != 3 || options.MaxRetries != 0 {
		t.Errorf("database %d, %d retries: a reserve must not be repeated", options.DB, options.MaxRetries)
	}
	wrong := "redis://worker:wrong-secret@" + server.Addr()
	if err := reaches(t, wrong, server); err == nil || strings.Contains(err.Error(), "wrong-secret") || queue.IsUnavailable(err) {
		t.Errorf("a wrong password: %v", err)
	}
}

// A Redis that never answers keeps a caller no longer than its deadline.
func TestCallsEndWithTheirDeadline(t *testing.T) {
	t.Parallel()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = listener.Close() }()
	client := must[*queue.Client](t)(queue.New("redis://"+listener.Addr().String()+"/0?read_timeout=20s", queue.Config{}))
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := client.Queue("q").Enqueue(ctx, nil, queue.Options{})
	if took := time.Since(begun); !queue.IsUnavailable(err) || took > 15*time.Second {
		t.Errorf("enqueued to a Redis that hangs: %v after %s", err, took)
	}
}

func TestConnectByUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "q") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "redis.sock")
	server := queuetest.Start(t, "--unixsocket", socket)
	if err := reaches(t, "unix://"+socket+"?db=0", server); err != nil {
		t.Error(err)
	}
}

func TestConnectByTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificates(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	server := queuetest.Start(t, "--tls-cert-file", file("server.crt"), "--tls-key-file", file("server.key"),
		"--tls-ca-cert-file", file("ca.crt"), "--tls-auth-clients", "yes")
	address := tlsAddr(t, server)
	query := func(values ...string) string {
		q := url.Values{}
		for i := 0; i < len(values); i += 2 {
			q.Set(values[i], file(values[i+1]))
		}
		return "rediss://" + address + "/0?" + q.Encode()
	}
	if err := reaches(t, query("ca", "ca.crt", "cert", "client.crt", "key", "client.key"), server); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct{ url, want string }{
		"no CA":                 {query("cert", "client.crt", "key", "client.key"), "certificate"},
		"no client certificate": {query("ca", "ca.crt"), ""},
		"another CA":            {query("ca", "client.crt", "cert", "client.crt", "key", "client.key"), "certificate"},
		"a CA that is missing":  {query("ca", "none.crt"), "none.crt"},
		"a CA that is a key":    {query("ca", "ca.key"), "ca.key"},
		"a key that is missing": {query("ca", "ca.crt", "cert", "client.crt"), "client.crt"},
		"certs without TLS":     {strings.Replace(query("ca", "ca.crt"), "rediss://", "redis://", 1), "rediss://"},
	} {
		if err := reaches(t, c.url, server); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to name %q", name, err, c.want)
		}
	}
}

// tlsAddr lets a server listen for TLS on a free port.
func tlsAddr(t *testing.T, server *queuetest.Server) string {
	t.Helper()
	var err error
	for range 5 { // another may take the port before the server does
		listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		address := listener.Addr().String()
		_ = listener.Close()
		_, port, _ := net.SplitHostPort(address)
		if err = server.Client(t).ConfigSet(t.Context(), "tls-port", port).Err(); err == nil {
			return address
		}
	}
	t.Fatal(err)
	return ""
}

// certificates makes a CA, and a server's and a client's certificate by it.
func certificates(t *testing.T, dir string) {
	t.Helper()
	write := func(name, kind string, der []byte) {
		block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(filepath.Join(dir, name), block, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var parent *x509.Certificate
	var signer *ecdsa.PrivateKey
	for i, name := range []string{"ca", "server", "client"} {
		key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: i == 0, BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if i == 0 {
			parent, signer = template, key
		}
		der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer))
		write(name+".crt", "CERTIFICATE", der)
		write(name+".key", "EC PRIVATE KEY", must[[]byte](t)(x509.MarshalECPrivateKey(key)))
	}
}

func TestConnectBySentinel(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	host, port, _ := net.SplitHostPort(server.Addr())
	sentinel := startSentinel(t, fmt.Sprintf("sentinel monitor main %s %s 1\n", host, port))
	if err := reaches(t, "redis://"+sentinel+"/0?master_name=main", server); err != nil {
		t.Error(err)
	}
	// The first is gone, the second is asked.
	if err := reaches(t, "redis://127.0.0.1:1/0?master_name=main&addr="+sentinel, server); err != nil {
		t.Error(err)
	}
	if err := reaches(t, "redis://"+sentinel+"/0?master_name=none", server); err == nil {
		t.Error("a master that nobody knows is reached")
	}
	rdb := must[redis.UniversalClient](t)(queue.Connect("redis://" + sentinel + "/2?master_name=main&max_retries=5"))
	defer rdb.Close()
	if options := rdb.(*redis.Client).Options(); options.DB != 2 || options.MaxRetries != 0 {
		t.Errorf("database %d, %d retries: a reserve must not be repeated", options.DB, options.MaxRetries)
	}
}

// startSentinel runs a Redis Sentinel on a free port for the length of the test.
func startSentinel(t *testing.T, config string) (address string) {
	t.Helper()
	for range 5 {
		listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		address = listener.Addr().String()
		_ = listener.Close()
		_, port, _ := net.SplitHostPort(address)
		dir := t.TempDir()
		path := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %s\n%s", port, dir, config)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "redis-server", path, "--sentinel")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		rdb := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1})
		defer rdb.Close()
		up := false
		eventually(t, "a sentinel", func() bool {
			select {
			case <-ended: // the port was taken
				return true
			default:
				up = rdb.Ping(t.Context()).Err() == nil
				return up
			}
		})
		if up {
			return address
		}
	}
	t.Fatal("no sentinel starts")
	return ""
}

// A password must not come out, however the URL is wrong.
func TestConnectKeepsSecrets(t *testing.T) {
	t.Parallel()
	for _, rawURL := range []string{
		"redis://worker:SECRET@host:6379/abc",
		"redis://SECRET@host:6379/abc", // given in place of the user
		"redis://worker:SECRET@host:6379/0?no_such_option=1",
		"redis://worker:SECRET@host:6379/0?pool_size=many",
		"redis://host:6379/0?pasword=SECRET",
		"redis://worker:SECRET@host:6379/0?ca=/ca.pem",
		"redis://worker:SECRET@host:port",
		"redis://worker:SECRET /@host",
		"redis://worker:SECRET%zz@host:6379",
		"redis://worker:SECRET/more@host:6379", // special characters that are not escaped
		"redis://worker:12/SECRET@host:6379",
		"redis://worker:12?SECRET@host:6379",
		"redis://worker:12#SECRET@host:6379",
		"redis://:SECRET#more@host:6379",
		"redis://worker:12@34/SECRET@host:6379",
		"redis://worker:[SECRET@host:6379",
		"redis://host:6379/abc?master_name=main&password=SECRET",
		"redis://host:6379?master_name=main&password=SECRET&addr=nowhere",
		"redis://host:6379?master_name=main&password=%&SECRET",
		"http://worker:SECRET@host:6379",
		"worker:SECRET@host:6379",
		"SECRET@host:6379",
		"unix://worker:SECRET@",
		"unix://worker:@SECRET?@",
		"rediss://worker:SECRET@host:6379?ca=/no/such/ca.pem",
	} {
		rdb, err := queue.Connect(rawURL)
		if err == nil {
			_ = rdb.Close()
			t.Errorf("%s is accepted", rawURL)
			continue
		}
		if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", rawURL, err)
		}
		if shown := queue.Redact(rawURL); strings.Contains(shown, "SECRET") && !strings.Contains(rawURL, "pasword") {
			t.Errorf("%s is shown as %s", rawURL, shown)
		}
		if !strings.Contains(rawURL, "ca.pem") && !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%s: %v is not ErrInvalid", rawURL, err)
		}
	}
}

// No URL that is refused shows its password, whatever characters that has and wherever they split it.
func FuzzConnectKeepsSecrets(f *testing.F) {
	for _, password := range []string{"secret", "pass/hunter", "1234?hunter", "1234#hunter", "pass%zzhunter", "[hunter", "p@ss/hunter", "a b", ":hunter", "\x00hunter", "a&hunter", "a&hunter=b", "a;hunter"} {
		f.Add(password)
	}
	forms := []string{
		"redis://worker:%s@host:6379/0?no_such_option=1", "redis://:%s@host:6379/abc", "http://worker:%s@host",
		"worker:%s@host:6379", "unix://worker:%s@", "redis://host/x?master_name=m&password=%s",
		"redis://host?master_name=m&password=%s&addr=x", "redis://host?master_name=m&password=%s",
	}
	harmless := "" // what the messages say in any case
	for _, form := range forms {
		for _, password := range []string{"0", "/", "%%", "0&0"} {
			if rdb, err := queue.Connect(fmt.Sprintf(form, password)); err != nil {
				harmless += err.Error()
			} else {
				_ = rdb.Close()
			}
		}
	}
	words := regexp.MustCompile(`[A-Za-z0-9]{3,}`)
	f.Fuzz(func(t *testing.T, password string) {
		for _, form := range forms {
			rawURL := fmt.Sprintf(form, password)
			rdb, err := queue.Connect(rawURL)
			if err == nil { // with "#" or "&" it may have split into something that is fine
				_ = rdb.Close()
				continue
			}
			for _, word := range words.FindAllString(password, -1) {
				if strings.Contains(err.Error(), word) && !strings.Contains(harmless, word) {
					t.Errorf("%q: %v", rawURL, err)
				}
			}
		}
	})
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://host:6379/0":                                          "redis://host:6379/0",
		"redis://ada:s3cret@host:6379/0":                               "redis://ada:xxxxx@host:6379/0",
		"rediss://:s3cret@host/0?ca=ca.pem":                            "rediss://:xxxxx@host/0?ca=ca.pem",
		"unix://ada:s3cret@/run/redis.sock?db=1":                       "unix://ada:xxxxx@/run/redis.sock?db=1",
		"redis://:s3cret@host/0?master_name=m&username=q&password=t0p": "redis://:xxxxx@host/0?master_name=m&password=xxxxx&username=q",
		"redis://ada:s3/cret@host:6379/0":                              "xxxxx",
		"redis://ada:s3#cret@host:6379/0":                              "xxxxx",
		"redis://s3cret@host:6379/0":                                   "redis://xxxxx@host:6379/0", // in place of the user
		"http://ada:s3cret@proxy:3128":                                 "http://ada:xxxxx@proxy:3128",
		"https://t0ken@proxy":                                          "https://xxxxx@proxy",
		"redis://host/0?master_name=m&sentinel_password=t0p&db=1":      "redis://host/0?db=1&master_name=m&sentinel_password=xxxxx",
		"ada:s3cret":        "xxxxx",
		"s3cret":            "xxxxx",
		"not a URL: s3cret": "xxxxx",
	} {
		if got := queue.Redact(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

func TestConnectTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"":                                  "write redis://HOST:PORT/DB",
		"localhost":                         "write redis://HOST:PORT/DB",
		"localhost:6379":                    "has no scheme that is known: write redis://localhost:6379/0",
		"localhost:6379/3":                  "write redis://localhost:6379/3",
		"127.0.0.1:6379":                    "write redis://127.0.0.1:6379/0",
		"redis:localhost:6379":              "has no scheme that is known: write redis://HOST:PORT/DB",
		"http://localhost:6379":             "write redis://localhost:6379/0, or the same with rediss:// for TLS",
		"http://ada:s3cret@localhost:6379":  "write redis://localhost:6379/0",
		"redis://host:port:6379/x":          "has too many colons in its host: write redis://HOST:PORT/DB, and an IPv6 address in brackets",
		"redis://localhost:port":            "has a port that is no number",
		"redis://localhost:99999":           "has a port above 65535",
		"redis://:pa ss@host":               "has a space in it: write redis://USER:PASSWORD@HOST:PORT/DB, and as %XX what",
		"redis://ada:p%zz@host":             "has a % that begins no %XX: write redis://USER",
		"redis://ada:p#ss@host":             "has a /, ? or # in its password or user: write redis://USER",
		"redis://ada:p/ss@host":             "has a /, ? or # in its password or user: write redis://USER",
		"redis://[::1:6379":                 "has a [ without its ]",
		"redis://localhost:6379/abc":        `redis://localhost:6379/abc: its database is no number from 0 on: write redis://localhost:6379/0`,
		"redis://localhost/-1":              `its database is no number from 0 on: write redis://localhost/0`,
		"redis://localhost:6379/0/1":        "its database",
		"redis://localhost:6379/0?colour=1": "colour",
		"redis://u:pw/d@localhost:6379":     "%XX",
		"unix://":                           "socket",
		"redis://s:1?master_name=m&addr=x":  "addr",
	} {
		if _, err := queue.Connect(rawURL); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to name %q", rawURL, err, want)
		}
	}
}

func TestIsUnavailable(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t, "--maxclients", "5")
	first := newWorld(t, server.URL())
	if err := first.rdb.Ping(first.ctx).Err(); err != nil {
		t.Fatal(err)
	}
	full := func() error {
		for range 10 { // more connections than there may be
			w := newWorld(t, server.URL())
			if err := w.rdb.Ping(w.ctx).Err(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := full(); !queue.IsUnavailable(err) {
		t.Errorf("no connection left: %v", err)
	}
	if err := first.rdb.ConfigSet(first.ctx, "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Queue("q").Enqueue(first.ctx, nil, queue.Options{}); !queue.IsUnavailable(err) {
		t.Errorf("no replica: %v", err)
	}
	if err := first.rdb.Do(first.ctx, "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Queue("q").Enqueue(first.ctx, nil, queue.Options{}); !queue.IsUnavailable(err) {
		t.Errorf("read-only: %v", err)
	}
	server.Kill()
	if _, err := first.Queue("q").Enqueue(first.ctx, nil, queue.Options{}); !queue.IsUnavailable(err) {
		t.Errorf("away: %v", err)
	}
	_ = first.Close()
	if _, err := first.Queue("q").Enqueue(first.ctx, nil, queue.Options{}); err == nil || queue.IsUnavailable(err) {
		t.Errorf("closed: %v", err)
	}
	if queue.IsUnavailable(nil) || queue.IsUnavailable(queue.ErrLost) {
		t.Error("what is not unavailable counts as such")
	}
}
