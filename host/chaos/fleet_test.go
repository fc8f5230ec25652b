package chaos

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

const (
	tenant = "chaos"
	// maxAttempts and maxReschedules are how often the plugin's manifest lets a task fail, and put itself off.
	maxAttempts, maxReschedules = 3, 2
	// exitPatience is how much longer than its grace period a host may take to end.
	exitPatience = 30 * time.Second
)

// queues are all served by the one plugin.
var queues = []string{"alpha", "beta", "gamma"}

//go:embed testdata/work.c
var workSource string

// manifest bounds a task so that every slot fits into the smallest machine.
const manifest = `name: work
queues: [alpha, beta, gamma]
limits: {memory: 1MiB, input: 4KiB, output: 4KiB}
retry: {max_attempts: 3, max_reschedules: 2, base: 50ms, min: 50ms, max: 500ms}
`

// settings are what tests vary.
type settings struct {
	hosts, concurrency int
	lease, grace       time.Duration
	patience           time.Duration                                           // bounds the whole test
	within             []string                                                // the command that runs the hosts' own; none: they run as they are
	tenants            []string                                                // default: tenant
	arguments          []string                                                // more of the hosts'
	database           *database                                               // that the hosts relay; nil for none
	bad                func(digest string) bool                                // reports whether a version of a plugin ends its hosts; may be nil
	apart              bool                                                    // each host has a plugin directory and a cache of its own
	oneCache           bool                                                    // if apart: they share the cache all the same, as hosts of one machine do
	heard              func(p *process, line logLine)                          // is called with each line of a log; may be nil
	startRedis         func(t testing.TB, options ...string) *queuetest.Server // default: queuetest.Start
	setClock           func(ahead time.Duration)                               // sets the clock of the last Redis that startRedis has started; may be nil
}

// fleet is some hosts with their Redis, and what their logs have told.
type fleet struct {
	settings
	t       testing.TB
	ctx     context.Context
	redis   *queuetest.Server // the primary
	address *relay            // leads to redis
	rdb     *redis.Client     // not through a proxy
	client  *queue.Client     // on that connection
	plugins string
	journal *journal
	hosts   []*host
}

// host is a place in the fleet: one process after the other.
type host struct {
	fleet   *fleet
	name    string
	plugins string // the plugin directory
	proxy   *proxy

	fate    sync.Mutex // is held from when somebody ends the process until the next one has started
	mu      sync.Mutex
	current *process   // guarded by mu
	all     []*process // every one that there was; guarded by mu
}

// newFleet starts Redis and the hosts, and returns when all of them serve.
func newFleet(t testing.TB, s settings) *fleet {
	t.Helper()
	f := &fleet{settings: s, t: t, plugins: t.TempDir(), journal: newJournal()}
	f.redis = f.newRedis()
	var cancel context.CancelFunc
	f.ctx, cancel = context.WithTimeout(context.Background(), s.patience)
	t.Cleanup(cancel)
	f.address = newRelay(t, f.redis.Addr())
	f.connect()
	f.put("work", manifest, runtimetest.BuildC(t, workSource))
	t.Cleanup(f.end)
	for i := range s.hosts { // not at once, so that their renewals are not either
		sleep(f.ctx, s.lease/3/time.Duration(s.hosts))
		h := &host{fleet: f, name: hostName(i), plugins: f.pluginsOf(i), proxy: newProxy(t, f.address.addr())}
		f.hosts = append(f.hosts, h)
		if err := h.start(); err != nil {
			t.Fatal(err)
		}
	}
	f.serve(queues...)
	return f
}

// newRedis starts a server that writes each change to its disk before it answers.
func (f *fleet) newRedis() *queuetest.Server {
	f.t.Helper()
	start := f.startRedis
	if start == nil {
		start = queuetest.Start
	}
	return start(f.t, "--appendonly", "yes", "--appendfsync", "always")
}

