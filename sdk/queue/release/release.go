package release

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue"
)

// The bounds of releases. Each is checked before the work.
const (
	PieceBytes = 1 << 20   // maximum bytes of a piece; only the last piece of a file has fewer
	MaxBytes   = 160 << 20 // maximum bytes of all files of a release
	MaxFiles   = 256       // maximum number of files of a release
	MaxKept    = 20        // maximum number of releases of a plugin that are kept
	MaxPlugins = 1000      // maximum number of plugins with releases in a tenant
	MaxStored  = 1 << 30   // maximum bytes of all pieces of a tenant
	maxPieces  = 1 << 14   // maximum number of pieces of a tenant
	maxRecord  = 48 << 10  // maximum bytes of a release as JSON
	maxSigned  = 8         // maximum number of signatures
	maxSigning = 4 << 10   // maximum bytes of all signatures
	maxQueues  = 1000      // maximum number of queues that a release names
	maxNote    = 1 << 10   // maximum bytes of a note, or of the name of who pushed
	maxName    = 512       // maximum bytes of the name of an artifact

	// maxAsked is the maximum number of pieces of a release.
	maxAsked = MaxBytes/PieceBytes + MaxFiles
)

// Errors that callers can test for with errors.Is.
var (
	ErrNoRelease = errors.New("no such release")
	ErrFrozen    = errors.New("the plugin is frozen")
	ErrServes    = errors.New("the release serves")
	ErrMissing   = errors.New("a piece of the release is not in Redis")
	ErrNoRoom    = errors.New("no room for more releases")
	ErrNoTrial   = errors.New("the release is not on trial")
	ErrNoCanary  = errors.New("the plugin has no such canary")
	ErrCanary    = errors.New("the release is a canary")
)

// File is a file of a release.
type File struct {
	Name   string   `json:"name" doc:"NAME.wasm, NAME.yaml, or a path that the manifest names."`
	Size   int64    `json:"size"`
	Digest string   `json:"digest" doc:"The SHA-256 of the file, in hex."`
	Pieces []string `json:"pieces,omitempty" maxItems:"64" doc:"The SHA-256 of each MiB of the file, in hex; none of a file in a registry."`
}

// Release is a release of a plugin. Number, Created and what follows them are set by Redis.
type Release struct {
	Plugin  string `json:"plugin"`
	Version string `json:"version,omitempty" maxLength:"128" doc:"Of the manifest."`
	// Queues are those that the plugin serves; none if the push named none.
	Queues []string `json:"queues,omitempty" maxItems:"1000" doc:"Of the manifest."`
	Files  []File   `json:"files" maxItems:"256" doc:"The module, the manifest if there is one, and the files that it names."`
	Note   string   `json:"note,omitempty" maxLength:"1024" doc:"What is new."`
	// Signatures are signatures of the Statement, as package plugins/signature makes them.
	Signatures []string `json:"signatures,omitempty" maxItems:"8" doc:"Signatures of minisign or cosign."`
	// Artifact is where the bytes of the files are, if they are not in Redis.
	Artifact string `json:"artifact,omitempty" maxLength:"512" doc:"The artifact in an OCI registry that has the files: oci://HOST/REPOSITORY@sha256:DIGEST."`

	By string `json:"by,omitempty" maxLength:"1024" doc:"Who pushed it."`

	Number     int     `json:"number,omitempty" doc:"Counts the releases of the plugin."`
	Created    float64 `json:"created,omitempty" doc:"When it was pushed."`
	Serving    bool    `json:"serving,omitempty" doc:"Whether hosts are to serve it."`
	RolledBack float64 `json:"rolled_back,omitempty" doc:"When somebody went back from it, or past it, to an earlier release."`
	Reason     string  `json:"reason,omitempty" doc:"Why hosts went back from it by themselves."`
	Frozen     float64 `json:"frozen,omitempty" doc:"Since when its plugin takes no pushes."`
	Stage      *Stage  `json:"stage,omitempty" doc:"Of a canary: its share of the tasks. A release that serves or served has none."`
}

// The states of a release.
const (
	StateServing    = "serving"
	StateFrozen     = "frozen" // it serves, and no push replaces it
	StateRolledBack = "rolled back"
	StateReplaced   = "replaced"
	StateCanary     = "canary" // it gets a share of the tasks
	StateHalted     = "halted" // it was a canary, and gets no more tasks
)

// State returns the state of a release.
func (r *Release) State() string {
	switch {
	case r.Serving && r.Frozen > 0:
		return StateFrozen
	case r.Serving:
		return StateServing
	case r.Stage != nil && r.Stage.Halted > 0:
		return StateHalted
	case r.Stage != nil:
		return StateCanary
	case r.RolledBack > 0:
		return StateRolledBack
	}
	return StateReplaced
}

// Content is a file of a release with its bytes.
type Content struct {
	Name string
	Data []byte
}

