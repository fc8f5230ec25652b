package main

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/plugins"
)

// grantsFlag adds the flag that names the file of what tenants are granted.
func grantsFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "grants", "", "`FILE` of what each tenant is granted at most, and of its config and secrets; read at the start (default: manifests alone decide)")
}

// loadGrants reads that file; nil if there is none. check sees that it says what it has to.
func loadGrants(flags *pflag.FlagSet, path string, check func(*plugins.HostGrants) error) (*plugins.HostGrants, error) {
	if path == "" {
		return nil, nil
	}
	grants, err := plugins.LoadHostGrants(path)
	if err == nil {
		err = check(grants)
	}
	var wrong *plugins.ManifestError
	switch {
	case errors.As(err, &wrong):
		return nil, wrongUsage(err)
	case err != nil:
		return nil, usagef("%s %q: %w: name a YAML file that this user may read", origin(flags.Lookup("grants")), path, errors.Unwrap(err))
	}
	return grants, nil
}
