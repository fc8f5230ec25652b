package build

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
)

// Language says how to recognize and build plugins in one language.
type Language struct {
	// source selects the source files of this language among the names of the files in a folder.
	source func(names []string) []string
	// several is true if all source files in a folder belong to one plugin. Otherwise each file is the source of one
	// plugin.
	several bool
	// above names files and folders that the compiler also uses if they are in a folder above the source's.
	above []string
	// test reports whether a file is a test, by its path in the folder, with slashes. If it is nil, no file is.
	test func(name string) bool
	// outside lists files outside the folder that the module is built from. If it is nil, they are not known.
	outside func(ctx context.Context, s *Source) []string
	// build writes the module of a source to the absolute path out.
	build func(ctx context.Context, b *Builder, s *Source, out string) error
}

func languages() []*Language { return []*Language{golang, python, javascript, assemblyscript, rust, c} }

// Source is a folder with the source of one plugin.
type Source struct {
	Dir, Name string
	Language  *Language
	Files     []string // names of the source files
	Manifest  string   // path of the manifest; "" if there is none
}

// Read finds the source of a plugin in a folder.
func Read(dir string) (*Source, error) {
	s := &Source{Dir: dir}
	entries, err := os.ReadDir(dir)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	if err != nil {
		return nil, because(Usage, "folder %q: %w: name the folder of a plugin's source", dir, err)
	}
	var names, manifests []string
	for _, entry := range entries {
		switch name := entry.Name(); {
		case strings.HasPrefix(name, "."):
		case filepath.Ext(name) == manifest.Suffix:
			manifests = append(manifests, name)
		default:
			names = append(names, name)
		}
	}
	var handlers []string
	for _, language := range languages() {
		files := language.source(names)
		if len(files) == 0 {
			continue
		}
		s.Language, s.Files = language, files
		if language.several {
			files = files[:1]
		}
		handlers = append(handlers, files...)
	}
	switch len(handlers) {
	case 0:
		return nil, because(Usage, "folder %q has no source: expected handler.py, handler.ts, handler.js, Cargo.toml, asconfig.json, or files of Go or C; "+
			"name the folder of a plugin's source, or make one by `quern plugin new NAME`", dir)
	case 1:
	default:
		return nil, because(Usage, "folder %q has %s and %s: a plugin has one handler; remove one, or move it to a folder of its own",
			dir, handlers[0], handlers[1])
	}
	for _, name := range s.Files {
		switch info, err := os.Stat(filepath.Join(dir, name)); {
		case err != nil:
			return nil, because(Usage, "read source: %w: put a file in its place", err)
		case info.IsDir():
			return nil, because(Usage, "%s is a folder: put a file in its place", filepath.Join(dir, name))
		case !info.Mode().IsRegular():
			return nil, because(Usage, "%s is a pipe, a socket or a device: put a file in its place", filepath.Join(dir, name))
		}
	}
	return s, s.findManifest(manifests)
}

// findManifest names the plugin after the manifest that has the folder's name, or else after the only manifest. Without
// a manifest, the plugin has the folder's name.
func (s *Source) findManifest(names []string) error {
	abs, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	s.Name = filepath.Base(abs)
	switch own := s.Name + manifest.Suffix; {
	case slices.Contains(names, own):
		s.Manifest = filepath.Join(s.Dir, own)
	case len(names) == 1:
		s.Name = strings.TrimSuffix(names[0], manifest.Suffix)
		s.Manifest = filepath.Join(s.Dir, names[0])
	case len(names) > 1:
		return because(Usage, "folder %q has the manifests %s: name one of them %s, after the folder", s.Dir,
			strings.Join(names, ", "), own)
	}
	return nil
}

// read returns the text of the source's files.
func (s *Source) read() (texts [][]byte, err error) {
	for _, name := range s.Files {
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil {
			return nil, because(Usage, "read source: %w", err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// named returns a function that selects files with the candidates' names. It is for languages in which a handler's file
// has a fixed name.
func named(candidates ...string) func(names []string) []string {
	return func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(candidates, name) })
	}
}

// NewerFile returns a source file that changed after the time since, "" if there is none. The manifest, tests and
// documents do not count, because they are not part of the module. For Go, source files are also those of imported
// packages that are elsewhere.
func NewerFile(ctx context.Context, s *Source, since time.Time) string {
	apart := []string{s.Manifest}
	if m, err := plugins.LoadManifest(s.Manifest); err == nil {
		for _, test := range m.Tests {
			apart = append(apart, filepath.Join(s.Dir, test.Input), filepath.Join(s.Dir, test.Output))
			for _, one := range test.Dependencies {
				apart = append(apart, filepath.Join(s.Dir, one.Result))
			}
		}
	}
	files, isTest := Files(s.Dir, "", func(string) {}), s.Tests()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if files[path].modified.After(since) && !slices.Contains(apart, path) && filepath.Ext(path) != ".md" &&
			!isTest(path) {
			return path
		}
	}
	if s.Language.outside == nil {
		return ""
	}
	for _, path := range s.Language.outside(ctx, s) {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(since) {
			return path
		}
	}
	return ""
}

// Tests returns a function that reports whether a file of the folder is a test, which the module does not contain. What
// the manifest grants to the handler is no test, nor is the input of its warm call.
func (s *Source) Tests() func(path string) bool {
	if s.Language.test == nil {
		return func(string) bool { return false }
	}
	var granted []string
	if m, err := plugins.LoadManifest(s.Manifest); err == nil {
		granted = grantedFiles(m)
	}
	return func(path string) bool {
		name, err := filepath.Rel(s.Dir, path)
		return err == nil && s.Language.test(filepath.ToSlash(name)) && !slices.Contains(granted, name)
	}
}

// Stamp identifies a state of a file by its size and modification time.
type Stamp struct {
	size     int64
	modified time.Time
}

// Files returns the stamps of the source files below dir, by path. It leaves out outDir, the folder that the plugin is
// built into, and files that cannot be read. It calls visit with every folder that it enters.
func Files(dir, outDir string, visit func(folder string)) map[string]Stamp {
	files := map[string]Stamp{}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return nil //nolint:nilerr // as the comment above says
		case entry.IsDir() && path != dir && foreign(path, outDir):
			return filepath.SkipDir // the author wrote nothing in it
		case entry.IsDir():
			visit(path)
			return nil
		case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") ||
			strings.HasSuffix(name, manifest.ModuleSuffix) || name == "4913": // vim's test file
			return nil // an editor or a build made it
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && !isOutput(info) {
			files[path] = Stamp{info.Size(), info.ModTime()}
		}
		return nil
	})
	return files
}

// isOutput reports whether a file is the stdout or stderr of this process, as in `quern dev > dev.log`.
func isOutput(file fs.FileInfo) bool {
	return slices.ContainsFunc([]*os.File{os.Stdout, os.Stderr}, func(f *os.File) bool {
		info, err := f.Stat()
		return err == nil && os.SameFile(info, file)
	})
}
