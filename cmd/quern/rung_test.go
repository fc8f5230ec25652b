package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/snapshot"
)

// A rung that does not work is told with where the word comes from; others are nobody's business.
func TestCheckRung(t *testing.T) {
	t.Parallel()
	verdicts := []snapshot.Verdict{{Rung: runtime.RungScan, Err: errors.New("operation not permitted")}, {Rung: runtime.RungNew}}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	rungFlag(flags)
	flag := flags.Lookup(rungName)
	if err := checkRung(flag, runtime.RungNew, verdicts); err != nil {
		t.Errorf("new: %v", err)
	}
	flag.Annotations = map[string][]string{originKey: {"QUERN_RUNG"}}
	var refused *exitError
	err := checkRung(flag, runtime.RungScan, verdicts)
	want := `QUERN_RUNG "scan": it does not work here (operation not permitted): use auto`
	if !errors.As(err, &refused) || refused.status != exitUsage || err.Error() != want {
		t.Errorf("scan: %v, want %s", err, want)
	}
}

// What `plugin check` says of a plugin on a rung is what the runtime says; the best one is that of auto.
func TestPluginCheckRung(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	dir := folder(t, map[string][]byte{"a": handler()})
	for _, v := range snapshot.Probe() {
		if v.Err != nil {
			continue
		}
		if out := u.must("plugin", "check", dir+"/a.wasm", "--rung", string(v.Rung), "-o", "json"); !strings.Contains(out, `"kind":"handler"`) ||
			!strings.Contains(out, `"rung":"`+string(v.Rung)+`","rung_reason":"the host's setting"`) {
			t.Errorf("%s: %s", v.Rung, out)
		}
	}
	if out := u.must("plugin", "check", dir+"/a.wasm"); !strings.Contains(out, string(bestRung())+": ") {
		t.Errorf("auto: %s, want %s", out, bestRung())
	}
}
