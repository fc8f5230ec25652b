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
	// Beside are other releases of the plugin that run some of its tasks.
	Beside []Beside
}

// Beside is a release that runs some tasks of a plugin beside the one that serves. It owns no queues, and declares
// nothing. A canary may only have queues of the release that serves.
type Beside struct {
	Number int
	Dir    string // as of a Release
	Canary bool
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
			of := id{tenant: tenant, name: name}
			common := s.seen[id{name: name}].module.exists && held(name)
			if s.closed[tenant] != nil || s.seen[of].module.exists || common {
				continue
			}
			s.seen[of] = listRelease(name, release.Number, release.Dir)
			for _, one := range release.Beside {
				seen := listRelease(name, one.Number, one.Dir)
				of.beside, seen.canary = one.Number, one.Canary
				s.seen[of] = seen
			}
		}
	}
}

// listRelease lists the files of a release.
func listRelease(name string, number int, dir string) listed {
	path := filepath.Join(dir, name)
	folder, err := scanOf(path)
	if err == nil {
		folder.seen = map[id]listed{}
		folder.dir = releaseDir(number)
		_, err = folder.list("", folder.root)
	}
	seen := folder.seen[id{name: name}]
	if err != nil {
		seen.module = file{exists: true, problem: fmt.Errorf("the folder of the release cannot be read: %w", err)}
	}
	seen.release, seen.folder = number, folder
	return seen
}

// releaseDir returns what messages name as the folder of a release's files.
func releaseDir(number int) string { return fmt.Sprint("release ", number) }
