package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/quern-project/quern/sdk/queue/release"
)

// The media types of an artifact.
const (
	ConfigType    = "application/vnd.wasm.config.v0+json"
	ModuleType    = "application/wasm"
	ManifestType  = "application/vnd.quern.manifest.v1+yaml"
	SignatureType = "application/vnd.quern.signature.v1"
	FileType      = "application/octet-stream"
)

const (
	maxManifest = 256 << 10 // maximum bytes of an OCI manifest
	moduleEnd   = ".wasm"
	manifestEnd = ".yaml"
	sigEnd      = ".sig"
)

// Artifact is an artifact in a registry, and the layers that become files of a plugin.
type Artifact struct {
	repo   *remote.Repository
	ref    Reference // with the digest
	plugin string
	layers map[string]ocispec.Descriptor // by the name of the file
}

// Name returns the artifact with its digest, as a release names it.
func (a *Artifact) Name() string { return shown(a.ref) }

// Module returns the name of the module's file.
func (a *Artifact) Module() string { return a.plugin + moduleEnd }

// has reports whether a layer has the content of a file of a release.
func (a *Artifact) has(f *release.File) bool {
	for _, layer := range a.layers {
		if layer.Digest.String() == "sha256:"+f.Digest && layer.Size == f.Size {
			return true
		}
	}
	return false
}

// Resolve reads the manifest of an artifact by its tag or digest.
func (c *Client) Resolve(ctx context.Context, ref Reference) (*Artifact, error) {
	repo, err := c.repository(ref)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error { return explain(ctx, ref, "read the manifest", err) }
	desc, body, err := repo.Manifests().FetchReference(ctx, ref.Reference)
	if err != nil {
		return nil, fail(err)
	}
	defer body.Close()
	if desc.Size > maxManifest {
		return nil, fail(fmt.Errorf("it has %d bytes: use at most %d", desc.Size, maxManifest))
	}
	if desc.MediaType != ocispec.MediaTypeImageManifest {
		return nil, fail(fmt.Errorf("it is of type %.100q, and not %s: name one artifact", desc.MediaType,
			ocispec.MediaTypeImageManifest))
	}
	data, err := content.ReadAll(body, desc)
	if err != nil {
		return nil, fail(fmt.Errorf("the registry sends other bytes than its digest says: %w", err))
	}
	ref.Reference = desc.Digest.String()
	a, err := readManifest(ref, data)
	if err == nil {
		a.repo = repo
	}
	return a, err
}

// readManifest reads the layers of a manifest.
func readManifest(ref Reference, data []byte) (*Artifact, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s is no plugin: %s", shown(ref), fmt.Sprintf(format, args...))
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, wrong("its manifest cannot be read")
	}
	if len(m.Layers) > release.MaxFiles+1 {
		return nil, wrong("it has %d layers: use at most %d", len(m.Layers), release.MaxFiles)
	}
	a := &Artifact{ref: ref, layers: make(map[string]ocispec.Descriptor)}
	modules := 0
	for _, layer := range m.Layers {
		if layer.MediaType == ModuleType {
			a.plugin = strings.TrimSuffix(layer.Annotations[ocispec.AnnotationTitle], moduleEnd)
			modules++
		}
	}
	if modules != 1 {
		return nil, wrong("it has %d layers of type %s: push it with exactly one", modules, ModuleType)
	}
	if release.ValidPlugin(a.plugin) != nil {
		a.plugin = path.Base(ref.Repository)
	}
	var total int64
	for _, layer := range m.Layers {
		name := layer.Annotations[ocispec.AnnotationTitle]
		switch layer.MediaType {
		case ModuleType:
			name = a.plugin + moduleEnd
		case ManifestType:
			name = a.plugin + manifestEnd
		case SignatureType:
			name = a.plugin + sigEnd
		}
		if name == "" {
			continue // it belongs to another program
		}
		if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) {
			return nil, wrong("the title %.100q of a layer is no path below a folder", name)
		}
		if _, twice := a.layers[name]; twice {
			return nil, wrong("two layers are the file %.100q", name)
		}
		if layer.Digest.Validate() != nil || layer.Digest.Algorithm() != digest.SHA256 {
			return nil, wrong("the digest of %.100q is no SHA-256", name)
		}
		if total += layer.Size; layer.Size < 0 || layer.Size > release.MaxBytes || total > release.MaxBytes {
			return nil, wrong("its layers have more than %d MiB together", release.MaxBytes>>20)
		}
		a.layers[name] = layer
	}
	return a, nil
}