// New makes a release of a plugin from its files, of which the first must be the module NAME.wasm.
func New(plugin string, files []Content) (Release, error) {
	r := Release{Plugin: plugin}
	for _, f := range files {
		file := File{Name: f.Name, Size: int64(len(f.Data)), Digest: digestOf(f.Data)}
		for piece := range slices.Chunk(f.Data, PieceBytes) {
			file.Pieces = append(file.Pieces, digestOf(piece))
		}
		r.Files = append(r.Files, file)
	}
	return r, r.validate()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Digest returns the digest of the release: the SHA-256 of its Statement, in hex.
func (r *Release) Digest() string { return digestOf(r.Statement()) }

// ModuleDigest returns the SHA-256 of the module, in hex.
func (r *Release) ModuleDigest() string { return r.Files[0].Digest }

// Statement returns the text that identifies the content of a release: its plugin, and the digest and name of each of
// its files.
func (r *Release) Statement() []byte {
	text := "quern release of " + r.Plugin + "\n"
	for _, f := range r.Files {
		text += f.Digest + "  " + f.Name + "\n"
	}
	return []byte(text)
}

// Size returns the number of bytes of all files.
func (r *Release) Size() (bytes int64) {
	for _, f := range r.Files {
		bytes += f.Size
	}
	return bytes
}

// Pieces returns the sizes of the pieces of the release, by digest.
func (r *Release) Pieces() map[string]int64 {
	sizes := make(map[string]int64)
	for _, f := range r.Files {
		for i, digest := range f.Pieces {
			sizes[digest] = min(PieceBytes, f.Size-int64(i)*PieceBytes)
		}
	}
	return sizes
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ArtifactScheme begins the name of an artifact.
const ArtifactScheme = "oci://"

var artifactForm = regexp.MustCompile(`^oci://[A-Za-z0-9.:\[\]-]+/[a-z0-9._/-]+@sha256:[0-9a-f]{64}$`)

// InRegistry returns the release with its bytes in an artifact, in place of Redis.
func (r Release) InRegistry(artifact string) Release {
	r.Artifact, r.Files = artifact, slices.Clone(r.Files)
	for i := range r.Files {
		r.Files[i].Pieces = nil
	}
	return r
}

// ValidPlugin checks the name of a plugin with releases. It is also the name of a file.
func ValidPlugin(name string) error {
	if queue.ValidQueue(name) != nil || strings.HasPrefix(name, ".") || strings.ContainsAny(name, `/\`) {
		return fmt.Errorf("%w: plugin %.130q: use 1 to 128 printable ASCII characters without a space, / or \\, the first of which is no dot",
			queue.ErrInvalid, name)
	}
	return nil
}

// validate checks a release that somebody else wrote. A host writes its files by their names.
func (r *Release) validate() error {
	if err := ValidPlugin(r.Plugin); err != nil {
		return err
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: release of plugin %s: %s", queue.ErrInvalid, r.Plugin, fmt.Sprintf(format, args...))
	}
	module := r.Plugin + ".wasm"
	switch {
	case len(r.Files) == 0 || r.Files[0].Name != module:
		return wrong("its first file is not %s: push the module with its manifest", module)
	case len(r.Files) > MaxFiles:
		return wrong("it has %d files: use at most %d", len(r.Files), MaxFiles)
	case len(r.Note) > maxNote || len(r.By) > maxNote || !utf8.ValidString(r.Note+r.By+r.Version):
		return wrong("its note is not UTF-8 of at most %d bytes", maxNote)
	case len(r.Signatures) > maxSigned || len(strings.Join(r.Signatures, "")) > maxSigning ||
		!utf8.ValidString(strings.Join(r.Signatures, "")):
		return wrong("it has %d signatures: use at most %d of %d bytes together", len(r.Signatures), maxSigned, maxSigning)
	case len(r.Version) > 128:
		return wrong("its version has %d bytes: use at most 128", len(r.Version))
	case r.Artifact != "" && (len(r.Artifact) > maxName || !artifactForm.MatchString(r.Artifact)):
		return wrong("artifact %.600q: use oci://HOST/REPOSITORY@sha256:DIGEST, of at most %d bytes", r.Artifact, maxName)
	}
	for _, name := range r.Queues {
		if err := queue.ValidQueue(name); err != nil || len(r.Queues) > maxQueues {
			return wrong("it has %d queues: use at most %d, with valid names", len(r.Queues), maxQueues)
		}
	}
	seen := make(map[string]bool)
	var total int64
	for _, f := range r.Files {
		if !fs.ValidPath(f.Name) || f.Name == "." || strings.ContainsAny(f.Name, "\\\n") || len(f.Name) > 1024 || seen[f.Name] {
			return wrong("file %.100q: use a path below the folder of the manifest, and each once", f.Name)
		}
		seen[f.Name] = true
		total += f.Size
		if f.Size < 0 || f.Size > MaxBytes || total > MaxBytes {
			return wrong("its files have more than %d MiB together: make them smaller", MaxBytes>>20)
		}
		switch pieces := int64(len(f.Pieces)); {
		case r.Artifact != "" && pieces > 0:
			return wrong("file %s has %d pieces: use none beside an artifact", f.Name, pieces)
		case r.Artifact == "" && pieces != (f.Size+PieceBytes-1)/PieceBytes:
			return wrong("file %s of %d bytes has %d pieces: use one for each MiB", f.Name, f.Size, pieces)
		}
		for _, digest := range append(f.Pieces, f.Digest) {
			if !digestForm.MatchString(digest) {
				return wrong("file %s: digest %.70q: use the 64 hex digits of a SHA-256", f.Name, digest)
			}
		}
	}
	return nil
}

// newer sorts releases by number, the newest first.
func newer(a, b Release) int { return cmp.Compare(b.Number, a.Number) }