// put gives the hosts a plugin, the manifest first.
func (f *fleet) put(name, manifest string, module []byte) {
	f.t.Helper()
	for i := range f.settings.hosts {
		file := filepath.Join(f.pluginsOf(i), name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file+".yaml", []byte(manifest), 0o600), os.WriteFile(file+".wasm", module, 0o600))
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// pluginsOf is the plugin directory of a host.
func (f *fleet) pluginsOf(i int) string {
	if f.apart {
		return filepath.Join(f.plugins, strconv.Itoa(i))
	}
	return f.plugins
}

// serve waits until all hosts serve these queues.
func (f *fleet) serve(queues ...string) {
	f.t.Helper()
	for _, h := range f.hosts {
		if !until(f.ctx, func() bool { return h.process().serves(queues...) }) {
			f.t.Fatalf("%s never served:\n%s", h.name, h.process().tail())
		}
	}
}

// connect connects the test itself to Redis.
func (f *fleet) connect() {
	f.t.Helper()
	f.rdb = redis.NewClient(&redis.Options{Addr: f.address.addr(), MaxRetries: -1})
	f.t.Cleanup(func() { _ = f.rdb.Close() })
	var err error
	if f.client, err = queue.NewFromRedis(f.rdb, queue.Config{Tenant: tenant}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(releasePlugins(f.ctx, f.client, f.bad))
}

// releasePlugins ends quarantines as they come, as somebody would who knows that it is not the plugin that ends the
// hosts, until the function that it returns is called. bad reports whether a version does end the hosts; it may be nil.
func releasePlugins(ctx context.Context, client *queue.Client, bad func(digest string) bool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for sleep(ctx, time.Second) {
			quarantines, _ := listen.NewFleet(client).Quarantines(ctx) // Redis may be away
			for _, q := range quarantines {
				if bad != nil && bad(q.Digest) {
					continue
				}
				_ = manage.New(client).EndQuarantine(ctx, q.Plugin, q.Digest)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// end kills what runs, and shows what the hosts complained of if the test failed.
func (f *fleet) end() {
	for _, h := range f.hosts {
		h.mu.Lock()
		all := h.all
		h.mu.Unlock()
		for i, p := range all {
			p.signal(syscall.SIGKILL)
			<-p.ended
			if f.t.Failed() {
				f.t.Logf("complaints of %s, process %d of %d:\n%s", h.name, i+1, len(all), p.tail())
			}
		}
	}
}

// eventually waits for a condition, or ends the test.
func (f *fleet) eventually(what string, condition func() bool) {
	f.t.Helper()
	if !until(f.ctx, condition) {
		f.t.Fatalf("never: %s", what)
	}
}

// arguments are those of `quern serve` for a host.
func (h *host) arguments() []string {
	tenants := h.fleet.tenants
	if tenants == nil {
		tenants = []string{tenant}
	}
	arguments := h.fleet.settings.arguments
	if d := h.fleet.database; d != nil {
		arguments = append(slices.Clone(arguments), "--sources", d.sources)
	}
	cache := cache
	if h.fleet.apart && !h.fleet.oneCache {
		cache = h.plugins + ".cache"
	}
	return append([]string{
		"serve", "--redis", h.proxy.url(), "--tenants", strings.Join(tenants, ","), "--plugins", h.plugins,
		"--concurrency", strconv.Itoa(h.fleet.concurrency), "--lease", h.fleet.lease.String(), "--grace", h.fleet.grace.String(),
		"--max-crashes", "1000", // nothing that a fault does is to end a task
		"--allow-networks", "127.0.0.0/8", // where the receiver of webhooks is
		"--cache", cache, "--log-level", "debug", "--log-format", "json", "--http", "127.0.0.1:0",
	}, arguments...)
}

func hostName(i int) string { return fmt.Sprintf("host %d", i) }

// process is the one that runs now, or ran last.
func (h *host) process() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// start starts a process in place of the one that has ended.
func (h *host) start() error {
	p, err := newProcess(h)
	if err != nil {
		return fmt.Errorf("start %s: %w", h.name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.current = p
	h.all = append(h.all, p)
	return nil
}

// kill ends the process as a crash would.
func (h *host) kill() {
	p := h.process()
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// terminate ends the process as an operator would, and waits until it has.
func (h *host) terminate() error {
	p := h.process()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(h.fleet.grace + exitPatience):
		h.kill()
		return fmt.Errorf("%s had not ended %s after its grace period of %s", h.name, exitPatience, h.fleet.grace)
	}
}

// process is one life of a host.
type process struct {
	host  *host
	shell *exec.Cmd
	stdin io.Closer // closing it ends the process
	pid   int
	ended chan struct{} // closed when it has ended and its log is read to the end

	mu         sync.Mutex
	dying      atomic.Bool
	told       bool     // somebody ended it; guarded by mu
	listener   string   // the ID of its last session; guarded by mu
	webhooks   string   // the same of its deliveries; guarded by mu
	served     []string // the queues that it has registered for; guarded by mu
	reclaims   []string // the listeners that it took for dead; guarded by mu
	http       string   // where it serves its metrics; guarded by mu
	admin      string   // where it serves its API; guarded by mu
	complaints []string // the last lines of its log that are no routine; guarded by mu
}

// newProcess runs the program under a shell that waits for the end of its own stdin: when the test
// dies, however, the pipe closes and the shell ends the host. The process ID is nobody else's until
// the shell has ended.
func newProcess(h *host) (*process, error) {
	const guard = `"$@" </dev/null >/dev/null & pid=$!; echo $pid; exec >/dev/null 2>&1; read _; kill -9 $pid; wait $pid`
	p := &process{host: h, ended: make(chan struct{})}
	p.shell = exec.Command("sh", slices.Concat([]string{"-c", guard, "quern-guard"}, h.fleet.within, []string{program}, h.arguments())...)
	p.shell.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.fleet.plugins}
	p.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the test's to handle
	var err error
	if p.stdin, err = p.shell.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.shell.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := p.shell.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.shell.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	go p.read(stderr)
	if err != nil {
		_ = p.stdin.Close()
		return nil, fmt.Errorf("read process ID: %w", err)
	}
	return p, nil
}

// read reads the log to its end, which is that of the process.
func (p *process) read(log io.Reader) {
	defer close(p.ended)
	if dir := os.Getenv("QUERN_CHAOS_LOGS"); dir != "" {
		if file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s.%d.log", p.host.name, p.pid))); err == nil {
			defer file.Close()
			log = io.TeeReader(log, file)
		}
	}
	lines := bufio.NewReader(log)
	for {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			p.hear(text)
		}
		if err != nil {
			break
		}
	}
	_ = p.stdin.Close()
	_ = p.shell.Wait() // its status is the host's
}

// logLine is what is of interest in a line of the log.
type logLine struct {
	Level    string    `json:"@level"`
	Message  string    `json:"@message"`
	Line     string    `json:"line"` // of a guest
	Time     time.Time `json:"@timestamp"`
	Listener string    `json:"listener"`
	Dead     string    `json:"dead"`
	HTTP     string    `json:"http"`
	Admin    string    `json:"admin"`
	Tenant   string    `json:"tenant"`
	Queue    string    `json:"queue"`
	Plugin   string    `json:"plugin"`
	Version  string    `json:"version"`
	TaskID   string    `json:"task_id"`
	Run      int64     `json:"run"`
	Outcome  string    `json:"outcome"`
	Took     float64   `json:"took_seconds"`
	Release  int       `json:"release"`
}

func (p *process) hear(text []byte) {
	var line logLine
	err := json.Unmarshal(text, &line)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || line.Level == "warn" || line.Level == "error" {
		p.complaints = append(p.complaints[max(0, len(p.complaints)-29):], string(text))
	}
	if heard := p.host.fleet.heard; heard != nil {
		heard(p, line)
	}
	switch {
	case line.HTTP != "":
		p.http = line.HTTP
	case line.Admin != "":
		p.admin = line.Admin
	case line.Dead != "":
		p.reclaims = append(p.reclaims, line.Dead)
	case line.Message == "joined" && line.Tenant == tenant:
		p.listener, p.served = line.Listener, nil
	case line.Message == "delivering webhooks" && line.Tenant == tenant:
		p.webhooks = line.Listener
	case line.Message == "serving queue":
		p.served = append(p.served, line.Queue)
	case line.Message == "task started":
		p.host.fleet.journal.started(p, line)
	case line.TaskID != "" && line.Outcome != "":
		p.host.fleet.journal.ended(line, p)
	}
}

func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.complaints, "")
}

// serves tells whether the process has registered for every one of these queues.
func (p *process) serves(queues ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(queues, func(name string) bool { return !slices.Contains(p.served, name) })
}

// api is the address of its API; "" before it listens there.
func (p *process) api() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admin
}

// peakMemory is the most memory that the process has had resident, in bytes.
func (p *process) peakMemory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return 0, err
	}
	_, peak, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(peak)[0], 10, 64)
	return kib << 10, err
}

// ids are the listener IDs by which the process is known now; webhooks is "" if it delivers none.
func (p *process) ids() (id, webhooks string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener, p.webhooks
}

// signal sends a signal to the process, unless it has ended.
func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.ended:
		return
	default:
	}
	if s == syscall.SIGTERM || s == syscall.SIGKILL {
		p.mu.Lock()
		p.told = true
		p.mu.Unlock()
	}
	_ = syscall.Kill(p.pid, s) // it may just have ended
}

// killed tells whether the process has ended by a SIGKILL.
func (p *process) killed() bool {
	select {
	case <-p.ended:
		return p.shell.ProcessState.ExitCode() == 128+int(syscall.SIGKILL)
	default:
		return false
	}
}

// check says what is wrong with how the process goes, or went.
func (p *process) check() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.told {
		return errors.New("ended, although nobody told it to: " + p.shell.ProcessState.String())
	}
	return nil
}