// Pull writes the files of the artifact into a folder.
func (a *Artifact) Pull(ctx context.Context, into string) error {
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	for name, layer := range a.layers {
		if err := a.write(ctx, root, name, layer); err != nil {
			return err
		}
	}
	return nil
}

// write writes a layer into a file.
func (a *Artifact) write(ctx context.Context, root *os.Root, name string, layer ocispec.Descriptor) (err error) {
	from, err := a.open(ctx, name, layer)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(file, from)
	return err
}

// blob reads a layer. It returns an error in place of io.EOF if the bytes have another size or digest.
type blob struct {
	io.Closer
	*content.VerifyReader
	explain func(err error) error
	arrived func() // is called after each read
}

func (b *blob) Read(p []byte) (int, error) {
	n, err := b.VerifyReader.Read(p)
	b.arrived()
	if errors.Is(err, io.EOF) {
		if wrong := b.Verify(); wrong != nil {
			return n, b.explain(fmt.Errorf("the registry sends other bytes than the digest says: %w", wrong))
		}
		return n, io.EOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("it ends before its last byte: %w", err)
	}
	return n, b.explain(err)
}

// closer is a function that closes.
type closer func() error

// Close implements io.Closer.
func (c closer) Close() error { return c() }

// open reads a layer. The reading ends when no byte arrives for stallTime.
func (a *Artifact) open(ctx context.Context, name string, layer ocispec.Descriptor) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stalled := time.AfterFunc(stallTime+headerTime, func() { cancel(errStalled) })
	end := func() { stalled.Stop(); cancel(nil) }
	fail := func(err error) error { return explain(ctx, a.ref, fmt.Sprintf("read the file %q", name), err) }
	body, err := a.repo.Blobs().Fetch(ctx, layer)
	if err != nil {
		err = fail(err)
		end()
		return nil, err
	}
	return &blob{
		Closer:       closer(func() error { end(); return body.Close() }),
		VerifyReader: content.NewVerifyReader(body, layer), explain: fail,
		arrived: func() { stalled.Reset(stallTime) },
	}, nil
}

// wasmConfig is the config of an artifact. The same release has the same config.
type wasmConfig struct {
	Created      time.Time       `json:"created"`
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	LayerDigests []digest.Digest `json:"layerDigests"`
}

// Push uploads the files of a release to a repository, gives the artifact the tag of ref, and returns the artifact's
// name with its digest. files are those from which the release was made. Blobs that the repository has are not sent
// again.
func (c *Client) Push(ctx context.Context, ref Reference, r *release.Release, files []release.Content,
) (string, error) {
	repo, err := c.repository(ref)
	if err != nil {
		return "", err
	}
	for _, signature := range r.Signatures {
		files = append(files, release.Content{Name: r.Plugin + sigEnd, Data: []byte(signature)})
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Annotations: map[string]string{ocispec.AnnotationTitle: r.Plugin},
	}
	if r.Version != "" {
		m.Annotations[ocispec.AnnotationVersion] = r.Version
	}
	config := wasmConfig{Created: time.Unix(0, 0).UTC(), Architecture: "wasm", OS: "wasip1"}
	for i, f := range files {
		layer := content.NewDescriptorFromBytes(FileType, f.Data)
		switch {
		case i == 0:
			layer.MediaType = ModuleType
		case f.Name == r.Plugin+manifestEnd:
			layer.MediaType = ManifestType
		case f.Name == r.Plugin+sigEnd:
			layer.MediaType = SignatureType
		}
		layer.Annotations = map[string]string{ocispec.AnnotationTitle: f.Name}
		m.Layers, config.LayerDigests = append(m.Layers, layer), append(config.LayerDigests, layer.Digest)
		if err := upload(ctx, repo, f.Name, layer, f.Data); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	m.Config = content.NewDescriptorFromBytes(ConfigType, text)
	if err := upload(ctx, repo, "the config", m.Config, text); err != nil {
		return "", err
	}
	if text, err = json.Marshal(m); err != nil {
		return "", err
	}
	desc := content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, text)
	if err := repo.PushReference(ctx, desc, bytes.NewReader(text), ref.Reference); err != nil {
		return "", explain(ctx, ref, "write the manifest", err)
	}
	ref.Reference = desc.Digest.String()
	return shown(ref), nil
}

// upload sends a blob that the repository does not have.
func upload(ctx context.Context, repo *remote.Repository, name string, desc ocispec.Descriptor, data []byte) error {
	has, err := repo.Blobs().Exists(ctx, desc)
	if err == nil && !has {
		err = repo.Blobs().Push(ctx, desc, bytes.NewReader(data))
	}
	return explain(ctx, repo.Reference, "write "+name, err)
}
