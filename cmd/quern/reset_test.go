package main

import (
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/snapshot"
)

// What `plugin check` says of the reset mode is what the runtime says; the best one is that of auto.
func TestPluginCheckResetMode(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"a": handler()})
	for _, v := range snapshot.Probe() {
		if v.Err != nil {
			continue
		}
		if out := u.must("plugin", "check", dir+"/a.wasm", "--reset", string(v.Mode), "-o", "json"); !strings.Contains(out, `"kind":"handler"`) ||
			!strings.Contains(out, `"reset_mode":"`+string(v.Mode)+`","reset_reason":"the host's setting"`) {
			t.Errorf("%s: %s", v.Mode, out)
		}
	}
	if out := u.must("plugin", "check", dir+"/a.wasm"); !strings.Contains(out, string(bestResetMode())+": ") {
		t.Errorf("auto: %s, want %s", out, bestResetMode())
	}
}
