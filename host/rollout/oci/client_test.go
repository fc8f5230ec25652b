package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/goleak"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/quern-project/quern/host/rollout/oci/ocitest"
	"github.com/quern-project/quern/sdk/queue/release"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contents are the files of a plugin, of which the module has this content.
func contents(module string) []release.Content {
	return []release.Content{
		{Name: "mail.wasm", Data: []byte(module)},
		{Name: "mail.yaml", Data: []byte("version: 1.0.0\n")},
		{Name: "data/table.csv", Data: []byte("a,b\n")},
		{Name: "data/none", Data: nil},
	}
}

func newClient(t *testing.T, c Config) *Client {
	t.Helper()
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// user is a client that may do everything at a host of the registry.
func user(t *testing.T, r *ocitest.Registry, host string) *Client {
	t.Helper()
	return newClient(t, Config{Registries: []Registry{{host, true}}, Credentials: r.Credentials(host, ocitest.Password)})
}

// push pushes a plugin with its signature, and returns the release of it.
func push(t *testing.T, c *Client, repository, module string) *release.Release {
	t.Helper()
	r, err := release.New("mail", contents(module))
	if err != nil {
		t.Fatal(err)
	}
	r.Version, r.Signatures = "1.0.0", []string{"signed"}
	ref, err := Parse(release.ArtifactScheme + c.config.Registries[0].Host + "/" + repository + ":1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	name, err := c.Push(t.Context(), ref, &r, contents(module))
	if err != nil {
		t.Fatal(err)
	}
	r = r.InRegistry(name)
	return &r
}

// read checks an artifact and reads its files, as a host does.
func read(ctx context.Context, c *Client, r *release.Release) (files []string, err error) {
	open, err := c.Files(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, f := range r.Files {
		body, err := open(&f)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil {
			return nil, err
		}
		files = append(files, string(data))
	}
	return files, nil
}

func TestPushAndRead(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	c := user(t, registry, registry.Host)
	first := push(t, c, "acme/mail", "one")
	got, err := read(t.Context(), c, first)
	if want := []string{"one", "version: 1.0.0\n", "a,b\n", ""}; err != nil || !slices.Equal(got, want) {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
	if again := push(t, c, "acme/mail", "one"); again.Artifact != first.Artifact {
		t.Errorf("the same plugin became %s and %s", first.Artifact, again.Artifact)
	}

	// The tag moves, and the release stays.
	second := push(t, c, "acme/mail", "two")
	if second.Artifact == first.Artifact {
		t.Error("two plugins have one digest")
	}
	if got, err := read(t.Context(), c, first); err != nil || got[0] != "one" {
		t.Errorf("after the tag has moved: read %q, %v", got, err)
	}
	ref, err := Parse(release.ArtifactScheme + registry.Host + "/acme/mail:1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Resolve(t.Context(), ref)
	if err != nil || a.Name() != second.Artifact || a.Module() != "mail.wasm" {
		t.Errorf("the tag names %+v, %v", a, err)
	}
	dir := t.TempDir()
	if err := a.Pull(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"mail.wasm": "two", "mail.yaml": "version: 1.0.0\n", "data/table.csv": "a,b\n", "data/none": "", "mail.sig": "signed"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want || err != nil {
			t.Errorf("pulled %s with %q, %v", name, got, err)
		}
	}

	// A record that names files of another artifact is no release of it.
	mixed := *first
	mixed.Artifact = second.Artifact
	if _, err := c.Files(t.Context(), &mixed); err == nil || !strings.Contains(err.Error(), "has no layer") {
		t.Errorf("checked the files of another artifact: %v", err)
	}
}

// TestLayout reads what Push writes as the specifications describe it, by HTTP alone.
func TestLayout(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	r := push(t, user(t, registry, registry.Host), "acme/mail", "one")
	get := func(path string, into any) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+registry.Host+"/v2/acme/mail/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth(ocitest.User, ocitest.Password)
		request.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(into); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, response.Status, err)
		}
	}
	type descriptor struct {
		MediaType, Digest string
		Annotations       map[string]string
	}
	var manifest struct {
		MediaType string
		Config    descriptor
		Layers    []descriptor
	}
	_, digest, _ := strings.Cut(r.Artifact, "@")
	get("manifests/"+digest, &manifest)
	var config struct {
		Architecture, OS, Created string
		LayerDigests              []string
	}
	get("blobs/"+manifest.Config.Digest, &config)
	var layers, digests []string
	for _, l := range manifest.Layers {
		layers, digests = append(layers, l.MediaType+" "+l.Annotations["org.opencontainers.image.title"]), append(digests, l.Digest)
	}
	want := []string{
		"application/wasm mail.wasm", "application/vnd.quern.manifest.v1+yaml mail.yaml", "application/octet-stream data/table.csv",
		"application/octet-stream data/none", "application/vnd.quern.signature.v1 mail.sig",
	}
	if !slices.Equal(layers, want) || manifest.Config.MediaType != "application/vnd.wasm.config.v0+json" {
		t.Errorf("the config is %s, the layers are %q", manifest.Config.MediaType, layers)
	}
	if config.Architecture != "wasm" || config.OS != "wasip1" || config.Created == "" || !slices.Equal(config.LayerDigests, digests) {
		t.Errorf("the config is %+v, want the layers %q", config, digests)
	}
}

// TestOras pulls to a folder what Push has written, and pushes a folder, both as the program oras does.
func TestOras(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	c := user(t, registry, registry.Host)
	push(t, c, "acme/mail", "one")
	repository := func(name string) *remote.Repository {
		t.Helper()
		repo, err := remote.NewRepository(registry.Host + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		repo.PlainHTTP = true
		repo.Client = &auth.Client{
			Client:     &http.Client{Transport: transport},
			Credential: auth.StaticCredential(registry.Host, auth.Credential{Username: ocitest.User, Password: ocitest.Password}),
		}
		return repo
	}
	dir := t.TempDir()
	open := func() *file.Store {
		t.Helper()
		folder, err := file.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = folder.Close() })
		return folder
	}
	if _, err := oras.Copy(t.Context(), repository("acme/mail"), "1.0.0", open(), "1.0.0", oras.DefaultCopyOptions); err != nil {
		t.Fatal(err)
	}
	for _, f := range contents("one") {
		if got, err := os.ReadFile(filepath.Join(dir, f.Name)); !bytes.Equal(got, f.Data) || err != nil {
			t.Errorf("oras pulled %s with %q, %v", f.Name, got, err)
		}
	}

	folder := open()
	var layers []ocispec.Descriptor
	for _, name := range []string{"mail.wasm", "mail.yaml", "data/table.csv"} {
		kind := "" // what oras takes for the type of a file
		if name == "mail.wasm" {
			kind = ModuleType
		}
		layer, err := folder.Add(t.Context(), name, kind, "")
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, layer)
	}
	root, err := oras.PackManifest(t.Context(), folder, oras.PackManifestVersion1_1, "application/vnd.acme.any", oras.PackManifestOptions{Layers: layers})
	if err == nil {
		err = folder.Tag(t.Context(), root, "2")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := oras.Copy(t.Context(), folder, "2", repository("other/post"), "2", oras.DefaultCopyOptions); err != nil {
		t.Fatal(err)
	}
	pulled(t, c, registry.Host+"/other/post:2", "mail.wasm", "mail.yaml", "data/table.csv")
}

// pulled pulls an artifact, and checks which files it has; the first is the module.
func pulled(t *testing.T, c *Client, name string, files ...string) {
	t.Helper()
	ref, err := Parse(release.ArtifactScheme + name)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := a.Pull(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if a.Module() != files[0] || len(a.layers) != len(files) {
		t.Errorf("%s has the module %s, and %d files", name, a.Module(), len(a.layers))
	}
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestSkopeo copies an artifact by a client that has nothing in common with this package: to a folder, and from there to
// another repository.
func TestSkopeo(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Skip("left out, because skopeo is not installed: sudo apt-get install --no-install-recommends skopeo")
	}
	c := user(t, registry, registry.Host)
	r := push(t, c, "acme/mail", "one")
	dir := t.TempDir()
	user := ocitest.User + ":" + ocitest.Password
	for _, args := range [][]string{
		{"copy", "--preserve-digests", "--src-tls-verify=false", "--src-creds", user, "docker" + strings.TrimPrefix(r.Artifact, "oci"), "dir:" + dir},
		{"copy", "--preserve-digests", "--dest-tls-verify=false", "--dest-creds", user, "dir:" + dir, "docker://" + registry.Host + "/other/post:1"},
	} {
		if said, err := exec.CommandContext(t.Context(), "skopeo", append([]string{"--insecure-policy"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("skopeo %q: %v\n%s", args, err, said)
		}
	}
	for _, f := range r.Files {
		if _, err := os.Stat(filepath.Join(dir, f.Digest)); err != nil {
			t.Errorf("skopeo did not copy %s: %v", f.Name, err)
		}
	}
	pulled(t, c, registry.Host+"/other/post:1", "mail.wasm", "mail.yaml", "data/table.csv", "data/none", "mail.sig")
}

// Whatever a registry sends as a manifest, its files lie below a folder and are within the bounds of a release.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion": 2, "layers": [{"mediaType": "application/wasm", "size": 3,
		"digest": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", "annotations": {"org.opencontainers.image.title": "a.wasm"}}]}`))
	ref, err := Parse("oci://registry.example.com/acme/mail:1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := readManifest(ref, data)
		if err != nil {
			return
		}
		var total int64
		for name, layer := range a.layers {
			if total += layer.Size; !filepath.IsLocal(name) || layer.Size < 0 || layer.Digest.Validate() != nil {
				t.Errorf("the file %q is %+v", name, layer)
			}
		}
		if _, ok := a.layers[a.Module()]; !ok || total > release.MaxBytes {
			t.Errorf("module %q, %d bytes", a.Module(), total)
		}
	})
}

// An artifact as wkg writes it has one layer without a title.
func TestOneLayer(t *testing.T) {
	t.Parallel()
	const digest = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	layer := func(kind, title string) string {
		return fmt.Sprintf(`{"mediaType": %q, "digest": %q, "size": 3, "annotations": {"org.opencontainers.image.title": %q}}`, kind, digest, title)
	}
	const untitled = `{"mediaType": "application/wasm", "digest": "` + digest + `", "size": 3}`
	ref, err := Parse("oci://registry.example.com/acme/mail:1")
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		layers string
		module string
		wrong  string
	}{
		"Wkg":       {layers: untitled, module: "mail.wasm"},
		"Titled":    {layers: layer(ModuleType, "post.wasm"), module: "post.wasm"},
		"BadTitle":  {layers: layer(ModuleType, "../post.wasm"), module: "mail.wasm"},
		"None":      {layers: layer(FileType, "mail.wasm"), wrong: "0 layers of type application/wasm"},
		"Two":       {layers: untitled + "," + untitled, wrong: "2 layers of type application/wasm"},
		"Outside":   {layers: untitled + "," + layer(FileType, "../x"), wrong: "no path below a folder"},
		"Twice":     {layers: untitled + "," + layer(FileType, "x") + "," + layer(FileType, "x"), wrong: "two layers are"},
		"Large":     {layers: strings.Replace(untitled, ": 3", ": 999999999999", 1), wrong: "more than 160 MiB"},
		"Negative":  {layers: strings.Replace(untitled, ": 3", ": -3", 1), wrong: "more than 160 MiB"},
		"Digest":    {layers: strings.Replace(untitled, "sha256:2c", "sha512:2c", 1), wrong: "no SHA-256"},
		"Many":      {layers: untitled + strings.Repeat(","+layer(FileType, ""), release.MaxFiles+1), wrong: "use at most 256"},
		"Malformed": {layers: `{]`, wrong: "cannot be read"},
	} {
		a, err := readManifest(ref, []byte(`{"schemaVersion": 2, "layers": [`+of.layers+`]}`))
		switch {
		case of.wrong == "" && (err != nil || a.Module() != of.module):
			t.Errorf("%s: %+v, %v", name, a, err)
		case of.wrong != "" && (err == nil || !strings.Contains(err.Error(), of.wrong)):
			t.Errorf("%s: %v, want %s", name, err, of.wrong)
		}
	}
}
