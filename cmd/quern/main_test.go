package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// shared is the folder of what all tests have in common: the binary, and compiled plugins.
var shared string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "compiler" || os.Args[1] == "crash-monitor") {
		beChild()
	}
	if len(os.Args) > 1 && os.Args[1] == measured {
		measure(os.Args[2:])
	}
	logging.Disable()
	_ = flag.Set("test.parallel", "4") // many wait more than they compute
	// Each host that runs in this process would bound the heap of all of them, and the collector would do nothing else.
	if os.Getenv("GOMEMLIMIT") == "" {
		_ = os.Setenv("GOMEMLIMIT", "4GiB")
	}
	var err error
	if shared, err = os.MkdirTemp("", "quern-test-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// wazero notes its own version when the first engine is made, without a lock; tests make many at once.
	if engine, err := runtime.New(context.Background(), runtime.Config{}); err == nil {
		_ = engine.Close(context.Background())
	}
	removeCompiler, err := linkCompiler()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := queuetest.Main(m)
	postgrestest.End()
	removeCompiler()
	if err := os.RemoveAll(shared); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// compilerLink is what lies beside the test's program for the time of the tests: a link to the program as it is built for
// users, without the race detector, with which the compiler takes ten times as long.
const compilerLink = ".compiler"

func linkCompiler() (remove func(), err error) {
	test, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program, err := binary()
	if err != nil {
		return nil, err
	}
	link := test + compilerLink
	_ = os.Remove(link) // of a run that was killed
	return func() { _ = os.Remove(link) }, os.Symlink(program, link)
}

// beChild is the child of a host in a test, which has started this program to compile a plugin, or to watch it.
func beChild() {
	test, err := os.Executable()
	if err == nil {
		err = syscall.Exec(test+compilerLink, os.Args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// measured makes the test's program run another one, and tell the most memory that it or a child of it had. The figure
// that the system keeps of a process includes that of the one which started it, so that has to be a small one.
const measured = "measured"

func measure(arguments []string) {
	cmd := exec.Command(arguments[0], arguments[1:]...)
	cmd.Stderr = os.Stderr
	status := 0
	if err := cmd.Run(); err != nil {
		status = cmd.ProcessState.ExitCode()
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = -1
	}
	fmt.Println(usage.Maxrss)
	os.Exit(status)
}

// What a shell sees.
const (
	exitDone = iota
	exitFailed
	exitUsage
	exitRefused
)

// testTimeout bounds every wait of a test.
const testTimeout = 4 * time.Minute

// user is somebody at a shell, with an environment of their own.
type user struct {
	t   *testing.T
	env map[string]string
	// server is the URL of the API by which client commands work, "" if they use Redis.
	server string
	// built runs commands as the program is built for users.
	built bool
}

// here is with for what runs in this process, which other tests share.
func (u *user) here() *user { return u.with(map[string]string{"QUERN_CONFINE": "off"}) }

// newUser is a user whose variables name a Redis, "" for none.
func newUser(t *testing.T, redisURL string) *user {
	t.Helper()
	caches, err := goCaches()
	if err != nil {
		t.Fatal(err)
	}
	u := &user{t: t, env: map[string]string{
		"XDG_RUNTIME_DIR": t.TempDir(), "XDG_CACHE_HOME": filepath.Join(shared, "cache"),
		"QUERN_ENGINES": runtimetest.Engines(t), "GOCACHE": caches.build,
	}}
	if redisURL != "" {
		u.env["QUERN_REDIS_URL"] = redisURL
	}
	return u
}

// caches are the folders of Go's caches.
type caches struct{ modules, build string }

// goCaches are those of this machine. Without its build cache, the tests would compile the standard library anew.
var goCaches = sync.OnceValues(func() (caches, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return caches{}, fmt.Errorf("find Go's caches: %w", err)
	}
	modules, build, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return caches{modules, build}, nil
})

// with is the same user with more variables.
func (u *user) with(variables map[string]string) *user {
	more := &user{t: u.t, env: maps.Clone(u.env), server: u.server, built: u.built}
	maps.Copy(more.env, variables)
	return more
}

// over names the ways in which client commands reach a tenant.
type over string

// overBoth runs a test with client commands that use Redis, and again with such that use the API of a server: a user sees the same.
func overBoth(t *testing.T, test func(t *testing.T, by over)) {
	t.Helper()
	t.Parallel()
	for _, by := range []over{"redis", "server"} {
		t.Run(string(by), func(t *testing.T) {
			t.Parallel()
			test(t, by)
		})
	}
}

// user is a user whose client commands work in this way. A server of the API serves the tenants, at least the default one.
func (by over) user(t *testing.T, redisURL string, tenants ...string) *user {
	t.Helper()
	u := newUser(t, redisURL)
	if by == "server" {
		c := u.start("admin", "--admin", "127.0.0.1:0", "--tenants", strings.Join(append(tenants, queue.DefaultTenant), ","))
		u.server = "http://" + c.stderr.await(t, adminListening)
	}
	return u
}

// of is the same user as the command sees them: those that are no clients use Redis always.
func (u *user) of(args []string) *user {
	if u.server == "" || slices.Contains([]string{"serve", "admin", "bench", "dev"}, args[0]) {
		return u
	}
	client := u.with(map[string]string{"QUERN_SERVER": u.server})
	delete(client.env, "QUERN_REDIS_URL")
	return client
}

// tenant is a user with a tenant of their own of the shared Redis.
func (by over) tenant(t *testing.T) *user {
	t.Helper()
	name := queuetest.Tenant()
	return by.user(t, queuetest.Shared(t).URL(), name).with(map[string]string{"QUERN_TENANT": name, "QUERN_TENANTS": name})
}

func (u *user) lookup(name string) (string, bool) {
	value, ok := u.env[name]
	return value, ok
}

// result is what a shell sees of a command that has ended.
type result struct {
	status         int
	stdout, stderr string
}

// asBuilt is the same user with the program as it is built for users, as a process: for modules of many MiB, for which the race
// detector takes ten times as long.
func (u *user) asBuilt() *user {
	more := u.with(nil)
	more.built = true
	return more
}

// run runs the program to its end, in this process unless the user wants it as it is built.
func (u *user) run(args ...string) result { return u.feed("", args...) }

// feed is run with something on stdin.
func (u *user) feed(stdin string, args ...string) result {
	u.t.Helper()
	if u.built {
		c := u.prepare(args...)
		c.Env, c.Stdin = append(os.Environ(), c.Env...), strings.NewReader(stdin)
		if err := c.Start(); err != nil {
			u.t.Fatal(err)
		}
		return result{c.wait(u.t).ExitCode(), c.stdout.String(), c.stderr.String()}
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), testTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	err := run(ctx, args, u.of(args).here().lookup, strings.NewReader(stdin), &stdout, &stderr)
	return result{cli.Report(err, &stderr), stdout.String(), stderr.String()}
}

// must is run of what must succeed; it returns stdout.
func (u *user) must(args ...string) string {
	u.t.Helper()
	r := u.run(args...)
	if r.status != exitDone {
		u.t.Fatalf("quern %s: exit %d: %s", strings.Join(args, " "), r.status, r.stderr)
	}
	return r.stdout
}

// command is a command that runs beside the test.
type command struct {
	t      *testing.T
	stdout *output
	stderr *output
	stop   context.CancelFunc // as the first SIGTERM
	ended  chan struct{}      // closed when status is set
	status int
}

// start runs the program; it ends with the test at the latest. A host is a process of its own, confined as users have
// it, unless the race detector is to see it.
func (u *user) start(args ...string) *command {
	u.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{t: u.t, stdout: newOutput(), stderr: newOutput(), stop: cancel, ended: make(chan struct{})}
	if args[0] == "serve" && !raced || u.built {
		process := u.prepare(args...)
		process.Stdout, process.Stderr = c.stdout, c.stderr
		if err := process.Start(); err != nil {
			u.t.Fatal(err)
		}
		context.AfterFunc(ctx, func() { _ = process.Process.Signal(syscall.SIGTERM) })
		go func() {
			defer close(c.ended)
			_ = process.Wait() // the state tells
			c.status = process.ProcessState.ExitCode()
		}()
	} else {
		go func() {
			defer close(c.ended)
			c.status = cli.Report(run(ctx, args, u.of(args).here().lookup, strings.NewReader(""), c.stdout, c.stderr), c.stderr)
		}()
	}
	u.t.Cleanup(func() {
		cancel()
		<-c.ended
		if u.t.Failed() {
			u.t.Logf("quern %s: exit %d\n%s", strings.Join(args, " "), c.status, c.stderr)
		}
	})
	return c
}

// wait returns the exit status when the command has ended.
func (c *command) wait() int {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(testTimeout):
		c.t.Fatalf("the command has not ended; it said:\n%s", c.stderr)
	}
	return c.status
}

// listening is the address that a host has logged.
func (c *command) listening() string {
	c.t.Helper()
	return c.stderr.await(c.t, regexp.MustCompile(`listening: .*http=(\S+)`))
}

// host runs `quern serve` on a plugin directory, and returns when it is ready and
// listens.
func (u *user) host(plugins string, args ...string) (c *command, address string) {
	u.t.Helper()
	c = u.start(append([]string{"serve", "--plugins", plugins, "--http", "127.0.0.1:0"}, args...)...)
	address = c.listening()
	awaitStatus(u.t, "http://"+address+"/readyz", http.StatusOK)
	c.serving(plugins)
	return c, address
}

// serving waits until a host listens to the queues of the plugins in its directory, or refuses them.
func (c *command) serving(plugins string) {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(plugins, "*.wasm"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, file := range files {
		name := regexp.QuoteMeta(strings.TrimSuffix(filepath.Base(file), ".wasm"))
		c.stderr.await(c.t, regexp.MustCompile(`(serving queue: .*queue=`+name+`\n|plugin refused: plugin=`+name+` )`))
	}
}

// output is what a command writes while others read it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed and replaced at each write; guarded by mu
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until the pattern matches, and returns its last group.
func (o *output) await(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	deadline := time.After(testTimeout)
	for {
		o.mu.Lock()
		found, more := pattern.FindStringSubmatch(o.text.String()), o.more
		o.mu.Unlock()
		if found != nil {
			return found[len(found)-1]
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("%s does not match:\n%s", pattern, o)
		}
	}
}

// eventually waits until ok says so. ok runs on the test's own goroutine: it may end the test, and it keeps its thread.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	again := time.NewTicker(20 * time.Millisecond) // many ask by a command
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// folder makes a plugin directory of modules by their names, which may be TENANT/NAME.
func folder(t *testing.T, modules map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, module := range modules {
		write(t, filepath.Join(dir, name+".wasm"), string(module))
	}
	return dir
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// binary builds the program, once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(shared, "quern")
	build := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as for users; so what TestDist builds is compiled once
	out, err := build.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build quern: %w\n%s", err, out)
	}
	return path, err
})

// ofProcesses skips a test of processes under the race detector, which sees none of them: the test runs without it.
func ofProcesses(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("the race detector sees none of its processes")
	}
}

