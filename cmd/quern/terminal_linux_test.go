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
		if err := c.Run(); err != nil || c.stderr.String() != "\n" { // the prompt begins on a line of its own
			t.Errorf("%v: %q", err, c.stderr)
		}
		shown := make([]byte, 100)
		n, err := person.Read(shown)
		if string(shown[:n]) != "größer" {
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
