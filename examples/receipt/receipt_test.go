package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sample(t *testing.T) []byte {
	t.Helper()
	order, err := os.ReadFile("sample.json")
	if err != nil {
		t.Fatal(err)
	}
	return order
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	got, err := receipt(t.Context(), &sdk.Task{Input: sample(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<title>Receipt 2026-0001</title>`,
		`Thank you, Ada &amp; Sons.`,
		`<td title="Rye, 5 kg">Rye, 5 kg</td><td>3</td><td>12.50</td><td>37.50</td>`,
		`<th>226.50</th>`,
		`document.body.dataset.order = "2026-0001";`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}

func TestReceiptErrors(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"":                          "the order cannot be read: unexpected end of JSON input",
		`{"lines": {}}`:             "the order cannot be read: json: cannot unmarshal object",
		`{"number": "2026-0002"}`:   "the order has no lines",
		`{"lines": [{"price": 1}]}`: "line 1 is 0 times 1 cents: the quantity may be 1 to 1000000",
		`{"lines": [{"quantity": 1}, {"quantity": 1, "price": -150}]}`: "line 2 is 1 times -150 cents: ",
	} {
		_, err := receipt(t.Context(), &sdk.Task{Input: []byte(input)})
		fatal, ok := errors.AsType[*sdk.FatalError](err)
		if !ok || !strings.HasPrefix(fatal.Error(), want) {
			t.Errorf("%s: %v, want a fatal %s", input, err, want)
		}
	}
}

// TestPlugin does with the plugin what the README says: alone, and on a host, where it is warmed.
func TestPlugin(t *testing.T) {
	t.Parallel()
	want, err := receipt(t.Context(), &sdk.Task{Input: sample(t)})
	if err != nil {
		t.Fatal(err)
	}
	plugin := exampletest.New(t).Build(t, ".")
	if got := plugin.Run(t, sample(t)); got.Exit != 0 || string(got.Stdout) != string(want) {
		t.Errorf("exit %d; stderr: %s\n%s", got.Exit, got.Stderr, got.Stdout)
	}
	if got := plugin.Run(t, []byte(`{"number": "2026-0002"}`)); got.Exit != 1 || len(got.Stdout) != 0 || !strings.Contains(got.Stderr, "the order has no lines") {
		t.Errorf("exit %d, stdout %q, stderr %q, want 1, nothing and the reason", got.Exit, got.Stdout, got.Stderr)
	}

	plugin.Cases(t, 2)

	host := plugin.Serve(t)
	for range 3 {
		if got := host.Run(t, sample(t)); got.Exit != 0 || string(got.Stdout) != string(want) {
			t.Errorf("on a host: exit %d; stderr: %s\n%s", got.Exit, got.Stderr, got.Stdout)
		}
	}
	if log := host.Log(); strings.Contains(log, "no warm snapshot") {
		t.Errorf("sample.json does not warm the plugin:\n%s", log)
	}
}
