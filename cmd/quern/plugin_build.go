package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
)

func newPluginBuild(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "build [DIR]", Short: "Build a plugin from a folder of Go or C",
		Long: "Builds NAME.wasm beside the manifest NAME.yaml: with the Go toolchain if the folder has Go files, else\n" +
			"with a clang that targets WebAssembly. DIR is the current folder by default. The compiler writes to\n" +
			"stderr. Source that exports quern_handle becomes a handler, other source a command. C needs no copy of\n" +
			"quern.h beside it.\n\n" +
			"Exit status: 0 built, 1 the source is wrong, 2 there is no such source, 3 a compiler is missing, or the\n" +
			"manifest is wrong.",
		Args: arguments(0, 1),
	}
	to := cmd.Flags().String("to", "", "`DIR` for NAME.wasm, the manifest and its files, such as a plugin directory (default DIR)")
	notSettings(cmd.Flags(), "to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		s, err := readSource(dir)
		if err != nil {
			return err
		}
		b := &builder{compilers: compilers{env: env}, stderr: cmd.ErrOrStderr()}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // leaves no partial file
		defer stop()
		file, err := b.build(ctx, s, *to)
		if ctx.Err() != nil {
			return refusedf("interrupted, so %s is not built: the files are as before", s.name)
		}
		if err != nil {
			return err
		}
		if lack := lacksManifest(ctx, env, file); lack != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "quern: "+lack)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
		return err
	}
	return cmd
}

// source is a folder with the source of one plugin.
type source struct {
	dir, name string
	language  string   // languageGo or languageC
	files     []string // in that language
	handler   bool     // else a command
	manifest  string   // path; "" if there is none
}

// The languages that a plugin is built from.
const (
	languageGo = "go"
	languageC  = "c"
)

// readSource finds the source in a folder.
func readSource(dir string) (source, error) {
	s := source{dir: dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return s, usagef("folder %q: %w: name the folder of a plugin's source", dir, bare(err))
	}
	var c, manifests []string
	for _, entry := range entries {
		name := entry.Name()
		switch ext := filepath.Ext(name); {
		case strings.HasPrefix(name, "."):
		case ext == ".go" && !strings.HasSuffix(name, "_test.go"):
			s.files = append(s.files, name)
		case ext == ".c":
			c = append(c, name)
		case ext == manifestSuffix:
			manifests = append(manifests, name)
		}
	}
	if s.language = languageGo; len(s.files) == 0 {
		s.language, s.files = languageC, c
	}
	if len(s.files) == 0 {
		return s, usagef("folder %q has neither Go files nor C files: name the folder of a plugin's source, or make one by `quern plugin new NAME`", dir)
	}
	if err := s.findManifest(manifests); err != nil {
		return s, err
	}
	s.handler, err = s.isHandler()
	return s, err
}

// findManifest names the plugin after the manifest with the folder's name, or else after the only one.
func (s *source) findManifest(names []string) error {
	abs, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	s.name = filepath.Base(abs)
	switch own := s.name + manifestSuffix; {
	case slices.Contains(names, own):
		s.manifest = filepath.Join(s.dir, own)
	case len(names) == 1:
		s.name = strings.TrimSuffix(names[0], manifestSuffix)
		s.manifest = filepath.Join(s.dir, names[0])
	case len(names) > 1:
		return usagef("folder %q has the manifests %s: name one of them %s, after the folder", s.dir, strings.Join(names, ", "), own)
	}
	return nil
}

// entry matches the source of a handler: in Go a directive, in C the SDK's macro or the name of the export.
var entry = map[string]*regexp.Regexp{
	languageGo: regexp.MustCompile(`(?m)^//go:wasmexport quern_handle\s*$`),
	languageC:  regexp.MustCompile(`(?m)^\s*[^\s/*].*"quern_handle"|^\s*QUERN_HANDLER\b`),
}

func (s *source) isHandler() (bool, error) {
	for _, name := range s.files {
		text, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return false, usagef("read source: %w", err)
		}
		if entry[s.language].Match(text) {
			return true, nil
		}
	}
	return false, nil
}

// builder builds plugins.
type builder struct {
	compilers compilers
	stderr    io.Writer // of compilers
}

// build builds a plugin into a folder, "" for that of its source, and returns the path of the module. The module appears
// whole, after its files, or not at all.
func (b *builder) build(ctx context.Context, s source, to string) (path string, err error) {
	in := to == "" || sameFolder(s.dir, to)
	if in {
		to = s.dir
	} else if err := os.MkdirAll(to, 0o755); err != nil {
		return "", usagef("make folder: %w", err)
	}
	var files map[string][]byte
	if !in {
		if files, err = s.companions(); err != nil {
			return "", err
		}
	}
	temporary, err := os.CreateTemp(to, "."+s.name+"-*"+moduleSuffix)
	if err != nil {
		return "", usagef("build %s: %w", s.name, err)
	}
	defer os.Remove(temporary.Name()) // of a failed build
	if err := temporary.Close(); err != nil {
		return "", fmt.Errorf("build %s: %w", s.name, err)
	}
	out, err := filepath.Abs(temporary.Name())
	if err != nil {
		return "", err
	}
	if err := b.compilers.compile(ctx, s, out, b.stderr); err != nil {
		return "", err
	}
	for name, content := range files {
		if err := put(filepath.Join(to, name), content); err != nil {
			return "", fmt.Errorf("copy %s: %w", name, err)
		}
	}
	path = filepath.Join(to, s.name+moduleSuffix)
	if err := errors.Join(os.Chmod(out, 0o644), os.Rename(out, path)); err != nil {
		return "", fmt.Errorf("build %s: %w", s.name, err)
	}
	return path, nil
}

// lacksManifest explains why a host refuses a module that needs a manifest and has none; else "".
func lacksManifest(ctx context.Context, env environment, file string) string {
	p, err := readPlugin(file)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(p.manifestPath); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	view, err := p.check(ctx, env, runtime.Config{})
	if err != nil {
		return ""
	}
	for _, r := range view.Refusals {
		if strings.HasPrefix(r.Where, p.manifestPath) {
			return fmt.Sprintf("there is no manifest %s, so a host refuses the plugin: %s: %s", p.manifestPath, r.What, r.Remedy)
		}
	}
	return ""
}

// companions are the files that a host reads beside the module, by their paths in its folder: the manifest and its files.
func (s *source) companions() (map[string][]byte, error) {
	if s.manifest == "" {
		return nil, nil
	}
	manifest, err := plugins.LoadManifest(s.manifest)
	if err == nil {
		_, _, err = plugins.LoadFiles(s.manifest, manifest)
	}
	if err != nil {
		return nil, refusedf("the manifest is refused: %w", err)
	}
	names := []string{s.name + manifestSuffix}
	for _, grant := range manifest.Capabilities.Files {
		names = append(names, filepath.FromSlash(grant.From))
	}
	if manifest.Warm.Input != "" {
		names = append(names, filepath.FromSlash(manifest.Warm.Input))
	}
	files := make(map[string][]byte, len(names))
	for _, name := range names {
		if files[name], err = os.ReadFile(filepath.Join(s.dir, name)); err != nil {
			return nil, fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return files, nil
}

// put replaces a file atomically, unless it has the content already.
func put(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".*-"+filepath.Base(path))
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // of a failed build
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}
