package main

import (
	"cmp"
	"crypto/x509"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime/confine"
)

const (
	confineAuto    = "auto"
	confineRequire = "require"
	confineOff     = "off"
)

// confinement restricts `quern serve` to the system calls and files that it needs.
type confinement struct {
	mode    *choice
	scratch string // its temporary folder; "" for none
	before  string // TMPDIR without it
}

func newConfinement(flags *pflag.FlagSet) *confinement {
	c := &confinement{mode: newChoice(confineAuto, confineRequire, confineOff)}
	flags.Var(c.mode, "confine", "restrict this process to the system calls and files that it needs: auto as far as this system can, require both, or off")
	return c
}

// prepare makes the temporary folder, before anything is written to one that confinement closes.
func (c *confinement) prepare() {
	if c.mode.word == confineOff {
		return
	}
	scratch, err := os.MkdirTemp("", "quern-serve-")
	if err != nil {
		return // the code that needs one reports it
	}
	c.scratch, c.before = scratch, os.Getenv(temporary)
	_ = os.Setenv(temporary, scratch)
}

// temporary is the variable that names the folder for temporary files.
const temporary = "TMPDIR"

// close removes the temporary folder.
func (c *confinement) close() {
	if c.scratch == "" {
		return
	}
	_ = os.RemoveAll(c.scratch)
	if _ = os.Setenv(temporary, c.before); c.before == "" {
		_ = os.Unsetenv(temporary)
	}
}

// begin confines the process for good. Files that are read once must have been read before.
func (c *confinement) begin(n *node) error {
	if c.mode.word == confineOff {
		return nil
	}
	_, _ = x509.SystemCertPool() // reads the certificates, once
	got, level := confine.Process(c.rules(n)), hclog.Info
	if err := cmp.Or(got.Calls, got.Files); err != nil {
		if level = hclog.Warn; c.mode.word == confineRequire {
			return refusedf("--confine %q: %w: use %s for what works here", confineRequire, err, confineAuto)
		}
	}
	n.logger.Log(level, "confined", "system_calls", limited(got.Calls), "files", limited(got.Files))
	if _, err := os.Stat(n.options.plugins.Dir); got.Files == nil && err != nil && len(around(n.options.plugins.Dir)) == 1 {
		n.logger.Warn("a plugin directory that is made later cannot be read: make it, and restart", "dir", n.options.plugins.Dir)
	}
	return nil
}

// limited describes a restriction for the log.
func limited(err error) string {
	if err != nil {
		return "all (" + err.Error() + ")"
	}
	return "needed ones"
}

// rules are the files that a host needs once it runs.
func (c *confinement) rules(n *node) []confine.Rule {
	rules := []confine.Rule{
		{Access: confine.Execute, Path: "/proc/self/exe"}, // compile children
		{Access: confine.Read, Path: "/proc"},
		{Access: confine.Read, Path: "/sys/fs/cgroup"},
		{Access: confine.Read, Path: "/sys/kernel/mm/transparent_hugepage"},
		{Access: confine.Read, Path: "/etc"}, // hosts and resolv.conf, which programs replace
		{Access: confine.Write, Path: n.options.cache},
	}
	if c.scratch != "" {
		rules = append(rules, confine.Rule{Access: confine.Write, Path: c.scratch},
			confine.Rule{Access: confine.Tidy, Path: filepath.Dir(c.scratch)}) // to remove it at the end
	}
	if os.Geteuid() != 0 { // a compile child raises its oom_score_adj; root could change the kernel's settings
		rules = append(rules, confine.Rule{Access: confine.Modify, Path: "/proc"})
	}
	for _, path := range append([]string{"/etc/resolv.conf", n.options.plugins.Dir, n.options.secrets}, n.secretFiles...) {
		if path == "" {
			continue
		}
		for _, place := range around(path) {
			rules = append(rules, confine.Rule{Access: confine.Read, Path: place})
		}
	}
	return rules
}

// around is a path with the folders in which a newer version may replace its target: the folders of the path and of the
// target, and those of links that a release switches. It leaves out the root's children and the home folder, which have
// much else.
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
