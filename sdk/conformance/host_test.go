package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// patience bounds each task that a test waits for; the first one of a language waits for the compiler, too.
const patience = 5 * time.Minute

// shared is what the hosts of all languages have in common; set by TestMain.
var shared struct {
	compiled    string // the cache
	url, closed string // see manifest.yaml
}

func TestMain(m *testing.M) {
	// The tests wait more than they compute: more of them at a time than there are processors.
	_ = flag.Set("test.parallel", "8")
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "conformance-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.compiled, shared.url, shared.closed = dir, server.URL, "http://"+listener.Addr().String()
	listener.Close()
	code := queuetest.Main(m)
	postgrestest.End()
	server.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// answer is the server of the kit: it tells what it was asked.
func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.Header().Set("X-Answer", "asked-"+r.Header.Get("X-Ask"))
	switch r.URL.Path {
	case "/moved":
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusFound)
	case "/missing":
		w.WriteHeader(http.StatusNotFound)
	case "/large":
		_, _ = w.Write(bytes.Repeat([]byte("x"), 16<<20+1))
	case "/slow":
		<-r.Context().Done()
	default:
		fmt.Fprint(w, r.Method, " ", r.URL.Path, " ", string(body))
	}
}

// node is a host that serves one language's guest.
type node struct {
	ctx       context.Context
	client    *queue.Client
	tenant    string
	terminate context.CancelFunc
	secrets   string // the folder
	database  *database
}

// variants are the plugins that a language's guest is: by the name of each what it has of its own in the manifest.
var variants = map[string]func(manifest string) string{
	"kit": func(manifest string) string { return manifest },
	"call": func(manifest string) string {
		return strings.Replace(strings.Replace(manifest, "after: complete", "after: call, depth: 1", 1), "after: complete", "after: call", 1)
	},
	"warm":     warmed("warm"),
	"warm-raw": warmed("warm-raw"),
	"cold":     warmed("cold"),
	"databases": func(manifest string) string {
		return strings.Replace(manifest, "capabilities:\n", "capabilities:\n  sql: [{database: shop, access: rw, rows: 100}, "+
			"{database: ledger, access: rw, commit: call}, {database: archive}]\n", 1)
	},
}

// warmth are the inputs of the calls that warm the variants of these names. The one of cold needs a task.
var warmth = map[string]string{
	"warm":     "size\nsum\nsleep 1\ncancelled\nlog 2 warm\nremember warmed\n",
	"warm-raw": "raw retry_after 3600000\nraw error_set @warm\nraw input_read 4 & 11\nraw input_size\nremember warmed\n",
	"cold":     "remember warmed\nget kit warm\n",
}

func warmed(name string) func(manifest string) string {
	return func(manifest string) string { return manifest + "warm: {input: " + name + ".txt}\n" }
}

