package tenant

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/host/rollout/oci"
	"github.com/quern-project/quern/sdk/queue/release"
)

// registryOptions are the flags that say in which registry the files of a release are.
type registryOptions struct {
	to, credentials string
	plain           bool
}

func registryFlags(f *pflag.FlagSet) *registryOptions {
	o := &registryOptions{}
	f.StringVar(&o.to, "registry", "", "`HOST/REPOSITORY[:TAG]` of an OCI registry that gets the files (default Redis; the default TAG is the plugin's version, or latest)")
	o.access(f)
	cli.NotSettings(f, "registry")
	return o
}

// access adds the flags that say how a registry is reached.
func (o *registryOptions) access(f *pflag.FlagSet) {
	f.StringVar(&o.credentials, "registry-config", "", "`FILE` with credentials for registries, as docker login writes it (default config.json in $DOCKER_CONFIG, or in ~/.docker)")
	f.BoolVar(&o.plain, "plain-http", false, "reach the registry without TLS (default only on loopback)")
}

// releaseSource has the files of a plugin that is to be pushed.
type releaseSource struct {
	path     string      // of the plugin
	artifact string      // the name of the artifact that has the files already
	client   *oci.Client // nil if the files go to Redis
	to       oci.Reference
	close    func()
}

// open returns the plugin at a path, or in a registry, from which it copies the plugin to a temporary folder.
func (o *registryOptions) open(cmd *cobra.Command, name string) (*releaseSource, error) {
	s, flag := &releaseSource{path: name, close: func() {}}, cmd.Flag("registry")
	ref, err := oci.Parse(name)
	stored := strings.HasPrefix(name, release.ArtifactScheme)
	switch {
	case stored && err != nil:
		return nil, cli.WrongUsage(err)
	case stored && ref.Reference == "":
		return nil, cli.Usagef("%s names no artifact: add :TAG or @sha256:DIGEST", name)
	case stored && o.to != "":
		return nil, cli.Usagef("%s is in a registry already: leave out --registry", name)
	case !stored && o.to == "":
		return s, nil
	case !stored:
		to := strings.TrimPrefix(o.to, release.ArtifactScheme)
		if ref, err = oci.Parse(release.ArtifactScheme + to); err != nil || strings.Contains(to, "@") {
			return nil, cli.WrongValue(flag, o.to, errors.New("use HOST/REPOSITORY, or HOST/REPOSITORY:TAG"))
		}
	}
	if s.client, err = o.client(cmd, ref.Registry); err != nil {
		return nil, err
	}
	s.to, s.close = ref, s.client.Close
	if stored {
		err = s.pull(cmd.Context())
	}
	if err != nil {
		s.close()
	}
	return s, err
}

// client returns a client for one registry.
func (o *registryOptions) client(cmd *cobra.Command, host string) (*oci.Client, error) {
	registry, err := oci.ParseRegistry(host)
	if err != nil {
		return nil, cli.Usagef("registry %q: %w", host, err)
	}
	if cmd.Flag("plain-http").Changed {
		registry.Plain = o.plain
	}
	if o.credentials != "" {
		if _, err := os.Stat(o.credentials); err != nil {
			return nil, cli.WrongValue(cmd.Flag("registry-config"), o.credentials, cli.Bare(err))
		}
	}
	return oci.New(oci.Config{Registries: []oci.Registry{registry}, Credentials: o.credentials, Person: true})
}

// pull copies the files of an artifact to a temporary folder, which close removes.
func (s *releaseSource) pull(ctx context.Context) error {
	a, err := s.client.Resolve(ctx, s.to)
	if err != nil {
		return cli.Refusedf("%w", err)
	}
	dir, err := os.MkdirTemp("", "quern-artifact-")
	if err != nil {
		return err
	}
	s.close = func() {
		s.client.Close()
		_ = os.RemoveAll(dir)
	}
	s.path, s.artifact = filepath.Join(dir, a.Module()), a.Name()
	if err := a.Pull(ctx, dir); err != nil {
		return cli.Refusedf("%w", err)
	}
	return nil
}

// place uploads the files of a release to the registry, unless they are there already or are for Redis. It returns the
// release as it is to be pushed.
func (s *releaseSource) place(ctx context.Context, r release.Release, files []release.Content,
) (release.Release, error) {
	switch {
	case s.client == nil:
		return r, nil
	case s.artifact != "":
		return r.InRegistry(s.artifact), nil
	}
	if s.to.Reference == "" {
		if s.to.Reference = r.Version; s.to.Reference == "" || s.to.ValidateReferenceAsTag() != nil {
			s.to.Reference = "latest"
		}
	}
	artifact, err := s.client.Push(ctx, s.to, &r, files)
	if err != nil {
		return r, cli.Refusedf("%w", err)
	}
	return r.InRegistry(artifact), nil
}
