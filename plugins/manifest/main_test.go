package manifest

import (
	"os"
	"testing"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a file in place, as a plain copy does.
func write(t testing.TB, path string, data []byte) {
	t.Helper()
	check(t, os.WriteFile(path, data, 0o600))
}
