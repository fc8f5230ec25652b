package sandbox

import (
	"errors"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/sdk/queue"
)

// Services are the settings of what handlers may reach outside.
type Services struct {
	networks       []string
	proxy, Secrets string
}

// Flags adds the settings to a command.
func (o *Services) Flags(f *pflag.FlagSet) {
	option.List(f, &o.networks, "allow-networks", nil, "networks that handlers may reach by HTTP in addition to public ones, such as 10.0.0.0/8 (default none)")
	option.Text(f, &o.proxy, "URL", "proxy", "`URL` of the proxy for HTTP requests of handlers (default none, whatever the environment says)")
	f.StringVar(&o.Secrets, "secrets", "", "`DIR` of secrets: TENANT/NAME is the secret NAME of a manifest (default none)")
}

// GrantsFlag adds --grants.
func GrantsFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "grants", "", "`FILE` with the most that each tenant is granted, and its config and secrets; read at the start (default: manifests alone decide)")
}

// LoadGrants reads and checks the file of --grants. It returns nil without a file.
func LoadGrants(flags *pflag.FlagSet, path string, check func(*manifest.Grants) error) (*manifest.Grants, error) {
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
		return nil, cli.WrongUsage(err)
	case err != nil:
		return nil, cli.Usagef("%s %q: %w: name a YAML file that this user may read", cli.Origin(flags.Lookup("grants")), path, errors.Unwrap(err))
	}
	return grants, nil
}

// TenantGrantsFlags adds the flags of a command that tries a plugin with a host's grants for a tenant. No setting
// gives the file: the plugin may be for another host than that of this machine.
func TenantGrantsFlags(f *pflag.FlagSet, path, tenant *string) {
	GrantsFlag(f, path)
	cli.NotSettings(f, "grants")
	f.StringVar(tenant, "tenant", queue.DefaultTenant, "whose grants to apply")
}

// LoadTenantGrants reads the file of TenantGrantsFlags. It returns nil without a file.
func LoadTenantGrants(flags *pflag.FlagSet, path, tenant string) (*manifest.Grants, error) {
	if err := queue.ValidTenant(tenant); err != nil {
		return nil, cli.Usagef("%s %q: %s", cli.Origin(flags.Lookup("tenant")), tenant, cli.TenantRule)
	}
	return LoadGrants(flags, path, func(g *manifest.Grants) error { return g.CheckTenants([]string{tenant}) })
}

// Egress bounds the HTTP requests of handlers, and refuses a folder of secrets that is none.
func (o *Services) Egress(flags *pflag.FlagSet) (config egress.Config, err error) {
	if info, err := os.Stat(o.Secrets); o.Secrets != "" && (err != nil || !info.IsDir()) {
		return config, cli.WrongValue(flags.Lookup("secrets"), o.Secrets, errors.New("not a readable folder: name the one with TENANT/NAME"))
	}
	for _, text := range o.networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return config, cli.WrongValue(flags.Lookup("allow-networks"), text, errors.New("use an address and its bits, such as 10.0.0.0/8"))
		}
		config.Networks = append(config.Networks, network)
	}
	proxy := cli.Origin(flags.Lookup("proxy"))
	if o.proxy != "" {
		if config.Proxy, err = url.Parse(o.proxy); err != nil {
			return config, cli.Usagef("%s: use a URL such as http://proxy.example.com:3128", proxy) // without the text, which may have a password
		}
	}
	if err := config.Validate(); err != nil { // about the proxy: ParsePrefix checked the networks
		return config, cli.Usagef("%s: %s", proxy, strings.TrimPrefix(err.Error(), "proxy: "))
	}
	return config, nil
}
