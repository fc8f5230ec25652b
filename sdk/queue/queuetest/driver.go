package queuetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// answerTimeout is the maximum time that the Python process can take for one command.
const answerTimeout = 30 * time.Second

// Driver is a Python process that obeys a test: each command is a line of JSON, as is its answer.
type Driver struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	stderr bytes.Buffer // read only after the process has ended

	mu     sync.Mutex // held for one command and its answer
	stdin  io.WriteCloser
	stdout *os.File
	lines  *bufio.Reader // reads stdout
}

// StartDriver starts a process with a script. name stands for it in errors. The process ends with the test.
func StartDriver(t testing.TB, name, script string, arguments ...string) *Driver {
	t.Helper()
	python, err := findPython()
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{t: t, name: name, cmd: exec.Command(python, append([]string{"-I", "-c", script}, arguments...)...)}
	d.cmd.Stderr = &d.stderr
	stdout, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.stdout, d.lines, d.cmd.Stdout = stdout, bufio.NewReader(stdout), write
	d.stdin, err = d.cmd.StdinPipe()
	if err = errors.Join(err, d.cmd.Start(), write.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.stdin.Close()
		d.Kill() // it may be waiting, and not read stdin
		_ = d.cmd.Wait()
		_ = stdout.Close()
		if t.Failed() && d.stderr.Len() > 0 {
			t.Logf("%s's stderr:\n%s", name, d.stderr.Bytes())
		}
	})
	return d
}

// Kill ends the process at once, like a crash.
func (d *Driver) Kill() { _ = d.cmd.Process.Kill() }

// Do runs one command and decodes its result into value. An exception fails the test.
func (d *Driver) Do(value any, command string, arguments ...any) {
	d.t.Helper()
	if err := d.try(value, command, arguments...); err != nil {
		d.t.Fatalf("%s: %s: %v", d.name, command, err)
	}
}

func (d *Driver) try(value any, command string, arguments ...any) error {
	if arguments == nil {
		arguments = []any{}
	}
	line, err := json.Marshal([]any{command, arguments})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.stdin.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the Python process has ended: %w", err)
	}
	_ = d.stdout.SetReadDeadline(time.Now().Add(answerTimeout))
	line, err = d.lines.ReadBytes('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no answer within %s", answerTimeout)
	}
	if err != nil {
		return fmt.Errorf("the Python process has ended: %w", err)
	}
	var answer struct {
		Value json.RawMessage
		Error string
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("read %q: %w", line, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, value)
}

// findVenv returns the path of the virtual environment that `make deps` makes. It is $QUERN_VENV, or build/venv in the
// nearest directory at or above the working directory that has a go.mod.
func findVenv() (string, error) {
	if venv := os.Getenv("QUERN_VENV"); venv != "" {
		return venv, nil
	}
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "build", "venv"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory: set QUERN_VENV to the virtual environment with Blueque")
		}
	}
	return "", err
}

// findPython returns the path of the virtual environment's interpreter.
func findPython() (string, error) {
	venv, err := findVenv()
	if err != nil {
		return "", err
	}
	python := filepath.Join(venv, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return "", fmt.Errorf("the Python environment with Blueque is missing (%w): run `make deps`", err)
	}
	return python, nil
}
