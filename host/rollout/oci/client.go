package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/quern-project/quern/sdk/queue/release"
)

// Registry is a registry that may be dialed.
type Registry struct {
	Host  string // with the port, if it is not that of the scheme
	Plain bool   // it has no TLS
}

// ParseRegistry reads HOST, HOST:PORT, or one of them after http:// or https://. Without a scheme, only registries on
// loopback have no TLS.
func ParseRegistry(text string) (Registry, error) {
	scheme, host, has := strings.Cut(text, "://")
	if !has {
		scheme, host = "https", text
		if isLoopback(text) {
			scheme = "http"
		}
	}
	if err := (Reference{Registry: host}).ValidateRegistry(); err != nil || scheme != "http" && scheme != "https" {
		return Registry{}, errors.New("use HOST or HOST:PORT, and http://HOST:PORT for a registry without TLS")
	}
	return Registry{Host: host, Plain: scheme == "http"}, nil
}

// isLoopback reports whether a host, which can have a port, is loopback by its text.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, _ := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || addr.IsLoopback()
}

// Config says which registries a Client talks to, and how.
type Config struct {
	// Registries are the registries that may be dialed (default: none).
	Registries []Registry
	// Networks may be dialed in addition to public addresses where a registry leads to other servers (default: none).
	Networks []netip.Prefix
	// Proxy is the proxy for all requests (default: none). Its address is not checked.
	Proxy *url.URL
	// Credentials is the file with the credentials for registries, in the format of docker's config.json. It is read for
	// each release, so it can be replaced (default: none).
	Credentials string
	// Person makes the client act for a person: without Credentials it reads docker's own file, it runs the credential
	// helpers that the file names, asks the proxy that the environment names, may be led to any network, and tries again
	// before it reports an error.
	Person bool
}

// Client reads and writes artifacts. It is safe for concurrent use.
type Client struct {
	config Config
	http   *http.Client
	idle   func()
}

// New makes a client. Close closes its connections.
func New(c Config) (*Client, error) {
	if c.Person {
		c.Networks = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	transport, idle := newTransport(&c)
	client := &Client{config: c, http: &http.Client{Transport: transport}, idle: idle}
	if c.Person {
		client.http.Transport = retry.NewTransport(transport)
		return client, nil
	}
	return client, checkCredentials(c.Credentials)
}

// Close closes idle connections.
func (c *Client) Close() { c.idle() }

// checkCredentials refuses a file that a host cannot use.
func checkCredentials(file string) error {
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config struct {
		Auths       map[string]json.RawMessage `json:"auths"`
		CredsStore  string                     `json:"credsStore"`
		CredHelpers map[string]string          `json:"credHelpers"`
	}
	switch err := json.Unmarshal(data, &config); {
	case err != nil: // the error could quote a part of a password
		return errors.New(`not JSON: use a file such as {"auths": {"HOST": {"auth": "BASE64"}}}, as docker login writes it`)
	case config.CredsStore != "" || len(config.CredHelpers) > 0:
		return errors.New("hosts run no credential helpers: remove credsStore and credHelpers, and write the credentials into auths")
	case len(config.Auths) == 0:
		return errors.New(`no credentials: add some, such as {"auths": {"HOST": {"auth": "BASE64"}}}, as docker login writes them`)
	}
	return nil
}

// credentials reads the credentials as they are now.
func (c *Client) credentials() (store credentials.Store, err error) {
	switch {
	case c.config.Person && c.config.Credentials == "":
		store, err = credentials.NewStoreFromDocker(credentials.StoreOptions{})
	case c.config.Person:
		store, err = credentials.NewStore(c.config.Credentials, credentials.StoreOptions{})
	case c.config.Credentials == "":
		return credentials.NewMemoryStore(), nil
	default:
		store, err = credentials.NewFileStore(c.config.Credentials)
	}
	if err != nil {
		err = errors.New("the credentials for registries cannot be read: see that the file of --registry-config is JSON as docker login writes it")
	}
	return store, err
}

// repository returns the repository of a reference, if its registry may be dialed.
func (c *Client) repository(ref Reference) (*remote.Repository, error) {
	i := slices.IndexFunc(c.config.Registries, func(r Registry) bool { return r.Host == ref.Registry })
	if i < 0 {
		return nil, fmt.Errorf("this host may not dial the registry %s: start it with --registry %s", ref.Registry, ref.Registry)
	}
	store, err := c.credentials()
	if err != nil {
		return nil, err
	}
	client := &auth.Client{
		Client: c.http, Credential: credentials.Credential(store), Cache: auth.NewCache(),
		// The transport checks each address that it dials, also that of a server of tokens.
		BlockedRealmPrefixes: []netip.Prefix{},
	}
	client.SetUserAgent("quern")
	return &remote.Repository{
		Client: client, Reference: ref, PlainHTTP: c.config.Registries[i].Plain, MaxMetadataBytes: maxManifest,
		HandleWarning: func(remote.Warning) {}, SkipReferrersGC: true,
	}, nil
}

// Reference names an artifact by its tag or digest, or only its repository.
type Reference = registry.Reference

// Parse reads oci://HOST/REPOSITORY, which :TAG or @DIGEST can follow.
func Parse(text string) (Reference, error) {
	const form = "use " + release.ArtifactScheme + "HOST/REPOSITORY:TAG, or @sha256:DIGEST in place of :TAG"
	rest, has := strings.CutPrefix(text, release.ArtifactScheme)
	ref, err := registry.ParseReference(rest)
	if !has || err != nil {
		return ref, fmt.Errorf("%.300q is no artifact: %s", text, form)
	}
	return ref, nil
}

// shown returns a reference as a release names it.
func shown(ref Reference) string { return release.ArtifactScheme + ref.String() }

// Files implements rollout.Artifacts. The artifact must have all files of the release.
func (c *Client) Files(ctx context.Context, r *release.Release) (func(*release.File) (io.ReadCloser, error), error) {
	ref, err := Parse(r.Artifact)
	if err != nil {
		return nil, err
	}
	a, err := c.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Files {
		if !a.has(&f) {
			return nil, fmt.Errorf("%s has no layer with the digest sha256:%s of %s: push the release again", r.Artifact,
				f.Digest, f.Name)
		}
	}
	return func(f *release.File) (io.ReadCloser, error) {
		return a.open(ctx, f.Name, ocispec.Descriptor{
			MediaType: FileType, Digest: digest.NewDigestFromEncoded(digest.SHA256, f.Digest), Size: f.Size,
		})
	}, nil
}
