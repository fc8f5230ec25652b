package oci

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/host/rollout/oci/ocitest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/release"
)

// wants checks that reading a release fails with an error that says why, and does not tell the password.
func wants(t *testing.T, c *Client, r *release.Release, what string) {
	t.Helper()
	_, err := read(t.Context(), c, r)
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("%v, want %q", err, what)
	}
	for _, secret := range []string{ocitest.Password, "cHVsbC1zZWNyZXQ", "Signature"} {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells %q: %v", secret, err)
		}
	}
}

// moved returns a release whose artifact has the same name in another registry.
func moved(r *release.Release, host string) *release.Release {
	other := *r
	_, rest, _ := strings.Cut(strings.TrimPrefix(r.Artifact, release.ArtifactScheme), "/")
	other.Artifact = release.ArtifactScheme + host + "/" + rest
	return &other
}

func TestAccess(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	host := []Registry{{registry.Host, true}}
	r := push(t, user(t, registry, registry.Host), "acme/mail", "one")
	wants(t, newClient(t, Config{Registries: host}), r, "give credentials for "+registry.Host)
	wants(t, newClient(t, Config{Registries: host, Credentials: registry.Credentials(registry.Host, "wrong")}), r, "give credentials for ")
	wants(t, newClient(t, Config{Registries: host, Credentials: registry.Credentials("other.example.com", ocitest.Password)}), r, "give credentials for ")
	wants(t, newClient(t, Config{}), r, "--registry "+registry.Host)
	gone := *r
	gone.Artifact = r.Artifact[:len(r.Artifact)-64] + strings.Repeat("0", 64)
	wants(t, user(t, registry, registry.Host), &gone, "does not have it")

	// A password that is replaced counts from the next release on.
	path := registry.Credentials(registry.Host, "rotated")
	c := newClient(t, Config{Registries: host, Credentials: path})
	wants(t, c, r, "give credentials for ")
	right, err := os.ReadFile(registry.Credentials(registry.Host, ocitest.Password))
	if err == nil {
		err = os.WriteFile(path, right, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), c, r); err != nil {
		t.Errorf("with the new password: %v", err)
	}
}

// A person has docker's own file, and the helpers that it names.
func TestPerson(t *testing.T) {
	registry := ocitest.Start(t)
	host := []Registry{{registry.Host, true}}
	r := push(t, user(t, registry, registry.Host), "acme/mail", "one")
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	plain, err := os.ReadFile(registry.Credentials(registry.Host, ocitest.Password))
	if err != nil {
		t.Fatal(err)
	}
	helper := "#!/bin/sh\necho '{\"Username\": \"" + ocitest.User + "\", \"Secret\": \"" + ocitest.Password + "\"}'\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]string{"Plain": string(plain), "Helper": `{"credsStore": "test"}`} {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t.Context(), newClient(t, Config{Registries: host, Person: true}), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	wants(t, newClient(t, Config{Registries: host, Person: true}), r, "give credentials for ")
}

