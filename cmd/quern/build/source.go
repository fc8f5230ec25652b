package build

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Language is one that plugins are written in.
type Language struct {
	// Name is its word on the command line, Title what people call it.
	Name, Title string
	// source picks the source of a plugin from the files in a folder. None means that the folder has none in this language.
	source func(names []string) []string
	// build writes the module of a source to the absolute path out.
	build func(ctx context.Context, b *Builder, s *Source, out string) error
}

// Languages lists all languages. The first one with source in a folder is the folder's.
func Languages() []*Language { return []*Language{golang, python, typescript, javascript, c} }

// Source is a folder with the source of one plugin.
type Source struct {
	Dir, Name string
	Language  *Language
	Files     []string // in that language
	Manifest  string   // path; "" if there is none
}

// Read finds the source in a folder.
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
		case filepath.Ext(name) == manifestSuffix:
			manifests = append(manifests, name)
		default:
			names = append(names, name)
		}
	}
	for _, language := range Languages() {
		if s.Files = language.source(names); len(s.Files) > 0 {
			s.Language = language
			break
		}
	}
	if s.Language == nil {
		return nil, because(Usage, "folder %q has no source: expected handler.py, handler.ts, handler.js, or files of Go or C; "+
			"name the folder of a plugin's source, or make one by `quern plugin new NAME`", dir)
	}
	if other := typescript.source(names); s.Language == python && len(other)+len(javascript.source(names)) > 0 {
		return nil, because(Usage, "folder %q has %s and %s: a plugin has one handler; move the other to a folder of its own",
			dir, s.Files[0], append(other, javascript.source(names)...)[0])
	}
	return s, s.findManifest(manifests)
}

// findManifest names the plugin after the manifest with the folder's name, or else after the only one.
func (s *Source) findManifest(names []string) error {
	abs, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	s.Name = filepath.Base(abs)
	switch own := s.Name + manifestSuffix; {
	case slices.Contains(names, own):
		s.Manifest = filepath.Join(s.Dir, own)
	case len(names) == 1:
		s.Name = strings.TrimSuffix(names[0], manifestSuffix)
		s.Manifest = filepath.Join(s.Dir, names[0])
	case len(names) > 1:
		return because(Usage, "folder %q has the manifests %s: name one of them %s, after the folder", s.Dir, strings.Join(names, ", "), own)
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

// named returns those of some file names that are in a folder, for languages whose handlers have a fixed name.
func named(candidates ...string) func(names []string) []string {
	return func(names []string) []string {
		for _, candidate := range candidates {
			if slices.Contains(names, candidate) {
				return []string{candidate}
			}
		}
		return nil
	}
}
