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

// id names a plugin: by its tenant, "" for a common plugin, and by the name of its file without .wasm. beside is the
// number of a release that can run beside the one that serves under this name; 0 for what serves.
type id struct {
	tenant, name string
	beside       int
}

// listed are the files of one plugin, as a scan found them without reading them.
type listed struct {
	module, manifest file
	// release is the number of the release that has the files, and folder its folder; 0 and nil for files of the plugin
	// directory.
	release int
	folder  *scan
	canary  bool // the release is a canary: see Beside
}

// dir returns the folder of the files for messages; directory is the plugin directory.
func (l *listed) dir(directory string) string {
	if l.release > 0 {
		return releaseDir(l.release)
	}
	return directory
}

// file is an entry of the directory. Its zero value is a file that does not exist.
type file struct {
	exists      bool
	root        string // the folder that links must not leave: the tenant's folder, or the plugin directory
	path        string // relative to root, all links followed
	fingerprint fingerprint
	problem     error // why the file must not be read; nil if it can be read
}

// scan has what the directory contained at one moment.
type scan struct {
	dir     string // as the configuration names it, for messages
	root    string // the directory with all links followed; "" if it does not exist
	seen    map[id]listed
	places  map[string]string   // the path of each tenant's folder, all links followed; the common folder has the key ""
	closed  map[string]error    // by tenant, why the tenant's folder cannot be listed
	folders map[string]struct{} // the folders of the files, which the watcher watches
	others  []string            // sub-folders that belong to no served tenant
}

// scanDirectory lists the directory. NoDir and a directory that does not exist count as empty; one that cannot be
// listed is an error.
func scanDirectory(dir string, tenants []string) (*scan, error) {
	s := &scan{
		dir: dir, seen: map[id]listed{}, places: map[string]string{}, closed: map[string]error{},
		folders: map[string]struct{}{},
	}
	if dir == NoDir {
		return s, nil
	}
	var inside []string
	root, err := filepath.EvalSymlinks(dir)
	if err == nil {
		s.root, err = filepath.Abs(root)
	}
	if err == nil {
		inside, err = s.list("", s.root)
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

// place is an open folder with the files of plugins. A file that is looked up through a place is always inside the
// folder, even if folders below are replaced meanwhile.
type place struct {
	*os.Root
	path  string // the folder's path, without links
	shown string // the folder's path for messages
}

// open opens the folder of a tenant; the tenant "" has the common folder. The caller closes the place.
func (s *scan) open(tenant, folder string) (place, error) {
	root, err := os.OpenRoot(folder)
	return place{root, folder, filepath.Join(s.dir, tenant)}, err
}

// list records the files of one folder, whose path must have no link, and returns the names of its sub-folders.
func (s *scan) list(tenant, folder string) ([]string, error) {
	at, err := s.open(tenant, folder)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	entries, err := fs.ReadDir(at.FS(), ".")
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
		suffix := filepath.Ext(name)
		of := id{tenant: tenant, name: strings.TrimSuffix(name, suffix)}
		seen := s.seen[of]
		switch suffix {
		case manifest.ModuleSuffix:
			seen.module = s.file(at, name, entry.Type(), runtime.MaxModule)
		case manifest.Suffix:
			seen.manifest = s.file(at, name, entry.Type(), manifest.MaxSize)
		default:
			folder := entry.IsDir()
			if entry.Type()&fs.ModeSymlink != 0 {
				info, err := os.Stat(filepath.Join(at.path, name))
				folder = err == nil && info.IsDir()
			}
			if folder {
				inside = append(inside, name)
			}
			continue
		}
		s.seen[of] = seen
	}
	return inside, nil
}

// file follows the links of the entry with this name and type to a regular file of at most limit bytes. It opens no
// file.
func (s *scan) file(at place, name string, kind fs.FileMode, limit int64) file {
	path := filepath.Join(at.path, name)
	if kind&fs.ModeSymlink != 0 {
		end, err := filepath.EvalSymlinks(path)
		if err != nil {
			target, _ := os.Readlink(path)
			return file{exists: true, problem: fmt.Errorf("the link to %s cannot be followed (%w): let it end in a regular file in %s",
				manifest.Quote(target), manifest.Cause(err), at.shown)}
		}
		path = end
	}
	return s.regular(at, path, limit)
}

// regular returns the file at path, which must have no link. The file's problem is set if the file must not be read,
// for example since it has more than limit bytes.
func (s *scan) regular(at place, path string, limit int64) file {
	outside := func(of string) file {
		return file{exists: true, problem: &manifest.Fault{
			What:   "the link ends outside " + of + ", in " + path,
			Remedy: fmt.Sprintf("copy the file into %s, or link to a file in it", at.shown),
		}}
	}
	if _, ok := below(s.root, path); !ok {
		return outside("the plugin directory")
	}
	inside, ok := below(at.path, path)
	if !ok {
		return outside("the folder of the tenant")
	}
	info, err := at.Lstat(inside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{} // removed since the folder was listed
	case err != nil:
		return file{exists: true, problem: manifest.Cause(err)}
	}
	if err := manifest.CheckFile(info, limit); err != nil {
		return file{exists: true, problem: err}
	}
	s.folders[filepath.Dir(path)] = struct{}{}
	return file{exists: true, root: at.path, path: inside, fingerprint: fingerprint{info, changeTime(info)}}
}

// below returns a path relative to a folder, and reports whether the path is inside the folder.
func below(folder, path string) (inside string, ok bool) {
	inside, err := filepath.Rel(folder, path)
	return inside, err == nil && filepath.IsLocal(inside)
}

// shown returns the plugin's name for messages, logs and labels. Only the name of a refused file needs escapes.
func (i id) shown() string {
	if manifest.CheckWord(i.name) == nil {
		return i.name
	}
	return manifest.Shorten(i.name)
}

// path returns the path of one of the plugin's files, below the directory as the configuration names it.
func (i id) path(dir, suffix string) string {
	return filepath.Join(dir, i.tenant, i.shown()+suffix)
}
