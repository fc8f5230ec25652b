package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// TestUnreadInput: parameters on stdin that nobody reads are told, without waiting for a pipe.
func TestUnreadInput(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string) *os.File {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	pipe := func(text string) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		return r
	}
	read := open(file)
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Fatal(err)
	}
	const told = "quern: stdin is not read, so the parameters are empty: write - to take them from stdin\n"
	for name, test := range map[string]struct {
		stdin io.Reader
		args  []string
		want  string
	}{
		"file":        {open(file), nil, told},
		"read file":   {read, nil, ""},
		"pipe":        {pipe("{}"), nil, told},
		"silent pipe": {pipe(""), nil, ""},
		"nothing":     {open(os.DevNull), nil, ""},
		"parameters":  {open(file), []string{"{}"}, ""},
		"asked for":   {open(file), []string{"-"}, ""},
	} {
		var stderr strings.Builder
		cmd := &cobra.Command{}
		cmd.SetIn(test.stdin)
		cmd.SetErr(&stderr)
		got, err := cli.ReadParameters(test.args, cmd, 100)
		if err != nil || stderr.String() != test.want || len(got) > 0 != (len(test.args) > 0) {
			t.Errorf("%s: %q, %v, told %q", name, got, err, &stderr)
		}
	}
}
