package main

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// grantsFlag adds the flag that names the file of what tenants are granted.
func grantsFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "grants", "", "`FILE` of what each tenant is granted at most, and of its config and secrets; read at the start (default: manifests alone decide)")
}

// loadGrants reads that file; nil if there is none. check sees that it says what it has to.
func loadGrants(flags *pflag.FlagSet, path string, check func(*manifest.Grants) error) (*manifest.Grants, error) {
	if path == "" {
		return nil, nil
	}
	grants, err := manifest.LoadGrants(path)
	if err == nil {
		err = check(grants)
	}
	var wrong *manifest.Error
	switch {
	case errors.As(err, &wrong):
		return nil, wrongUsage(err)
	case err != nil:
		return nil, usagef("%s %q: %w: name a YAML file that this user may read", origin(flags.Lookup("grants")), path, errors.Unwrap(err))
	}
	return grants, nil
}

// bounds are those of --ceiling.
func (o *hostOptions) bounds(flags *pflag.FlagSet) (manifest.Ceilings, error) {
	ceilings, err := manifest.ParseCeilings(origin(flags.Lookup("ceiling")), o.ceilings)
	if err != nil {
		return nil, wrongUsage(err)
	}
	return ceilings, nil
}

// grantsOfTenantFlags adds the flags of a command that tries what a host with that file would grant in tasks of a tenant.
// The file is given at the call alone: that of a host on this machine says nothing of a plugin that is made for another.
func grantsOfTenantFlags(f *pflag.FlagSet, path, tenant *string) {
	grantsFlag(f, path)
	notSettings(f, "grants")
	f.StringVar(tenant, "tenant", queue.DefaultTenant, "whose grants to apply")
}

// loadGrantsOf reads the file that these flags name; nil if there is none.
func loadGrantsOf(flags *pflag.FlagSet, path, tenant string) (*manifest.Grants, error) {
	if err := queue.ValidTenant(tenant); err != nil {
		return nil, usagef("%s %q: %s", origin(flags.Lookup("tenant")), tenant, tenantRule)
	}
	return loadGrants(flags, path, func(g *manifest.Grants) error { return g.CheckTenants([]string{tenant}) })
}
