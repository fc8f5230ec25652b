package main

import (
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/snapshot"
)

const (
	rungName = "rung"
	rungAuto = "auto"
)

// rungFlag adds the setting of how tasks come by pristine instances.
func rungFlag(flags *pflag.FlagSet) {
	words := newChoice(rungAuto, string(runtime.RungScan), string(runtime.RungPagemap), string(runtime.RungCopy), string(runtime.RungNew))
	flags.Var(words, rungName, "how tasks come by pristine instances: scan, pagemap, copy, new, or auto for the best that works here")
}

// rungOf is the setting as an engine takes it. One that does not work on this system is refused.
func rungOf(flags *pflag.FlagSet) (runtime.Rung, error) {
	flag := flags.Lookup(rungName)
	forced := runtime.Rung(flag.Value.String())
	if forced == rungAuto {
		return "", nil
	}
	return forced, checkRung(flag, forced, snapshot.Probe())
}

func checkRung(flag *pflag.Flag, forced runtime.Rung, verdicts []snapshot.Verdict) error {
	for _, v := range verdicts {
		if v.Rung == forced && v.Err != nil {
			return usagef("%s %q: it does not work here (%w): use %s", origin(flag), forced, v.Err, rungAuto)
		}
	}
	return nil
}
