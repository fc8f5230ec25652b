package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/snapshot"
)

// A reset mode that does not work is told with where the word comes from; others are nobody's business.
func TestCheckResetMode(t *testing.T) {
	t.Parallel()
	probe := func() []snapshot.Verdict {
		return []snapshot.Verdict{{Mode: runtime.ResetScan, Err: errors.New("operation not permitted")}, {Mode: runtime.ResetNew}}
	}
	if mode, err := resetMode("new", probe); mode != runtime.ResetNew || err != nil {
		t.Errorf("new: %s, %v", mode, err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	engineFlags(flags)
	flag := flags.Lookup("reset")
	flag.Annotations = map[string][]string{originKey: {"QUERN_RESET"}}
	_, err := resetMode("scan", probe)
	err = wrongValue(flag, "scan", err)
	var refused *exitError
	want := `QUERN_RESET "scan": it does not work here (operation not permitted): use auto`
	if !errors.As(err, &refused) || refused.status != exitUsage || err.Error() != want {
		t.Errorf("scan: %v, want %s", err, want)
	}
}

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
