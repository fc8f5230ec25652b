package queuetest

import (
	"bufio"
	"bytes"
	_ "embed"
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

//go:embed blueque.py
var driver string

// answerTimeout is the maximum time that the Python process can take for one command.
const answerTimeout = 30 * time.Second

// Blueque is a Python process with the real Blueque package. The package knows only the tenant "blueque", so each test
// that uses it needs its own server. Each method runs one command in the process. An exception in the process fails the
// test.
type Blueque struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr bytes.Buffer // read only after the process has ended

	mu     sync.Mutex // held for one command and its answer
	stdin  io.WriteCloser
	stdout *os.File
	lines  *bufio.Reader // reads stdout
}

// BluequeTask is a task as Blueque's get_task returns it; missing fields are nil.
type BluequeTask struct {
	ID         string
	Status     string
	Queue      string
	Parameters *string
	Result     *string
	Error      *string
	Node       *string
	PID        *int
	Created    *float64
	Updated    *float64
}

// Python starts a Python process with the Blueque package, connected to the server. The process ends with the test. If
// the package is not installed, the test fails and names the remedy.
func Python(t testing.TB, serverURL string) *Blueque {
	t.Helper()
	python, err := findPython()
	if err != nil {
		t.Fatal(err)
	}
	b := &Blueque{t: t, cmd: exec.Command(python, "-I", "-c", driver, serverURL)}
	b.cmd.Stderr = &b.stderr
	stdout, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.stdout, b.lines, b.cmd.Stdout = stdout, bufio.NewReader(stdout), write
	b.stdin, err = b.cmd.StdinPipe()
	if err = errors.Join(err, b.cmd.Start(), write.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.stdin.Close()
		_ = b.cmd.Process.Kill() // it may be waiting in listen, and not read stdin
		_ = b.cmd.Wait()
		_ = stdout.Close()
		if t.Failed() && b.stderr.Len() > 0 {
			t.Logf("Python's stderr:\n%s", b.stderr.Bytes())
		}
	})
	return b
}

// Enqueue calls Queue.enqueue.
func (b *Blueque) Enqueue(queue, parameters string) (id string) {
	b.t.Helper()
	b.do(&id, "enqueue", queue, parameters)
	return id
}

// Schedule calls Queue.schedule.
func (b *Blueque) Schedule(queue, parameters string, eta time.Time) (id string) {
	b.t.Helper()
	b.do(&id, "schedule", queue, parameters, float64(eta.UnixMicro())/1e6)
	return id
}

// EnqueueDueTasks calls Queue.enqueue_due_tasks.
func (b *Blueque) EnqueueDueTasks(queue string) {
	b.t.Helper()
	b.do(nil, "enqueue_due_tasks", queue)
}

// DeleteTask calls Queue.delete_task.
func (b *Blueque) DeleteTask(queue, id string) {
	b.t.Helper()
	b.do(nil, "delete_task", queue, id)
}

// Task calls Client.get_task.
func (b *Blueque) Task(id string) (task BluequeTask) {
	b.t.Helper()
	b.do(&task, "get_task", id)
	return task
}

// Register makes the process a listener of the queue, as Client.get_listener does, and returns the listener's ID.
func (b *Blueque) Register(queue string) (listener string) {
	b.t.Helper()
	b.do(&listener, "register", queue)
	return listener
}

// Listen calls Listener.listen, which waits for a task and reserves it.
func (b *Blueque) Listen(queue string) (task BluequeTask) {
	b.t.Helper()
	b.do(&task, "listen", queue)
	return task
}

// ClaimOrphan calls Listener.claim_orphan. It returns nil if there is no orphan.
func (b *Blueque) ClaimOrphan(queue string) (task *BluequeTask) {
	b.t.Helper()
	b.do(&task, "claim_orphan", queue)
	return task
}

// Start calls Processor.start for a task that Listen returned.
func (b *Blueque) Start(id string, pid int) {
	b.t.Helper()
	b.do(nil, "start", id, pid)
}

// Complete calls Processor.complete for a task that Listen returned.
func (b *Blueque) Complete(id, result string) {
	b.t.Helper()
	b.do(nil, "complete", id, result)
}

// Fail calls Processor.fail for a task that Listen returned.
func (b *Blueque) Fail(id, text string) {
	b.t.Helper()
	b.do(nil, "fail", id, text)
}

// Work runs a listener in the background until the test ends. It completes each task with the result "python " and the
// task's parameters.
func (b *Blueque) Work(queue string) {
	b.t.Helper()
	b.do(nil, "work", queue)
}

// Worked returns the IDs of the tasks that Work has completed so far.
func (b *Blueque) Worked() (ids []string) {
	b.t.Helper()
	b.do(&ids, "get_worked")
	return ids
}

// do runs one command and decodes its result into value. An exception fails the test.
func (b *Blueque) do(value any, command string, arguments ...any) {
	b.t.Helper()
	if err := b.try(value, command, arguments...); err != nil {
		b.t.Fatalf("Blueque: %s: %v", command, err)
	}
}

func (b *Blueque) try(value any, command string, arguments ...any) error {
	if arguments == nil {
		arguments = []any{}
	}
	line, err := json.Marshal([]any{command, arguments})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.stdin.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the Python process has ended: %w", err)
	}
	_ = b.stdout.SetReadDeadline(time.Now().Add(answerTimeout))
	line, err = b.lines.ReadBytes('\n')
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
