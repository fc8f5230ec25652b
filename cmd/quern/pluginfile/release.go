package pluginfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// Release makes a release of the plugin, which must have been read without a refusal: of its module, its manifest, and
// the files that the manifest names.
func (p *File) Release() (release.Release, []release.Content, error) {
	files := []release.Content{{Name: p.Name + manifest.ModuleSuffix, Data: p.binary}}
	text, err := plugins.LoadFile(p.ManifestPath, filepath.Base(p.ManifestPath), manifest.MaxSize)
	switch {
	case err == nil:
		files = append(files, release.Content{Name: p.Name + manifest.Suffix, Data: text})
	case !errors.Is(err, fs.ErrNotExist):
		return release.Release{}, nil, cli.Usagef("read manifest %q: %w", p.ManifestPath, err)
	}
	seen := make(map[string]bool)
	for _, source := range p.Manifest.Sources() {
		if seen[source.From] {
			continue
		}
		seen[source.From] = true
		data, err := plugins.LoadFile(p.ManifestPath, source.From, source.Most)
		if err != nil {
			return release.Release{}, nil, cli.Usagef("%s: %s: %w", p.ManifestPath, source, err)
		}
		files = append(files, release.Content{Name: filepath.ToSlash(filepath.Clean(source.From)), Data: data})
	}
	r, err := release.New(p.Name, files)
	if err != nil {
		return r, nil, cli.Refusedf("%s: %w", p.Path, cli.TrimInvalid(err))
	}
	r.Version, r.Queues = p.Manifest.Version, p.Manifest.Queues
	signed, err := os.ReadFile(p.SignaturePath())
	switch {
	case err == nil:
		r.Signatures = []string{string(signed)}
	case !errors.Is(err, fs.ErrNotExist):
		return r, nil, cli.Usagef("read signature: %w", err)
	}
	return r, files, nil
}

// SignaturePath returns the path of the file with the signature of the plugin's release, beside the module.
func (p *File) SignaturePath() string {
	return strings.TrimSuffix(p.Path, manifest.ModuleSuffix) + ".sig"
}

// ModuleIn returns the path of the module in a folder: that of its source, or else the only one. Another path is
// returned as it is.
func ModuleIn(path string) (string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() || strings.HasSuffix(path, manifest.ModuleSuffix) {
		return path, nil //nolint:nilerr // Read tells what is wrong with the path
	}
	if s, err := build.Read(path); err == nil {
		if own := filepath.Join(path, s.Name+manifest.ModuleSuffix); isFile(own) {
			return own, nil
		}
	}
	found, err := ModulesIn(path)
	if err == nil && len(found) > 1 {
		err = cli.Usagef("folder %q has %d %s files: name one of them, such as %s", path, len(found), manifest.ModuleSuffix,
			found[0])
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// ModulesIn lists the modules in a folder. It is an error if there is none.
func ModulesIn(dir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(escapeGlob(dir), "[^.]*"+manifest.ModuleSuffix))
	if err == nil && len(found) == 0 {
		err = cli.Usagef("folder %q has no %s file: build it by `quern plugin build`", dir, manifest.ModuleSuffix)
	}
	return found, err
}

// escapeGlob returns a pattern that matches only the path.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `[`, `\[`, `*`, `\*`, `?`, `\?`).Replace(path)
}
