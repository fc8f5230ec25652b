package nodehost

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/rollout/oci"
	"github.com/quern-project/quern/runtime/egress"
)

// registryOptions say from which registries a host fetches releases.
type registryOptions struct {
	hosts       []string
	credentials string
}

func (o *registryOptions) flags(f *pflag.FlagSet) {
	option.List(f, &o.hosts, "registry", nil, "OCI registries from which releases may be fetched: HOST, HOST:PORT, or http://HOST:PORT for one without TLS (default none)")
	f.StringVar(&o.credentials, "registry-config", "", "`FILE` with credentials for these registries, as docker login writes it (default none)")
}

// artifacts returns the client that fetches releases from registries, and a function that closes it. It may be led to
// the same addresses as handlers.
func (o *registryOptions) artifacts(cmd *cobra.Command, outside egress.Config) (rollout.Artifacts, func(), error) {
	if len(o.hosts) == 0 {
		return rollout.NoArtifacts{}, func() {}, nil
	}
	config := oci.Config{Networks: outside.Networks, Proxy: outside.Proxy, Credentials: o.credentials}
	for _, text := range o.hosts {
		registry, err := oci.ParseRegistry(text)
		if err != nil {
			return nil, nil, cli.WrongValue(cmd.Flag("registry"), text, err)
		}
		config.Registries = append(config.Registries, registry)
	}
	client, err := oci.New(config)
	if err != nil {
		return nil, nil, cli.WrongValue(cmd.Flag("registry-config"), o.credentials, cli.Bare(err))
	}
	return client, client.Close, nil
}
