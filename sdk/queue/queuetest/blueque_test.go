package queuetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPython(t *testing.T) {
	t.Parallel()
	server := Start(t)
	python := Python(t, server.URL())
	id := python.Enqueue("q", "grüße \"und\" mehr")
	task := python.Task(id)
	if task.ID != id || task.Status != "pending" || *task.Parameters != `grüße "und" mehr` || task.Result != nil || task.PID != nil {
		t.Errorf("%+v", task)
	}
	later := python.Schedule("q", "", time.Now().Add(time.Hour))
	if score := server.Client(t).ZScore(t.Context(), "blueque_scheduled_tasks_q", later).Val(); score < float64(time.Now().Unix()) {
		t.Errorf("scheduled for %f", score)
	}
	if task := python.ClaimOrphan("q"); task != nil {
		t.Errorf("an orphan from nowhere: %+v", task)
	}

	// An exception is an error with its text; the process goes on.
	if err := python.try(nil, "delete_task", "q", id); err == nil || !strings.Contains(err.Error(), "ValueError: Cannot delete task with status pending") {
		t.Errorf("%v", err)
	}
	if err := python.try(nil, "no_such_command"); err == nil || !strings.Contains(err.Error(), "KeyError") {
		t.Errorf("%v", err)
	}
	python.Listen("q")
	python.Start(id, 1)
	python.Complete(id, "done")
	python.DeleteTask("q", id)
	if task := python.Task(id); task.Status != "" {
		t.Errorf("a deleted task: %+v", task)
	}

	_ = python.cmd.Process.Kill()
	if err := python.try(nil, "get_worked"); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a dead process: %v", err)
	}
}

func TestPythonThatIsMissing(t *testing.T) {
	t.Setenv("QUERN_VENV", filepath.Join(t.TempDir(), "none"))
	if python, err := findPython(); err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("found %q, %v", python, err)
	}
	t.Setenv("QUERN_VENV", "")
	t.Chdir(t.TempDir())
	if python, err := findPython(); err == nil || !strings.Contains(err.Error(), "QUERN_VENV") {
		t.Errorf("found %q, %v", python, err)
	}
	venv := t.TempDir()
	if err := os.MkdirAll(filepath.Join(venv, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(venv, "bin", "python")
	if err := os.WriteFile(want, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("QUERN_VENV", venv)
	if python, err := findPython(); err != nil || python != want {
		t.Errorf("found %q, %v", python, err)
	}
}
