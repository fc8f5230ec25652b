package nodehost

import (
	"cmp"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/confine"
)

// The values of --confine.
const (
	ConfineAuto    = "auto"
	ConfineRequire = "require"
	ConfineOff     = "off"
)

// Confinement restricts `quern serve` to the system calls and files that it needs.
type Confinement struct {
	Mode    string
	scratch string // temporary folder of this process; "" if there is none
}

// Prepare makes a temporary folder that stays writable, and makes it the default for temporary files. It must be called
// before anything is written to another temporary folder. remove deletes the folder.
func (c *Confinement) Prepare() (remove func()) {
	if c.Mode == ConfineOff {
		return func() {}
	}
	scratch, err := os.MkdirTemp("", "quern-serve-")
	if err != nil {
		return func() {} // code that needs a temporary folder reports the error
	}
	const variable = "TMPDIR"
	before := os.Getenv(variable)
	c.scratch = scratch
	_ = os.Setenv(variable, scratch)
	return func() {
		_ = os.RemoveAll(scratch)
		if _ = os.Setenv(variable, before); before == "" {
			_ = os.Unsetenv(variable)
		}
	}
}

// Begin confines the process until its end. Files that are read only once must have been read before.
func (c *Confinement) Begin(n *Node) error {
	if c.Mode == ConfineOff {
		return nil
	}
	_, _ = x509.SystemCertPool() // caches the certificates while they can be read
	got, level := confine.Process(c.rules(n)), hclog.Info
	if err := cmp.Or(got.Calls, got.Files); err != nil {
		if level = hclog.Warn; c.Mode == ConfineRequire {
			return cli.Refusedf("--confine %q: %w: use %s for what works here", ConfineRequire, err, ConfineAuto)
		}
	}
	n.Logger.Log(level, "confined", "system_calls", limited(got.Calls), "files", limited(got.Files))
	dir := n.options.Plugins.Dir
	if _, err := os.Stat(dir); got.Files == nil && err != nil && dir != plugins.NoDir && len(around(dir)) == 1 {
		n.Logger.Warn("a plugin directory that is made later cannot be read: make it, and restart", "dir", dir)
	}
	return nil
}

// limited describes for the log what is still allowed. err says why there is no restriction.
func limited(err error) string {
	if err != nil {
		return "all (" + err.Error() + ")"
	}
	return "needed ones"
}

// rules returns the rules for the files that a running host needs.
func (c *Confinement) rules(n *Node) []confine.Rule {
	rules := []confine.Rule{
		{Access: confine.Execute, Path: "/proc/self/exe"}, // to start compile children
		{Access: confine.Read, Path: "/proc"},
		{Access: confine.Read, Path: "/sys/fs/cgroup"},
		{Access: confine.Read, Path: "/sys/kernel/mm/transparent_hugepage"},
		{Access: confine.Read, Path: "/etc"}, // for hosts and resolv.conf, which get replaced
		{Access: confine.Write, Path: n.options.engine.CacheDir},
	}
	if c.scratch != "" {
		rules = append(rules, confine.Rule{Access: confine.Write, Path: c.scratch},
			confine.Rule{Access: confine.Tidy, Path: filepath.Dir(c.scratch)}) // to remove c.scratch at the end
	}
	if os.Geteuid() != 0 { // compile children raise their oom_score_adj; root could change kernel settings
		rules = append(rules, confine.Rule{Access: confine.Modify, Path: "/proc"})
	}
	dir := n.options.Plugins.Dir
	if dir == plugins.NoDir {
		dir = ""
	}
	paths := slices.Concat([]string{"/etc/resolv.conf", dir, n.options.services.Secrets, n.options.registries.credentials},
		n.options.Plugins.Grants.SecretFiles(), n.options.Admin.files())
	for _, path := range paths {
		if path == "" {
			continue
		}
		for _, place := range around(path) {
			rules = append(rules, confine.Rule{Access: confine.Read, Path: place})
		}
	}
	return rules
}

// around returns a path and the folders in which a new version of its target can appear: the folder of the path, the
// folder of the target, and the folders of symbolic links that a release switches. It leaves out the children of the
// root folder and the home folder, because they contain much else.
func around(path string) []string {
	places := []string{path}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return places
	}
	target, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		target = absolute
	}
	folders := []string{filepath.Dir(absolute), filepath.Dir(target)}
	for link := absolute; link != "/"; link = filepath.Dir(link) {
		folder, err := filepath.EvalSymlinks(filepath.Dir(link))
		if err != nil {
			continue
		}
		if _, err := os.Readlink(link); err != nil {
			continue
		}
		if below, err := filepath.Rel(folder, target); err == nil && filepath.IsLocal(below) {
			folders = append(folders, folder)
		}
	}
	home, _ := os.UserHomeDir()
	for _, folder := range folders {
		if filepath.Dir(folder) != "/" && folder != home {
			places = append(places, folder)
		}
	}
	return places
}
