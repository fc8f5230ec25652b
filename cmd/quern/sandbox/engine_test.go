package sandbox

import (
	"errors"
	"testing"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/snapshot"
)

// A reset mode that does not work is told with the flag.
func TestCheckResetMode(t *testing.T) {
	t.Parallel()
	probe := func() []snapshot.Verdict {
		return []snapshot.Verdict{{Mode: runtime.ResetScan, Err: errors.New("operation not permitted")}, {Mode: runtime.ResetNew}}
	}
	if mode, err := resetMode("new", probe); mode != runtime.ResetNew || err != nil {
		t.Errorf("new: %s, %v", mode, err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	EngineFlags(flags)
	flag := flags.Lookup("reset")
	_, err := resetMode("scan", probe)
	err = cli.WrongValue(flag, "scan", err)
	var refused *cli.ExitError
	want := `--reset "scan": it does not work here (operation not permitted): use auto`
	if !errors.As(err, &refused) || refused.Status != cli.ExitUsage || err.Error() != want {
		t.Errorf("scan: %v, want %s", err, want)
	}
}
