package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// TestInvoice is make demo-python: the plugin is built with its packages, tested and served.
func TestInvoice(t *testing.T) {
	t.Parallel()
	engines, err := filepath.Abs(filepath.Dir(runtimetest.Engine(t, "python")))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "invoice/tests/demo", exampletest.New(t).Path, out)
	cmd.Env = append(os.Environ(), "QUERN_ENGINES="+engines)
	said, err := cmd.CombinedOutput()
	if text := string(said); strings.Contains(text, "pip finds no ") || strings.Contains(text, "no Python 3 with pip") {
		runtimetest.Missing(t, "no pip that reaches PyPI: run make deps")
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	want, err := os.ReadFile("invoice/tests/order.html")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(out, "invoice.html")); err != nil || string(got) != string(want) {
		t.Errorf("%q, %v", got, err)
	}
}
