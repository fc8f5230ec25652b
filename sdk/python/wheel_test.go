package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestWheel builds the package quern, and runs its own tests with what the wheel has: on this machine, without an engine.
func TestWheel(t *testing.T) {
	t.Parallel()
	python, err := filepath.Abs("../../build/venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	run := func(dir, path string, arguments ...string) error {
		cmd := exec.CommandContext(t.Context(), python, arguments...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%s", said)
		}
		return err
	}
	if err := run(".", "", "-c", "import pytest"); err != nil {
		runtimetest.Missing(t, "no pytest in build/venv: run make deps")
	}
	source, wheels, installed := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.CopyFS(source, os.DirFS("package")); err != nil { // setuptools leaves files behind
		t.Fatal(err)
	}
	if err := run(source, "", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", wheels, "."); err != nil {
		t.Fatal(err)
	}
	built, err := filepath.Glob(filepath.Join(wheels, "quern-*-py3-none-any.whl"))
	if err != nil || len(built) != 1 {
		t.Fatalf("built %q, %v", built, err)
	}
	if err := run(".", "", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--target", installed, built[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(installed, "quern", "py.typed")); err != nil {
		t.Error(err)
	}
	if err := run(filepath.Join(source, "tests"), installed, "-m", "pytest", "-q", "-p", "no:cacheprovider"); err != nil {
		t.Error(err)
	}
}
