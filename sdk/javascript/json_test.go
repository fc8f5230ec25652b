package javascript_test

import (
	"bytes"
	_ "embed"
	"os/exec"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
)

//go:embed testdata/json.js
var jsonCases string

// TestJSON: JSON.parse and JSON.stringify, which json.patch makes faster, do what those of Node do.
func TestJSON(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("no node: run make deps")
	}
	command := exec.CommandContext(t.Context(), node, "--input-type=module")
	command.Stdin = strings.NewReader(strings.Replace(jsonCases, "export default", "const cases =", 1) + "\nprocess.stdout.write(cases());")
	want, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := write(t, jsonCases).run(runtime.Call{})
	if got.Kind != runtime.Complete {
		t.Fatalf("%+v", got)
	}
	theirs, ours := bytes.Split(want, []byte("\n")), bytes.Split(got.Output, []byte("\n"))
	if len(theirs) < 1000 || len(theirs) != len(ours) {
		t.Fatalf("%d lines, in Node %d", len(ours), len(theirs))
	}
	for i := range theirs {
		if !bytes.Equal(theirs[i], ours[i]) {
			t.Errorf("%s\nin Node\n%s", ours[i], theirs[i])
		}
	}
}