// child is the program as a process of its own.
type child struct {
	*exec.Cmd
	stdout, stderr *output
}

// spawn starts the program as a process; it ends with the test at the latest.
func (u *user) spawn(args ...string) *child {
	u.t.Helper()
	c := u.prepare(args...)
	if err := c.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		if u.t.Failed() {
			u.t.Logf("quern %s: %s\n%s", strings.Join(args, " "), c.ProcessState, c.stderr)
		}
	})
	return c
}

// prepare is spawn of what is not started yet.
func (u *user) prepare(args ...string) *child {
	u.t.Helper()
	path, err := binary()
	if err != nil {
		u.t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(path, args...), stdout: newOutput(), stderr: newOutput()}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.t.TempDir()}
	for name, value := range u.of(args).env {
		c.Env = append(c.Env, name+"="+value)
	}
	c.Stdout, c.Stderr = c.stdout, c.stderr
	return c
}

// wait waits for the end of the process and returns how it ended.
func (c *child) wait(t *testing.T) *os.ProcessState {
	t.Helper()
	timer := time.AfterFunc(testTimeout, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	_ = c.Wait() // the state tells
	return c.ProcessState
}

// golden compares text with testdata/NAME.golden.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update && !strings.HasSuffix(t.Name(), "/server") { // what Redis users see is what all see
		write(t, path, text)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := udiff.Unified(path, "printed", string(want), text); diff != "" {
		t.Errorf("%s is not what is printed: `go test -update` writes it anew\n%s", path, diff)
	}
}

