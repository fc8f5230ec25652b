package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// venv is Python with pytest.
const venv = "../../build/venv/bin/python"

// installed is a folder with the package quern as pip installs it, which makes it a plugin of pytest.
func installed(t *testing.T) string {
	t.Helper()
	source, folder := t.TempDir(), t.TempDir() // the build leaves files beside the source
	if err := os.CopyFS(source, os.DirFS("package")); err != nil {
		t.Fatal(err)
	}
	command(t, exec.CommandContext(t.Context(), venv, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
		"--no-build-isolation", "--target", folder, source))
	if _, err := os.Stat(filepath.Join(folder, "quern", "py.typed")); err != nil {
		t.Error(err)
	}
	return folder
}

func command(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: run make deps if it is not installed\n%s", cmd, err, said)
	}
	return string(said)
}

// pytest runs the tests in a folder, with the package of another.
func pytest(t *testing.T, folder, library string) string {
	t.Helper()
	python, err := filepath.Abs(venv)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "pytest", "-p", "no:cacheprovider", "-q", ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PYTHONPATH="+library, "PYTHONDONTWRITEBYTECODE=1")
	return command(t, cmd)
}

// TestPackage runs the package's own tests.
func TestPackage(t *testing.T) {
	t.Parallel()
	if said := pytest(t, filepath.Join("package", "tests"), installed(t)); !strings.Contains(said, " passed") {
		t.Error(said)
	}
}

// TestREADMETests runs the tests that the README shows, of the handler that it shows.
func TestREADMETests(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Tests of a plugin\n")
	section, _, _ = strings.Cut(section, "\n## ")
	folder := t.TempDir()
	for _, block := range regexp.MustCompile("(?s)`(\\w+\\.py)`:\n\n```python\n(.*?)```").FindAllStringSubmatch(section, -1) {
		if err := os.WriteFile(filepath.Join(folder, block[1]), []byte(block[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if said := pytest(t, folder, installed(t)); !strings.Contains(said, "\n4 passed") {
		t.Error(said)
	}
}
