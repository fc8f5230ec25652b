package runtimetest

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
)

// Engines returns the folder of the interpreters: QUERN_ENGINES, or else the folder in which `make engines` puts them.
func Engines(t testing.TB) string {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Or(os.Getenv("QUERN_ENGINES"), filepath.Join(root, "build", "engines"))
}

// Engine returns the path of the interpreter of a language, python or javascript. If there is no such file, the test is
// skipped, or fails in continuous integration.
func Engine(t testing.TB, language string) string {
	t.Helper()
	path := filepath.Join(Engines(t), language+".wasm")
	if _, err := os.Stat(path); err != nil {
		Missing(t, "no engine for "+language+": run make engines")
	}
	return path
}

// Missing ends a test that needs something that this machine does not have. message names the missing thing and the
// remedy. The test is skipped, but in continuous integration (CI=true) it fails.
func Missing(t testing.TB, message string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
}