// transcript is what a user has typed and seen, for golden files: stdout as it is, stderr behind "! ".
type transcript struct {
	*user
	text strings.Builder
}

func (s *transcript) run(args ...string) { s.feed("", args...) }

func (s *transcript) feed(stdin string, args ...string) {
	s.t.Helper()
	r := s.user.feed(stdin, args...)
	words := []string{"$ quern"}
	for _, arg := range args {
		if strings.ContainsAny(arg, " \n'\"[]{}!*") || arg == "" {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	if stdin != "" {
		words = append(words, "<<<", fmt.Sprintf("%q", stdin))
	}
	fmt.Fprintf(&s.text, "%s\n%s", strings.Join(words, " "), r.stdout)
	if r.stdout != "" && !strings.HasSuffix(r.stdout, "\n") {
		s.text.WriteString("<no newline>\n")
	}
	for line := range strings.Lines(r.stderr) {
		s.text.WriteString("! " + line)
	}
	fmt.Fprintf(&s.text, "[exit %d]\n\n", r.status)
}

// what differs from one run to the next, and what stands for it in golden files.
func (s *transcript) String() string {
	text := s.text.String()
	for _, rule := range []struct{ pattern, with string }{
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UUID"},
		{`[^\s",]+~[0-9a-f]{8}_\d+`, "NODE"},
		{`"pid":\d+`, `"pid":PID`},
		{`(?m)^(pid +)\d+$`, "${1}PID"},
		{`\b1\d{9}\.\d{1,6}\b`, "TIME"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \w+`, "DATE"},
		{`sha256:[0-9a-f]{12,64}`, "DIGEST"},
		{`\b\d+\.\ds\b`, "AGE"},
		{`"who":"[^"]*","since"`, `"who":"WHO","since"`},
		{`since \S+Z by [^ :]+`, "since TIME by WHO"},
		{`(?m)((no|yes) +(none|\d+) +)\d+(\.\d+)?m?s( +\d+ +\d+)?$`, "${1}AGE$5"},
		{`((_pending_age|"run|"delay)_seconds":)\d+(\.\d+(e-\d+)?)?`, "${1}AGE"},
		{`v0\.0\.0-\d{14}-[0-9a-f]{12}(\+dirty)?`, "(devel)"}, // of a test that is built of a commit
		{`"uptime_seconds":\d+`, `"uptime_seconds":UPTIME`},
		{`"memory_reserved":1\d{8}`, `"memory_reserved":RESERVED`}, // for the task, its snapshot and what its plugin keeps
		{`(?m)( +)\d+s( +127\.0\.0\.1:\d+)$`, "${1}UPTIME$2"},
		{`at http://127\.0\.0\.1:\d+`, "at 127.0.0.1:PORT"},
		{`127\.0\.0\.1:\d+`, "127.0.0.1:PORT"},
		{regexp.QuoteMeta(os.TempDir()) + `/\w+/\d+`, "DIR"},
		{`  +`, "  "},
		{`(?m) +$`, ""},
	} {
		text = regexp.MustCompile(rule.pattern).ReplaceAllString(text, rule.with)
	}
	return text
}

// get reads a page; the status is 0 if there is none.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(content)
}

// awaitStatus waits until a page has a status.
func awaitStatus(t *testing.T, url string, want int) {
	t.Helper()
	eventually(t, url, func() bool {
		status, _ := get(t, url)
		return status == want
	})
}