func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"auths": {"h": {"auth": "YTpi"}}}`:                          "",
		`{"auths": {"h": {"auth": "YTpi"}}, "credsStore": "desktop"}`: "run no credential helpers",
		`{"auths": {"h": {}}, "credHelpers": {"h": "ecr-login"}}`:     "run no credential helpers",
		`{}`:                   "no credentials",
		`{"auths": "secret-x"`: "not JSON",
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := New(Config{Credentials: path})
		if (want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-x")) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := New(Config{Credentials: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestParseRegistry(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Registry{
		"ghcr.io": {"ghcr.io", false}, "registry.internal:5000": {"registry.internal:5000", false},
		"127.0.0.1:5000": {"127.0.0.1:5000", true}, "localhost": {"localhost", true}, "[::1]:5000": {"[::1]:5000", true},
		"http://registry.internal:5000": {"registry.internal:5000", true}, "https://localhost:5000": {"localhost:5000", false},
		"localhost.example.com": {"localhost.example.com", false},
	} {
		if got, err := ParseRegistry(text); got != want || err != nil {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "ghcr.io/acme", "oci://ghcr.io", "user:password@ghcr.io", "http://"} {
		if got, err := ParseRegistry(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// A registry that is not what its digests say.
//
//nolint:bodyclose // the proxy closes the bodies
func TestLies(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	r := push(t, user(t, registry, registry.Host), "acme/mail", "one")
	answer := func(response *http.Response, data []byte) {
		response.Body = io.NopCloser(bytes.NewReader(data))
		response.ContentLength = int64(len(data))
		response.Header.Set("Content-Length", strconv.Itoa(len(data)))
	}
	of := func(part string, change func(response *http.Response, data []byte)) func(*http.Response) error {
		return func(response *http.Response) error {
			if response.StatusCode != http.StatusOK || !strings.Contains(response.Request.URL.Path, part) {
				return nil
			}
			data, err := io.ReadAll(response.Body)
			change(response, data)
			return err
		}
	}
	module := "/blobs/sha256:" + r.Files[0].Digest
	for name, lie := range map[string]struct {
		change func(*http.Response) error
		want   string
	}{
		"OtherModule": {of(module, func(to *http.Response, _ []byte) { answer(to, []byte("two")) }), "other bytes than the digest says"},
		"Short":       {of(module, func(to *http.Response, _ []byte) { answer(to, []byte("o")) }), "mail.wasm"},
		"Long":        {of(module, func(to *http.Response, _ []byte) { answer(to, []byte("one and more")) }), "mail.wasm"},
		"LongChunked": {of(module, func(to *http.Response, _ []byte) {
			answer(to, bytes.Repeat([]byte("one"), 1<<20))
			to.Header.Del("Content-Length")
		}), "mail.wasm"},
		"OtherManifest": {of("/manifests/", func(to *http.Response, data []byte) {
			answer(to, bytes.Replace(data, []byte("mail.yaml"), []byte("evil.yaml"), 1))
		}), "read the manifest"},
		"OtherDigest": {of("/manifests/", func(to *http.Response, data []byte) {
			answer(to, bytes.Replace(data, []byte("mail.yaml"), []byte("evil.yaml"), 1))
			to.Header.Del("Docker-Content-Digest")
		}), "read the manifest"},
		"LargeManifest": {of("/manifests/", func(to *http.Response, data []byte) {
			answer(to, append(data, bytes.Repeat([]byte(" "), maxManifest)...))
		}), "read the manifest"},
		"Index": {of("/manifests/", func(to *http.Response, data []byte) {
			answer(to, data)
			to.Header.Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		}), "name one artifact"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := registry.Front(lie.change)
			wants(t, user(t, registry, host), moved(r, host), lie.want)
		})
	}
	t.Run("Honest", func(t *testing.T) {
		t.Parallel()
		host := registry.Front(nil)
		if _, err := read(t.Context(), user(t, registry, host), moved(r, host)); err != nil {
			t.Error(err)
		}
	})
}

// A registry may lead a host to public addresses and to those that the operator allows, by TLS, and nowhere else.
//
//nolint:bodyclose // the proxy closes the bodies
func TestLedElsewhere(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	r := push(t, user(t, registry, registry.Host), "acme/mail", "one")
	var asked atomic.Int64
	private := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(private.Close)
	plain := httptest.NewServer(private.Config.Handler)
	t.Cleanup(plain.Close)
	redirect := func(to string) func(*http.Response) error {
		return func(response *http.Response) error {
			if strings.Contains(response.Request.URL.Path, "/blobs/") && response.StatusCode == http.StatusOK {
				response.StatusCode = http.StatusTemporaryRedirect
				response.Header.Set("Location", to+"/x?X-Amz-Signature=s3cret")
			}
			return nil
		}
	}
	realm := func(to string) func(*http.Response) error {
		return func(response *http.Response) error {
			response.StatusCode = http.StatusUnauthorized
			response.Header.Set("Www-Authenticate", `Bearer realm="`+to+`/token",service="x"`)
			return nil
		}
	}
	for name, of := range map[string]struct {
		change func(*http.Response) error
		want   string
	}{
		"Redirect":      {redirect(private.URL), "127.0.0.1 is loopback"},
		"RedirectPlain": {redirect(plain.URL), "without TLS"},
		"Metadata":      {redirect("https://169.254.169.254"), "link-local"},
		"Realm":         {realm(private.URL), "127.0.0.1 is loopback"},
		"RealmPlain":    {realm(plain.URL), "read the manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := registry.Front(of.change)
			wants(t, user(t, registry, host), moved(r, host), of.want)
		})
	}
	// The address of a blob is signed by its query, which no error tells.
	t.Run("Signed", func(t *testing.T) {
		t.Parallel()
		store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "others") }))
		t.Cleanup(store.Close)
		host := registry.Front(redirect(store.URL))
		c := newClient(t, Config{
			Registries:  []Registry{{host, true}, {store.Listener.Addr().String(), true}},
			Credentials: registry.Credentials(host, ocitest.Password),
		})
		wants(t, c, moved(r, host), "Content-Length")
	})
	t.Run("Proxy", func(t *testing.T) {
		t.Parallel()
		host := registry.Front(redirect("https://10.0.0.1"))
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RequestURI = ""
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			defer response.Body.Close()
			for name, values := range response.Header {
				w.Header()[name] = values
			}
			w.WriteHeader(response.StatusCode)
			_, _ = io.Copy(w, response.Body)
		}))
		t.Cleanup(proxy.Close)
		at, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, Config{Registries: []Registry{{host, true}}, Credentials: registry.Credentials(host, ocitest.Password), Proxy: at})
		wants(t, c, moved(r, host), "10.0.0.1 is private")
	})
	t.Cleanup(func() {
		if n := asked.Load(); n > 0 {
			t.Errorf("%d requests came to servers that are not allowed", n)
		}
	})
}

// The operator's networks may be reached as well.
//
//nolint:bodyclose // the proxy closes the bodies
func TestAllowedNetwork(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The connection is made, and ends because nobody trusts the server's certificate.
	if _, err := c.http.Do(request); err == nil || errors.Is(err, service.ErrDenied) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
}

func TestAway(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	c := user(t, registry, registry.Host)
	r := push(t, c, "acme/mail", "one")
	registry.Stop()
	wants(t, c, r, "connection refused")
	registry.Serve()
	if _, err := read(t.Context(), c, r); err != nil {
		t.Errorf("the registry is there again: %v", err)
	}

	// A registry that stops in the middle of a file.
	host := registry.Front(func(response *http.Response) error {
		if strings.Contains(response.Request.URL.Path, "/blobs/") && response.StatusCode == http.StatusOK {
			response.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader("o"), forever{response.Request.Context()}), response.Body}
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := read(ctx, user(t, registry, host), moved(r, host)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if testing.Short() {
		return
	}
	wants(t, user(t, registry, host), moved(r, host), errStalled.Error())
}

// forever is a reader that waits until its context ends.
type forever struct{ context.Context }

func (f forever) Read([]byte) (int, error) {
	<-f.Done()
	return 0, f.Err()
}
