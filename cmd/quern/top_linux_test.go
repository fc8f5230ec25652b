package main

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// fullScreen is a terminal in which the program runs.
type fullScreen struct {
	t       *testing.T
	process *child
	pty     *os.File
	settled unix.Termios // the terminal as it was before

	mu      sync.Mutex // guards the fields below
	screen  *vt.Emulator
	raw     strings.Builder // all that came
	title   string
	changed chan struct{} // closed when more has come
}

// terminal runs the program in a terminal of that size.
func (u *user) terminal(width, height int, args ...string) *fullScreen {
	u.t.Helper()
	c := u.prepare(args...)
	c.Stdout, c.Stderr, c.Env = nil, nil, append(c.Env, "TERM=xterm-256color")
	main, tty, err := pty.Open()
	if err != nil {
		u.t.Fatal(err)
	}
	defer tty.Close()
	x := &fullScreen{t: u.t, process: c, pty: main, screen: vt.NewEmulator(width, height), changed: make(chan struct{})}
	x.resize(width, height)
	x.settled = x.modes()
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	x.screen.SetCallbacks(vt.Callbacks{Title: func(title string) { x.title = title }})
	if err := c.Start(); err != nil {
		u.t.Fatal(err)
	}
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(main, x.screen) }) // what the terminal answers
	copying.Go(func() {
		piece := make([]byte, 4096)
		for {
			n, err := main.Read(piece)
			if err != nil {
				return
			}
			x.mu.Lock()
			_, _ = x.screen.Write(piece[:n])
			x.raw.Write(piece[:n])
			close(x.changed)
			x.changed = make(chan struct{})
			x.mu.Unlock()
		}
	})
	u.t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		_ = main.Close()
		_ = x.screen.InputPipe().(io.Closer).Close() // Close of the screen itself races with its Read
		copying.Wait()
	})
	return x
}

