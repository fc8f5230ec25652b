// Package build builds plugins from their source, for `quern plugin build` and `quern dev`.
//
//	folder ── Read ──▶ Source ── Builder.Build ──▶ NAME.wasm
//	                     │           │
//	                 Language        ├── Go, Rust, AssemblyScript, C: a compiler of this machine makes the module
//	                                 └── Python, JavaScript, TypeScript: an engine, and the files of the handler in it
//
// A [Language] is a value in the file of its name. Compilers, pip and esbuild write their messages to Config.Stderr.
//
// # Failure
//
// An [Error] says who can mend it. The module appears whole, after the files that belong to it, or not at all: what was
// built before stays.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
)

// Cause says who can mend an error.
type Cause string

// The causes.
const (
	Usage   Cause = "usage"   // the folder is no plugin's
	Failed  Cause = "failed"  // the source is wrong; messages about it are on Config.Stderr
	Refused Cause = "refused" // a program is missing on this machine, or the manifest is wrong
)

// Error is why a plugin is not built.
type Error struct {
	Cause Cause
	err   error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

func because(cause Cause, format string, args ...any) error {
	return &Error{cause, fmt.Errorf(format, args...)}
}

// Config is what a builder needs.
type Config struct {
	// Getenv looks up a variable of the environment.
	Getenv func(name string) string
	// Stderr receives the messages of compilers.
	Stderr io.Writer
	// Engines is the folder of the interpreters. Default "": engines beside this program.
	Engines string
	// Cache is the folder for the packages of requirements.txt. Default "": they are installed for each build.
	Cache string
	// Start checks a module as a host does, and starts it once if it is an interpreter's. It returns why it does not
	// start: what its author reads, with a line for each of the log; its error may be a *runtime.RefusedError.
	Start func(ctx context.Context, s *Source, module string) (wrong []string, err error)
}

// Builder builds plugins with the compilers of this machine.
type Builder struct {
	config Config

	mu    sync.Mutex
	clang string // path; "" until findClang found one; guarded by mu
}

// New makes a builder. It needs no end.
func New(config Config) *Builder { return &Builder{config: config} }

// Build builds a plugin into a folder, "" for that of its source, and returns the path of the module.
func (b *Builder) Build(ctx context.Context, s *Source, to string) (path string, err error) {
	if err := s.checkAbove(); err != nil {
		return "", err
	}
	granted, err := s.granted() // a wrong manifest is told before the compiler takes its time
	if err != nil {
		return "", err
	}
	var files map[string][]byte
	if to == "" || sameFolder(s.Dir, to) {
		to = s.Dir
	} else if err := os.MkdirAll(to, 0o755); err != nil {
		return "", because(Usage, "make folder: %w", err)
	} else if files, err = s.companions(granted); err != nil {
		return "", err
	}
	temporary, err := os.CreateTemp(to, "."+s.Name+"-*"+manifest.ModuleSuffix)
	if err != nil {
		return "", because(Usage, "build %s: %w", s.Name, err)
	}
	defer os.Remove(temporary.Name()) // of a failed build
	if err := temporary.Close(); err != nil {
		return "", fmt.Errorf("build %s: %w", s.Name, err)
	}
	out, err := filepath.Abs(temporary.Name())
	if err != nil {
		return "", err
	}
	if err := s.Language.build(ctx, b, s, out); err != nil {
		return "", err
	}
	if err := b.start(ctx, s, out); err != nil {
		return "", err
	}
	for name, content := range files {
		if err := atomicfile.Write(filepath.Join(to, name), content, 0o644); err != nil {
			return "", fmt.Errorf("copy %s: %w", name, err)
		}
	}
	path = filepath.Join(to, s.Name+manifest.ModuleSuffix)
	if err := errors.Join(os.Chmod(out, 0o644), os.Rename(out, path)); err != nil {
		return "", fmt.Errorf("build %s: %w", s.Name, err)
	}
	return path, nil
}

// companions are the files that a host reads beside the module, by their paths in its folder: the manifest and those it
// grants.
func (s *Source) companions(granted []string) (files map[string][]byte, err error) {
	if s.Manifest == "" {
		return nil, nil
	}
	files = make(map[string][]byte, len(granted)+1)
	for _, name := range append(granted, s.Name+manifest.Suffix) {
		if files[name], err = os.ReadFile(filepath.Join(s.Dir, name)); err != nil {
			return nil, fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return files, nil
}

// granted are the paths in the folder of what the manifest grants or warms the handler with.
func (s *Source) granted() (names []string, err error) {
	if s.Manifest == "" {
		return nil, nil
	}
	m, err := plugins.LoadManifest(s.Manifest)
	if err == nil {
		_, _, err = plugins.LoadFiles(s.Manifest, m)
	}
	if err != nil {
		return nil, because(Refused, "the manifest is refused: %w", err)
	}
	for _, grant := range m.Capabilities.Files {
		names = append(names, filepath.FromSlash(grant.From))
	}
	if m.Warm.Input != "" {
		names = append(names, filepath.FromSlash(m.Warm.Input))
	}
	return names, nil
}

// foreign reports whether a folder has nothing that a plugin's author writes: installed packages, caches, what begins
// with a dot, and the folder that plugins are built into.
func foreign(path, to string) bool {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") || slices.Contains([]string{"node_modules", "site-packages", "__pycache__"}, name) {
		return true
	}
	// of a virtual environment, and of a cache such as cargo's target
	for _, mark := range []string{"pyvenv.cfg", "CACHEDIR.TAG"} {
		if _, err := os.Stat(filepath.Join(path, mark)); err == nil {
			return true
		}
	}
	return sameFolder(path, to)
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}