// folder has the guest in all its variants.
func folder(t *testing.T, guest []byte) string {
	t.Helper()
	dir := t.TempDir()
	manifest, err := os.ReadFile("manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for name, input := range warmth {
		files[name+".txt"] = []byte(input)
	}
	for name, vary := range variants {
		files[name+".wasm"] = guest
		files[name+".yaml"] = []byte(addressed(vary(string(manifest))))
	}
	for name, contents := range files {
		if err := os.WriteFile(filepath.Join(dir, name), contents, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// addressed has the addresses of this run in their places.
func addressed(text string) string {
	return strings.NewReplacer("URL", shared.url, "CLOSED", shared.closed).Replace(text)
}

// bounded is the node for one test, which has its own time.
func (n *node) bounded(t *testing.T) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	one := *n
	one.ctx = ctx
	return &one
}

// start starts a host that serves a folder of plugins until the test ends, for a tenant of its own.
func start(t *testing.T, dir string) *node {
	t.Helper()
	server := queuetest.Shared(t)
	n := &node{tenant: queuetest.Tenant(), database: new(database)}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var log bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Output: &log})
	client, err := queue.NewFromRedis(server.Client(t), queue.Config{Tenant: n.tenant})
	if err != nil {
		t.Fatal(err)
	}
	n.client = client
	if err := client.Queue("mail.full").SetLimit(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Subscribe(ctx, queue.Subscription{ID: "kit", Topic: "kit.orders", Queue: "children"}); err != nil {
		t.Fatal(err)
	}
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Config{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := runtime.New(ctx, runtime.Config{CacheDir: shared.compiled})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	directory, err := plugins.New(engine, plugins.Config{Dir: dir, Tenants: []string{n.tenant}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	web := egress.New(egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(web.Close)
	databases := sql.New(sql.Config{Logger: logger})
	t.Cleanup(databases.Close)
	n.secrets = secrets(t, n.tenant)
	served, err := host.New([]*queue.Client{client}, directory, m, host.Config{
		Services: guest.Config{
			KV: map[string]*kv.Store{n.tenant: kv.New(server.Client(t), n.tenant)}, HTTP: web, Secrets: n.secrets, Databases: databases,
		},
		Cache: engine, Poll: 50 * time.Millisecond, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	n.serve(t, served, &log)
	return n
}

// serve runs the host; its log is read when it has ended.
func (n *node) serve(t *testing.T, served *host.Host, log *bytes.Buffer) {
	t.Helper()
	intake, terminate := context.WithCancel(context.Background())
	hurry, abandon := context.WithCancel(context.Background())
	n.terminate = terminate
	ended := make(chan error, 1)
	go func() { ended <- served.Run(intake, hurry) }()
	t.Cleanup(func() {
		defer abandon()
		terminate()
		if t.Failed() {
			abandon() // tasks may run; otherwise the host has more time to leave
		}
		if err := <-ended; err != nil {
			t.Errorf("the host ended: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the host:\n%s", log)
		}
	})
}

// database is the one that the plugin databases knows by three names.
type database struct {
	sync.Once
	err error // of making it
}

// withDatabase makes the database unless it is there.
func (n *node) withDatabase(t *testing.T) {
	t.Helper()
	server := postgrestest.Shared(t)
	n.database.Do(func() { n.database.err = n.makeDatabase(t, server) })
	if n.database.err != nil {
		t.Fatal(n.database.err)
	}
}

func (n *node) makeDatabase(t *testing.T, server *postgrestest.Server) error {
	t.Helper()
	database := server.Database(t)
	address, err := url.Parse(database)
	if err != nil {
		return err
	}
	owner, role := server.Connect(t, database), n.tenant+"_guest"
	err = owner.Script(n.ctx, `CREATE ROLE "`+role+`" LOGIN;
		CREATE TABLE notes (id text PRIMARY KEY, body text NOT NULL DEFAULT '');
		CREATE TABLE kinds (id text PRIMARY KEY, flag bool, small int2, large int8, exact numeric, real float8, word text, missing text,
			document jsonb, bytes bytea, numbers int8[], words text[], at timestamptz, ever timestamptz, key uuid, day date);
		INSERT INTO kinds VALUES ('a', true, -7, 9007199254740993, 1234567890123456789012345678901234567890.5, 'NaN', E'ü\n"', NULL,
			'null', '\x0061ff', '{1,NULL,9007199254740993}', '{NULL,"NULL","a \"b\\",""}', '2026-11-28 13:05:59.123456+00',
			'infinity', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '0044-03-15 BC');
		GRANT ALL ON notes, kinds TO "`+role+`"`)
	if err == nil {
		err = relay.Init(n.ctx, owner)
	}
	if err == nil {
		err = relay.GrantHandler(n.ctx, owner, role)
	}
	database = server.UserURL(role, strings.TrimPrefix(address.Path, "/"))
	for _, name := range []string{"shop", "ledger", "archive"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(n.secrets, n.tenant, "database."+name), []byte(database), 0o600))
	}
	return err
}

// secrets is a folder with those of a tenant.
func secrets(t *testing.T, tenant string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, tenant), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, tenant, "api_key"), []byte("a secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
