package runtimetest

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
)

// Engines returns the folder of the interpreters: QUERN_ENGINES, or else where `make engines` puts them.
func Engines(t testing.TB) string {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Or(os.Getenv("QUERN_ENGINES"), filepath.Join(root, "build", "engines"))
}

// Engine returns the path of the interpreter of a language, python or javascript. A test without it is skipped, or
// fails in continuous integration.
func Engine(t testing.TB, language string) string {
	t.Helper()
	path := filepath.Join(Engines(t), language+".wasm")
	if _, err := os.Stat(path); err != nil {
		Missing(t, "no engine for "+language+": run make engines")
	}
	return path
}

// Missing ends a test that needs something that this machine does not have. what names it and the remedy. The test is
// skipped, but in continuous integration (CI=true) it fails.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}
