package examples_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/quern-project/quern/examples/internal/exampletest"
)

func testShout(t *testing.T, plugin *exampletest.Plugin) {
	tests := map[string]struct{ input, want string }{
		"OK":       {"a quern is a hand mill\n", "A QUERN IS A HAND MILL\n"},
		"OKEmpty":  {"", ""},
		"OKBinary": {"a\x00z\xff\n", "A\x00Z\xff\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := plugin.Run(t, []byte(tt.input))
			if got.Exit != 0 || string(got.Stdout) != tt.want {
				t.Errorf("exit %d, stdout %q, want 0 and %q; stderr: %s", got.Exit, got.Stdout, tt.want, got.Stderr)
			}
		})
	}
}

// TestShoutTenLines holds the README's promise of how little a plugin takes.
func TestShoutTenLines(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("shout/shout.c")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(source, []byte("\n")); lines > 10 {
		t.Errorf("shout.c has %d lines, more than ten", lines)
	}
}
