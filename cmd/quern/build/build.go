// Package build builds plugins from their source, for `quern plugin build` and `quern dev`.
//
//	folder ── Read ──▶ Source ── Builder.Build ──▶ NAME.wasm
//	                     │           │
//	                 Language        ├── Go, Rust, AssemblyScript, C: a compiler of this machine makes the module
//	                                 └── Python, JavaScript, TypeScript: an engine, and the files of the handler in it
//
// Each [Language] is a variable in the file with its name. Compilers, pip and esbuild write their messages to
// Config.Stderr.
//
// # Failure
//
// An [Error] says who can fix its cause. A build writes the module last and in one step, after the files that belong to
// it. If the build fails, the module of the last successful build stays.
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

// Cause says who can fix the cause of an error.
type Cause string

// The causes.
const (
	Usage   Cause = "usage"   // the folder is not a plugin's, or cannot be used
	Failed  Cause = "failed"  // the source is wrong; compilers wrote messages about it to Config.Stderr
	Refused Cause = "refused" // a program is missing on this machine, or the manifest is wrong
)

// Error is the reason why a plugin could not be built.
type Error struct {
	Cause Cause
	err   error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

func because(cause Cause, format string, args ...any) error {
	return &Error{cause, fmt.Errorf(format, args...)}
}

// Config configures a Builder.
type Config struct {
	// Getenv looks up a variable of the environment.
	Getenv func(name string) string
	// Stderr receives the messages of compilers.
	Stderr io.Writer
	// Engines is the folder of the interpreters. Default "": the folder engines next to this program's binary.
	Engines string
	// Cache is the folder for the packages of requirements.txt. Default "": each build installs them again.
	Cache string
	// Start checks a module as a host does. If the module contains an interpreter, Start also starts it once. If that
	// fails, wrong has the lines that tell the author why. If the module is refused, the error is a
	// *runtime.RefusedError.
	Start func(ctx context.Context, s *Source, module string) (wrong []string, err error)
}

// Builder builds plugins with the compilers of this machine.
type Builder struct {
	config Config

	mu    sync.Mutex
	clang string            // path of the clang to use, "" until findClang has found one; guarded by mu
	told  map[string]string // the data files of each folder that were told last; guarded by mu
}

// New makes a builder. Nothing has to be closed after use.
func New(config Config) *Builder { return &Builder{config: config} }

// Build builds a plugin into the folder outDir and returns the path of the module. If outDir is "", it builds into the
// folder of the source.
func (b *Builder) Build(ctx context.Context, s *Source, outDir string) (path string, err error) {
	if err := s.checkAbove(); err != nil {
		return "", err
	}
	granted, err := s.granted() // report a wrong manifest before the slow compiler runs
	if err != nil {
		return "", err
	}
	var files map[string][]byte
	if outDir == "" || sameFolder(s.Dir, outDir) {
		outDir = s.Dir
	} else if err := os.MkdirAll(outDir, 0o755); err != nil {
		return "", because(Usage, "make folder: %w", err)
	} else if files, err = s.companions(granted); err != nil {
		return "", err
	}
	temporary, err := os.CreateTemp(outDir, "."+s.Name+"-*"+manifest.ModuleSuffix)
	if err != nil {
		return "", because(Usage, "build %s: %w", s.Name, err)
	}
	defer os.Remove(temporary.Name()) // left only by a failed build
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
		if err := atomicfile.Write(filepath.Join(outDir, name), content, 0o644); err != nil {
			return "", fmt.Errorf("copy %s: %w", name, err)
		}
	}
	path = filepath.Join(outDir, s.Name+manifest.ModuleSuffix)
	if err := errors.Join(os.Chmod(out, 0o644), os.Rename(out, path)); err != nil {
		return "", fmt.Errorf("build %s: %w", s.Name, err)
	}
	return path, nil
}

// companions reads the files that a host needs next to the module: the manifest and the granted files. The keys are
// paths in the plugin's folder.
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

// granted checks the manifest and returns grantedFiles of it.
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
	return grantedFiles(m), nil
}

// grantedFiles returns the files that a manifest grants to the handler, and the input of its warm call, as paths in the
// folder.
func grantedFiles(m manifest.Manifest) (names []string) {
	for _, grant := range m.Capabilities.Files {
		names = append(names, filepath.FromSlash(grant.From))
	}
	if m.Warm.Input != "" {
		names = append(names, filepath.FromSlash(m.Warm.Input))
	}
	return names
}

// foreign reports whether a folder contains nothing that the plugin's author writes: installed packages, a cache,
// secrets, a folder whose name begins with a dot, a plugin directory, or outDir, the folder that the plugin is built
// into.
func foreign(path, outDir string) bool {
	name := filepath.Base(path)
	if strings.HasPrefix(name, ".") || slices.Contains([]string{"node_modules", "site-packages", "__pycache__"}, name) {
		return true
	}
	if name == "secrets" && onlyFolders(path) {
		return true // the secrets of `quern dev`, TENANT/NAME
	}
	if isPluginDir(path) {
		return true
	}
	// These files mark a virtual environment of Python, and a cache such as cargo's target.
	for _, mark := range []string{"pyvenv.cfg", "CACHEDIR.TAG"} {
		if _, err := os.Stat(filepath.Join(path, mark)); err == nil {
			return true
		}
	}
	return sameFolder(path, outDir)
}

// isPluginDir reports whether a folder has built plugins in it, NAME.wasm beside NAME.yaml, as that of `quern dev`.
func isPluginDir(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
		name, is := strings.CutSuffix(entry.Name(), manifest.ModuleSuffix)
		return is && slices.ContainsFunc(entries, func(other os.DirEntry) bool {
			return other.Name() == name+manifest.Suffix
		})
	})
}

// onlyFolders reports whether a folder has folders in it and nothing else.
func onlyFolders(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) > 0 &&
		!slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return !entry.IsDir() })
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}
