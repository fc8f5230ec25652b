package tenant

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/sdk/queue/release"
)

// find returns the plugin to replay with.
func (r *taskReplay) find(cmd *cobra.Command, client admin.Tenant, record *replay.Record) (*pluginfile.File, error) {
	if r.module != "" {
		return readPlugin(r.module)
	}
	name := record.Plugin + manifest.ModuleSuffix
	if r.plugins != "" {
		return readRecorded(filepath.Join(r.plugins, name), record)
	}
	var unread error
	if client != nil {
		var p *pluginfile.File
		if p, unread = r.released(cmd, client, record); p != nil {
			return p, nil
		}
	}
	for _, dir := range []string{".", plugins.DefaultDir, record.Plugin} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			continue
		}
		if p, err := readRecorded(filepath.Join(dir, name), record); err == nil {
			return p, nil
		}
	}
	if unread != nil {
		return nil, unread
	}
	releases := "a release, "
	if client == nil { // the record is in a file
		releases = ""
	}
	return nil, cli.Refusedf("no module %s with the digest %s is in %sthis folder, %s or ./%s: name its folder with --plugins DIR, or a module with --module FILE",
		name, record.Module, releases, plugins.DefaultDir, record.Plugin)
}

func readPlugin(path string) (*pluginfile.File, error) {
	p, err := pluginfile.Read(path)
	if err == nil {
		err = p.Refusal()
	}
	return p, err
}

// readRecorded is readPlugin for the recorded plugin.
func readRecorded(path string, record *replay.Record) (*pluginfile.File, error) {
	p, err := readPlugin(path)
	if err == nil {
		err = isRecorded(p, record)
	}
	return p, err
}

// isRecorded returns an error if the plugin's module or manifest is not the recorded one.
func isRecorded(p *pluginfile.File, record *replay.Record) error {
	if is := digestOf(p.Binary()); is != record.Module {
		return cli.Refusedf("%s has the digest %s, and the run was of %s: replay with another module by --module %s", p.Path, is,
			record.Module, cli.ShellWord(p.Path))
	}
	text, err := os.ReadFile(p.ManifestPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cli.Usagef("read manifest: %w", err)
	}
	is := ""
	if err == nil {
		is = digestOf(text)
	}
	if is != record.Manifest {
		return cli.Refusedf("%s has the digest %s, and the run was with %s: replay with another manifest by --module %s", p.ManifestPath,
			cmp.Or(is, "none"), cmp.Or(record.Manifest, "none"), cli.ShellWord(p.Path))
	}
	return nil
}

// released fetches the recorded plugin from its release; nil if there is none. Another release can have the same module
// and manifest.
func (r *taskReplay) released(cmd *cobra.Command, client admin.Tenant, record *replay.Record,
) (*pluginfile.File, error) {
	all, err := client.Releases(record.Plugin).List(cmd.Context())
	if errors.Is(err, release.ErrNoRelease) || errors.Is(err, admin.ErrForbidden) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var of *release.Release
	for i := range all {
		same := show.DigestPrefix+all[i].ModuleDigest() == record.Module && hasManifest(&all[i], record)
		if same && (of == nil || all[i].Number == record.Release) {
			of = &all[i]
		}
	}
	if of == nil {
		return nil, nil
	}
	p, err := r.fetch(cmd, client, record, of)
	if errors.Is(err, release.ErrMissing) { // its remedy, another push, would make hosts serve the release
		err = release.ErrMissing
	}
	if err != nil {
		return nil, cli.Refusedf("fetch release %d of %s: %w; or name a folder that has it by --plugins DIR", of.Number, of.Plugin,
			err)
	}
	return p, nil
}

// fetch fetches a release from Redis or its registry.
func (r *taskReplay) fetch(cmd *cobra.Command, client admin.Tenant, record *replay.Record, of *release.Release,
) (*pluginfile.File, error) {
	if of.Artifact != "" {
		from, err := r.registry.open(cmd, of.Artifact)
		if err != nil {
			return nil, err
		}
		defer from.close()
		return readRecorded(from.path, record)
	}
	dir, err := os.MkdirTemp("", "quern-replay-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the plugin: %w", err)
	}
	defer os.RemoveAll(dir)
	for _, file := range of.Files {
		if err := fetchFile(cmd.Context(), client.Releases(of.Plugin), &file, dir); err != nil {
			return nil, err
		}
	}
	return readRecorded(filepath.Join(dir, of.Plugin+manifest.ModuleSuffix), record)
}

// hasManifest reports whether the release has the recorded manifest.
func hasManifest(r *release.Release, record *replay.Record) bool {
	at := slices.IndexFunc(r.Files, func(f release.File) bool { return f.Name == record.Plugin+manifest.Suffix })
	if at < 0 {
		return record.Manifest == ""
	}
	return show.DigestPrefix+r.Files[at].Digest == record.Manifest
}

func fetchFile(ctx context.Context, releases admin.Releases, file *release.File, dir string) error {
	if !filepath.IsLocal(file.Name) {
		return fmt.Errorf("the file %q lies outside of its folder", file.Name)
	}
	var data []byte
	for _, piece := range file.Pieces {
		part, err := releases.Piece(ctx, piece)
		if err != nil {
			return err
		}
		data = append(data, part...)
	}
	if digestOf(data) != show.DigestPrefix+file.Digest {
		return fmt.Errorf("file %s of the release has other bytes than its digest says", file.Name)
	}
	path := filepath.Join(dir, filepath.FromSlash(file.Name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return show.DigestPrefix + hex.EncodeToString(sum[:])
}
