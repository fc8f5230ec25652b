package plugins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

// id names a plugin: the tenant, "" if it is every tenant's, and the file's name without .wasm.
type id struct{ tenant, name string }

// listed are the files of one plugin, as a scan found them without reading them.
type listed struct {
	module, manifest file
}

// file is an entry of the directory. Its zero value is that of a file that does not exist.
type file struct {
	exists      bool
	path        string // inside the root, all links followed
	fingerprint fingerprint
	problem     error // why it will not be read
}

// scan is the directory at one moment.
type scan struct {
	dir     string // as the configuration names it, for messages
	root    string // the same, all links followed; "" if it does not exist
	seen    map[id]listed
	places  map[string]string   // the folder of each tenant, all links followed; "" for the common one
	closed  map[string]error    // the folders, by tenant, that cannot be listed
	folders map[string]struct{} // where the files lie: what is to be watched
	others  []string            // sub-folders that are no served tenant's
}

// scanDirectory lists the directory. One that does not exist is empty; one that cannot be listed is
// an error, and tells nothing about the plugins.
func scanDirectory(dir string, tenants []string) (*scan, error) {
	s := &scan{
		dir: dir, seen: map[id]listed{}, places: map[string]string{}, closed: map[string]error{}, folders: map[string]struct{}{},
	}
	root, err := filepath.EvalSymlinks(dir)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	var inside []string
	if err == nil {
		s.root = root
		inside, err = s.list("", root)
	}
	if errors.Is(err, fs.ErrNotExist) {
		s.root = ""
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range inside {
		if !slices.Contains(tenants, name) {
			s.others = append(s.others, name)
			continue
		}
		folder, err := filepath.EvalSymlinks(filepath.Join(s.root, name))
		if err == nil {
			_, err = s.list(name, folder)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.closed[name] = err
		}
	}
	return s, nil
}

// list notes the files of one folder, in whose path no link is left, and returns the names of its
// sub-folders.
func (s *scan) list(tenant, folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	s.folders[folder], s.places[tenant] = struct{}{}, folder
	var inside []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		if stem, ok := strings.CutSuffix(name, manifest.ModuleSuffix); ok {
			seen := s.seen[id{tenant, stem}]
			seen.module = s.file(filepath.Join(folder, name), runtime.MaxModule)
			s.seen[id{tenant, stem}] = seen
		} else if stem, ok := strings.CutSuffix(name, manifest.Suffix); ok {
			seen := s.seen[id{tenant, stem}]
			seen.manifest = s.file(filepath.Join(folder, name), manifest.MaxSize)
			s.seen[id{tenant, stem}] = seen
		} else if isFolder(filepath.Join(folder, name), entry) {
			inside = append(inside, name)
		}
	}
	return inside, nil
}

func isFolder(path string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// file follows the entry at path to the regular file that it must end in. Nothing is opened.
func (s *scan) file(path string, most int64) file {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		path, info, err = s.follow(path, info)
	}
	if errors.Is(err, fs.ErrNotExist) && info == nil {
		return file{} // removed since the folder was listed
	}
	if err != nil {
		return file{exists: true, problem: err}
	}
	return s.regular(path, info, most)
}

// regular is the file at path, in which no link is left, if it may be read.
func (s *scan) regular(path string, info fs.FileInfo, most int64) file {
	inside, err := filepath.Rel(s.root, path)
	if err != nil || !filepath.IsLocal(inside) {
		return file{exists: true, problem: manifest.NewFault(
			"the link ends outside the plugin directory, in "+path, fmt.Sprintf("copy the file into %s, or link to a file in it", s.dir),
		)}
	}
	if err := manifest.CheckFile(info, most); err != nil {
		return file{exists: true, problem: err}
	}
	s.folders[filepath.Dir(path)] = struct{}{}
	return file{exists: true, path: inside, fingerprint: newFingerprint(info)}
}

// follow goes to the end of a link. A link that leads nowhere comes back with the link's own info, so
// that it is told from a file that was removed.
func (s *scan) follow(link string, own fs.FileInfo) (string, fs.FileInfo, error) {
	end, err := filepath.EvalSymlinks(link)
	if err != nil {
		target, _ := os.Readlink(link)
		return link, own, fmt.Errorf("the link to %s cannot be followed (%w): let it end in a regular file in %s",
			manifest.Quote(target), manifest.Cause(err), s.dir)
	}
	info, err := os.Lstat(end)
	return end, info, err
}

// shown is the plugin's name as it may stand in a message, a log line or a label. Nothing but the name
// of a refused file needs to be escaped.
func (i id) shown() string {
	if manifest.CheckWord(i.name) == nil {
		return i.name
	}
	return manifest.Shorten(i.name)
}

// path is one of the plugin's files, as the one who wrote the configuration knows it.
func (i id) path(dir, suffix string) string {
	return filepath.Join(dir, i.tenant, i.shown()+suffix)
}
