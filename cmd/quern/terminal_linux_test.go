package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// terminal opens a pseudo-terminal: what a person sees, and what a program writes to.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// A terminal gets text, and nothing that it would obey.
func TestResultOnTerminal(t *testing.T) {
	t.Parallel()
	plugins := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)})
	for name, result := range map[string]string{"Escape": "\x1b]0;title\a", "Bytes": "\xff\xd8\xff"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, screen := terminal(t)
			c := newUser(t, "").prepare("plugin", "run", plugins+"/echo.wasm")
			c.Stdin, c.Stdout = strings.NewReader(result), screen
			_ = c.Run()
			want := fmt.Sprintf("quern: the result has %d bytes that are not plain text, which a terminal should not get: run it again with > FILE\n", len(result))
			if c.ProcessState.ExitCode() != exitRefused || c.stderr.String() != want {
				t.Errorf("%s: %s", c.ProcessState, c.stderr)
			}
		})
	}
	t.Run("Text", func(t *testing.T) {
		t.Parallel()
		person, screen := terminal(t)
		c := newUser(t, "").prepare("plugin", "run", plugins+"/echo.wasm")
		c.Stdin, c.Stdout = strings.NewReader("größer"), screen
		if err := c.Run(); err != nil || c.stderr.String() != "" {
			t.Errorf("%v: %q", err, c.stderr)
		}
		shown := make([]byte, 100)
		n, err := person.Read(shown)
		if string(shown[:n]) != "größer\r\n" { // the prompt begins on a line of its own
			t.Errorf("%q: %v", shown[:n], err)
		}
	})
	t.Run("StdinIsOne", func(t *testing.T) {
		t.Parallel()
		person, keyboard := terminal(t)
		c := newUser(t, "").prepare("plugin", "run", plugins+"/echo.wasm")
		c.Stdin = keyboard
		if _, err := person.WriteString("typed\n\x04"); err != nil {
			t.Fatal(err)
		}
		_ = c.Run()
		if c.stdout.String() != "typed\n" || !strings.Contains(c.stderr.String(), "Ctrl-D ends them") {
			t.Errorf("%s: %q, %q", c.ProcessState, c.stdout, c.stderr)
		}
	})
}

// A terminal sees how far the file is.
func TestEnqueueFileOnTerminal(t *testing.T) {
	t.Parallel()
	u, client := newProducer(t, queuetest.Shared(t).URL())
	person, screen := terminal(t)
	file := write(t, filepath.Join(t.TempDir(), "tasks.jsonl"), lines(1, 3000))
	c := u.prepare("enqueue", "mail", "--file", file, "--id", "x")
	c.Stderr = screen
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if err := screen.Close(); err != nil {
		t.Fatal(err)
	}
	shown, _ := io.ReadAll(person) // its end is an error
	if !regexp.MustCompile(`^(\r\x1b\[K\d+ lines, \d+ tasks/s, \d+ %)+\r\x1b\[K$`).Match(shown) {
		t.Errorf("%q", shown)
	}
	enqueuedOnce(t, client, "x", 3000)
}

// A person's terminal gets tables that fit, colors unless NO_COLOR forbids them, and how long ago things were; a pipe gets everything,
// and text alone.
func TestTablesOnTerminal(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	modules := map[string][]byte{}
	for i := range 30 {
		modules[fmt.Sprintf("q%03d", i)] = runtimetest.Echo(t)
	}
	u.host(folder(t, modules))
	u.must("enqueue", "q000", "--wait", "--id", "one", "--key", strings.Repeat("long ", 20))
	show := func(u *user, args ...string) string {
		t.Helper()
		person, program := terminal(t)
		if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
			t.Fatal(err)
		}
		c := u.prepare(args...)
		c.Stdout = program
		if err := c.Run(); err != nil {
			t.Fatal(err, c.stderr)
		}
		if err := program.Close(); err != nil {
			t.Fatal(err)
		}
		shown, _ := io.ReadAll(person) // its end is an error
		return strings.ReplaceAll(string(shown), "\r\n", "\n")
	}
	expect := func(shown string, patterns ...string) {
		t.Helper()
		for _, pattern := range patterns {
			if !regexp.MustCompile(pattern).MatchString(shown) {
				t.Errorf("%s does not match:\n%s", pattern, shown)
			}
		}
	}
	expect(show(u, "node", "ls"), `(?m) q000 \+29( |$)`, `\x1b\[32malive\x1b\[0m`)
	expect(show(u, "task", "ls"), `(?m)^one .* \x1b\[32mcomplete\x1b\[0m .*long l.*…$`)
	expect(show(u, "task", "show", "one"), `(?m)^status +\x1b\[32mcomplete`, `(?m)^created +\S+ \S+ UTC \(\d+\.\ds ago\)$`, `(long ){20}`)
	for line := range strings.Lines(show(u.with(map[string]string{"NO_COLOR": "1"}), "task", "ls")) {
		if strings.Contains(line, "\x1b") || len([]rune(line)) > 81 {
			t.Errorf("%d characters: %q", len([]rune(line)), line)
		}
	}
	expect(u.must("node", "ls"), `q000,q001,q002,.*,q029`)
	if out := u.must("task", "show", "one"); strings.ContainsAny(out, "\x1b") || strings.Contains(out, " ago)") {
		t.Error(out)
	}
}

// While somebody waits, a terminal shows what becomes of the task in one line; the result alone is on stdout.
func TestWaitOnTerminal(t *testing.T) {
	t.Parallel()
	u := newUser(t, queuetest.Start(t).URL())
	u.must("enqueue", "mail", "--id", "one", "--delay", "1h")
	person, program := terminal(t)
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 24}); err != nil {
		t.Fatal(err)
	}
	c := u.prepare("task", "wait", "one")
	c.Stderr = program
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	shown := make([]byte, 100)
	n, err := person.Read(shown)
	if err != nil || !regexp.MustCompile(`^\r\x1b\[Kscheduled, waiting for …`).Match(shown[:n]) {
		t.Errorf("%q, %v", shown[:n], err)
	}
	u.must("task", "cancel", "one")
	c.wait(t)
	if c.stdout.String() != "" || c.ProcessState.ExitCode() != exitFailed {
		t.Errorf("%s: %s", c.ProcessState, c.stdout)
	}
}
