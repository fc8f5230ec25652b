package plugins

import (
	"fmt"
	"maps"
	"path/filepath"
)

// Release is a release of a plugin that was fetched to a folder of its own. The files in the folder do not change.
type Release struct {
	Number int
	// Dir is the folder. It has the module NAME.wasm, the manifest NAME.yaml, and the files that the manifest names.
	Dir string
}

// SetReleases replaces the releases that serve a tenant, by plugin. If the plugin directory has a module of the same
// name, of the tenant or for all tenants, that module serves in place of the release. A release that is refused changes
// nothing: what served before keeps serving.
func (d *Directory) SetReleases(tenant string, releases map[string]Release) {
	d.public.mu.Lock()
	defer d.public.mu.Unlock()
	all := maps.Clone(d.public.releases)
	if all == nil {
		all = make(map[string]map[string]Release)
	}
	all[tenant] = maps.Clone(releases)
	d.public.releases = all
	poke(d.public.released)
}

// current returns the releases by tenant and plugin. The caller must not change the maps.
func (p *publication) current() map[string]map[string]Release {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.releases
}

// addReleases adds the files of the releases to what a scan found. held reports whether a common plugin of this name
// serves.
func (s *scan) addReleases(releases map[string]map[string]Release, tenants []string, held func(name string) bool) {
	for _, tenant := range tenants {
		for name, release := range releases[tenant] {
			of := id{tenant, name}
			common := s.seen[id{"", name}].module.exists && held(name)
			if s.closed[tenant] == nil && !s.seen[of].module.exists && !common {
				s.seen[of] = listRelease(name, release)
			}
		}
	}
}

// listRelease lists the files of a release.
func listRelease(name string, release Release) listed {
	path := filepath.Join(release.Dir, name)
	folder, err := scanOf(path)
	if err == nil {
		folder.seen = map[id]listed{}
		folder.dir = releaseDir(release.Number)
		_, err = folder.list("", folder.root)
	}
	seen := folder.seen[id{"", name}]
	if err != nil {
		seen.module = file{exists: true, problem: fmt.Errorf("the folder of the release cannot be read: %w", err)}
	}
	seen.release, seen.folder = release.Number, folder
	return seen
}

// releaseDir returns what messages name as the folder of a release's files.
func releaseDir(number int) string { return fmt.Sprint("release ", number) }