func (x *fullScreen) modes() unix.Termios {
	x.t.Helper()
	modes, err := unix.IoctlGetTermios(int(x.pty.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return *modes
}

func (x *fullScreen) resize(width, height int) {
	x.t.Helper()
	x.mu.Lock()
	x.screen.Resize(width, height)
	x.mu.Unlock()
	if err := pty.Setsize(x.pty, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil { //nolint:gosec // of a test
		x.t.Fatal(err)
	}
}

func (x *fullScreen) press(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.pty, keys); err != nil {
		x.t.Fatal(err)
	}
}

// await waits until the screen shows a pattern, and returns it.
func (x *fullScreen) await(pattern string) string {
	x.t.Helper()
	late, wanted := time.After(time.Minute), regexp.MustCompile(pattern)
	for {
		x.mu.Lock()
		shown, changed := x.screen.String(), x.changed
		x.mu.Unlock()
		if wanted.MatchString(shown) {
			return shown
		}
		select {
		case <-changed:
		case <-late:
			x.t.Fatalf("no %s on the screen:\n%s", pattern, shown)
		}
	}
}

// leave presses keys that end the program, and checks that it leaves the terminal as it was.
func (x *fullScreen) leave(keys string) {
	x.t.Helper()
	x.press(keys)
	if state := x.process.wait(x.t); state.ExitCode() != 0 {
		x.t.Errorf("%v\n%s", state, x.screen.String())
	}
	if now := x.modes(); now != x.settled {
		x.t.Errorf("the terminal is %+v, and was %+v", now, x.settled)
	}
	eventually(x.t, "the screen is the usual one", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return !x.screen.IsAltScreen() && strings.Contains(x.raw.String(), "\x1b[?25h")
	})
}

// hostile is what a name or a message must not do to a terminal.
const hostile = "\x1b]0;pwned\x07\x1b[31mred\x1b[2J\u202egnp.exe\r\nfake"

// failHostile has a listener whose version is hostile fail a task with a hostile message.
func failHostile(t *testing.T, server *queuetest.Server) {
	t.Helper()
	client, err := queue.NewFromRedis(server.Client(t), queue.Config{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	node := listen.New(client)
	_, err = client.Queue("evil").EnqueueMany(t.Context(), []queue.Spec{{Options: queue.Options{ID: "evil"}}})
	if err = errors.Join(err, node.Join(t.Context()), node.Register(t.Context(), "evil")); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Renew(t.Context(), map[string]string{"kind": "go", "version": hostile}); err != nil {
		t.Fatal(err)
	}
	reply := node.Reserve(t.Context(), []listen.ReserveRequest{{Queue: "evil", Count: 1, Start: true, Plugin: "evil"}})[0]
	if len(reply.Tasks) != 1 {
		t.Fatalf("%+v", reply)
	}
	failure := listen.Settlement{Claim: reply.Tasks[0].Claim(), Failure: &queue.Failure{Reason: queue.ReasonError, Message: hostile}}
	if errs, err := node.Settle(t.Context(), "evil", []listen.Settlement{failure}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
}

// The views of a tenant on a small and on a large screen, with a host that runs tasks, over Redis and over the API.
func TestTop(t *testing.T) { overBoth(t, testTop) }

func testTop(t *testing.T, by over) {
	server := queuetest.Start(t)
	u := by.user(t, server.URL())
	failHostile(t, server)
	u.host(folder(t, map[string][]byte{"sleep": runtimetest.Sleep(t), "exit": runtimetest.Exit(t)}))
	u.must("enqueue", "sleep", "600000", "--id", "long", "--key", hostile)
	u.run("enqueue", "exit", "1", "--id", "bad", "--label", "evil="+hostile, "--wait")
	u.must("enqueue", "waiting", "x", "--id", "patient")
	u.must("queue", "pause", "waiting")

	x := u.terminal(80, 24, "top", "--every", "200ms")
	x.await(`(?s)1 Queues  2 Running.*waiting +1.*paused.*sleep +1`)
	u.must("enqueue", "waiting", "y", "--id", "second")
	x.await(`waiting +2`) // by itself
	x.resize(200, 50)
	x.await(`(?s)quern top .* error: .* \(\d more: quern doctor\).*QUEUE.*LISTENERS.*sleep`)
	x.press("/wait\r")
	if shown := x.await(`filter: wait`); strings.Contains(shown, "\nsleep") {
		t.Errorf("the filter leaves\n%s", shown)
	}
	x.press("\x1b")
	x.await(`\nsleep`)
	x.resize(40, 10)
	for i, line := range strings.Split(x.await(`(?s)QUEUE.*\nsleep`), "\n") {
		if len([]rune(line)) > 40 || i > 10 {
			t.Errorf("line %d: %q", i, line)
		}
	}
	x.resize(100, 30)

	x.await(`(?s)PENDING▾.*\nwaiting +2.*\nsleep`)
	x.press("s")
	x.await(`(?s)RUNNING▾.*\nsleep.*\nwaiting`)
	x.press("S")
	x.await(`(?s)RUNNING▴.*\nwaiting.*\nsleep`)
	x.press(" ")
	x.await(`paused, Space goes on`)
	x.press(" /wait\r\r")
	x.await(`(?s)\d\d:\d\d:\d\d.*waiting ◂ newest ▸.*second +pending.*patient +pending`)
	x.press("\x1b[C")
	x.await(`(?s)◂ scheduled ▸.*no such tasks`)
	x.press("\x1b[D\x1b[D")
	x.await(`(?s)◂ failed ▸`)
	x.press("\x1b")
	x.await(`(?s)RUNNING▴.*filter: wait`) // as it was

	x.press("2")
	x.await(`(?s)TASK.*RUNS.*long +sleep`)
	x.press("\r")
	x.await(`(?s)task +long.*key +·`)
	x.press("c")
	x.await(`cancel task long of sleep\?`)
	x.press("n")
	x.await(`Esc back`)
	if task := u.must("task", "show", "long", "-o", "json"); strings.Contains(task, "cancel") {
		t.Errorf("cancelled without a yes: %s", task)
	}
	x.press("cy")
	x.await(`its host is told to stop task long`)
	x.await(`status +failed`)
	x.press("3")
	x.await(`(?s)REASON.*(long|bad) .*(long|bad) `)
	x.await(`(?s)evil +evil .*error .*red`)
	x.press("/bad\r\r")
	x.await(`(?s)task +bad.*label +evil=·`)
	u.must("queue", "pause", "exit")
	x.press("ry")
	x.await(`task bad waits in its queue again`)
	x.await(`status +pending`)
	if task := u.must("task", "show", "bad"); !regexp.MustCompile(`status +pending`).MatchString(task) {
		t.Errorf("%s", task)
	}
	x.press("r")
	x.await(`only failed tasks are retried: this one is pending`)
	x.press("4")
	x.await(`(?s)LISTENER.*_\d+ +alive.*·\]0;pwned`)
	x.press("?")
	x.await(`another status`)
	x.press("xq")
	x.leave("")

	x.mu.Lock()
	defer x.mu.Unlock()
	if x.title == "pwned" || strings.Contains(x.raw.String(), "pwned\x07") || strings.Contains(x.raw.String(), "\u202e") {
		t.Error("a name has controlled the terminal")
	}
}

// While Redis is away the screen says so, and goes on when it is back. Ctrl-C leaves at any time.
func TestTopWithoutRedis(t *testing.T) {
	t.Parallel()
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	u := newUser(t, proxy.URL()+"?read_timeout=1s").with(map[string]string{"QUERN_TENANT": queuetest.Tenant()})
	u.must("enqueue", "mail", "x")
	x := u.terminal(100, 24, "top", "--every", "100ms")
	x.await(`mail +1`)
	proxy.Refuse()
	x.await(`(?s)mail +1.*cannot read; trying again, this is from .* ago`)
	proxy.Pass()
	x.await(`(?s)mail +1[^c]*Enter tasks`)
	x.leave("\x03")

	proxy.Refuse()
	if r := u.run("top"); r.status != exitUsage || !strings.Contains(r.stderr, "top needs a terminal") {
		t.Errorf("without a terminal: %+v", r)
	}
	_, screen := terminal(t)
	c := u.with(map[string]string{"TERM": "dumb"}).prepare("top")
	c.Stdin, c.Stdout = screen, screen
	if err := c.Run(); err == nil || !strings.Contains(c.stderr.String(), "TERM says that this one is dumb") {
		t.Errorf("in a dumb terminal: %v, %s", err, c.stderr)
	}
}

// A token that may not see payloads sees all else of a task, and nothing is written beside the screen.
func TestTopWithoutPayloads(t *testing.T) {
	t.Parallel()
	u, url, _, tokens := secured(t)
	u = u.with(map[string]string{"QUERN_SERVER": url, "QUERN_TOKEN": tokens["operator"]})
	u.must("enqueue", "mail", "confidential", "--id", "one")
	x := u.with(map[string]string{"QUERN_TOKEN": tokens["blind"]}).terminal(100, 24, "top", "--every", "100ms")
	x.await(`mail +1`)
	x.press("\r")
	x.await(`one +pending`)
	x.press("\r")
	x.await(`(?s)task +one.*status +pending`)
	x.leave("q")
	x.mu.Lock()
	defer x.mu.Unlock()
	if text := x.raw.String(); strings.Contains(text, "confidential") || strings.Contains(text, "may not see") {
		t.Errorf("%q", text)
	}
}

// NO_COLOR leaves out colors, and nothing else.
func TestTopWithoutColours(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": queuetest.Tenant()})
	u.must("enqueue", "mail", "x")
	u.must("enqueue", "reports", "x") // of the two, one is chosen and has no colors
	colors := regexp.MustCompile(`\x1b\[[0-9;]*3[0-9][0-9;]*m`)
	for name, want := range map[string]bool{"": true, "NO_COLOR": false} {
		x := u.with(map[string]string{name: "1"}).terminal(100, 24, "top", "--every", "100ms")
		x.await(`unserved`)
		if err := x.process.Process.Signal(unix.SIGHUP); err != nil { // q is pressed elsewhere
			t.Fatal(err)
		}
		x.leave("")
		x.mu.Lock()
		if got := colors.MatchString(x.raw.String()); got != want {
			t.Errorf("%s: colors %v: %q", name, got, x.raw.String())
		}
		x.mu.Unlock()
	}
}
