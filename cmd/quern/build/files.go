package build

import (
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

// NewerFile returns a file of a source that changed after a time, "" if there is none. Manifest, tests and documents
// are not part of the module.
func NewerFile(s *Source, than time.Time) string {
	apart := []string{s.Manifest}
	if m, err := plugins.LoadManifest(s.Manifest); err == nil {
		for _, test := range m.Tests {
			apart = append(apart, filepath.Join(s.Dir, test.Input), filepath.Join(s.Dir, test.Output))
			for _, one := range test.Dependencies {
				apart = append(apart, filepath.Join(s.Dir, one.Result))
			}
		}
	}
	files := Files(s.Dir, "", func(string) {})
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if files[path].modified.After(than) && !slices.Contains(apart, path) && filepath.Ext(path) != ".md" {
			return path
		}
	}
	return ""
}

// Stamp identifies a state of a file.
type Stamp struct {
	size     int64
	modified time.Time
}

// Files lists the files of a source in a folder that is built into another one, without files that cannot be read. It
// calls each for every folder.
func Files(dir, to string, each func(folder string)) map[string]Stamp {
	files := map[string]Stamp{}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return nil //nolint:nilerr // as the comment above says
		case entry.IsDir() && path != dir && foreign(path, to):
			return filepath.SkipDir // it has no source of the author's
		case entry.IsDir():
			each(path)
			return nil
		case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") ||
			strings.HasSuffix(name, manifest.ModuleSuffix) || name == "4913": // vim's test file
			return nil // editors or builds made it
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && !isOutput(info) {
			files[path] = Stamp{info.Size(), info.ModTime()}
		}
		return nil
	})
	return files
}

// isOutput reports whether this process writes into a file: `quern dev > dev.log`.
func isOutput(file fs.FileInfo) bool {
	return slices.ContainsFunc([]*os.File{os.Stdout, os.Stderr}, func(f *os.File) bool {
		info, err := f.Stat()
		return err == nil && os.SameFile(info, file)
	})
}
