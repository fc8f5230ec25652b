package main

import (
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/snapshot"
)

const (
	resetName = "reset"
	resetAuto = "auto"
)

// resetFlag adds the setting of how tasks come by pristine instances.
func resetFlag(flags *pflag.FlagSet) {
	words := newChoice(resetAuto, string(runtime.ResetScan), string(runtime.ResetPagemap), string(runtime.ResetCopy), string(runtime.ResetNew))
	flags.Var(words, resetName, "how tasks come by pristine instances: scan, pagemap, copy, new, or auto for the best that works here")
}

// resetModeOf is the setting as an engine takes it. One that does not work on this system is refused.
func resetModeOf(flags *pflag.FlagSet) (runtime.ResetMode, error) {
	flag := flags.Lookup(resetName)
	forced := runtime.ResetMode(flag.Value.String())
	if forced == resetAuto {
		return "", nil
	}
	return forced, checkResetMode(flag, forced, snapshot.Probe())
}

func checkResetMode(flag *pflag.Flag, forced runtime.ResetMode, verdicts []snapshot.Verdict) error {
	for _, v := range verdicts {
		if v.Mode == forced && v.Err != nil {
			return usagef("%s %q: it does not work here (%w): use %s", origin(flag), forced, v.Err, resetAuto)
		}
	}
	return nil
}
