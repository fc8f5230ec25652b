package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins"
	sdk "github.com/quern-project/quern/sdk/c"
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
		s, err := readSource(append(args, ".")[0])
		if err != nil {
			return err
		}
		b := &builder{env: env, stderr: cmd.ErrOrStderr()}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM) // leaves no partial file
		defer stop()
		file, err := b.build(ctx, s, *to)
		if ctx.Err() != nil {
			return refusedf("interrupted, so %s is not built: the files are as before", s.name)
		}
		if err != nil {
			return err
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
	for _, name := range s.files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return s, usagef("read source: %w", err)
		}
		s.handler = s.handler || entry[s.language].Match(text)
	}
	return s, nil
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

// builder builds plugins with the compilers of this machine.
type builder struct {
	env    environment
	stderr io.Writer // of compilers

	mu    sync.Mutex
	clang string // path; "" until findClang found one; guarded by mu
}

// build builds a plugin into a folder, "" for that of its source, and returns the path of the module. The module appears
// whole, after its files, or not at all.
func (b *builder) build(ctx context.Context, s source, to string) (path string, err error) {
	var files map[string][]byte
	if to == "" || sameFolder(s.dir, to) {
		to = s.dir
	} else if err := os.MkdirAll(to, 0o755); err != nil {
		return "", usagef("make folder: %w", err)
	} else if files, err = s.companions(); err != nil {
		return "", err
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
	if err := b.compile(ctx, s, out); err != nil {
		return "", err
	}
	for name, content := range files {
		if err := put(filepath.Join(to, name), content, 0o644); err != nil {
			return "", fmt.Errorf("copy %s: %w", name, err)
		}
	}
	path = filepath.Join(to, s.name+moduleSuffix)
	if err := errors.Join(os.Chmod(out, 0o644), os.Rename(out, path)); err != nil {
		return "", fmt.Errorf("build %s: %w", s.name, err)
	}
	return path, nil
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
func put(path string, content []byte, mode fs.FileMode) error {
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
	if err = errors.Join(err, temporary.Chmod(mode), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// compile compiles source to the absolute path out.
func (b *builder) compile(ctx context.Context, s source, out string) error {
	headers, err := os.MkdirTemp("", "quern-header-*") // for source without a copy
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(headers)
	if s.language == languageC {
		err = os.WriteFile(filepath.Join(headers, "quern.h"), sdk.Header, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	cmd, err := b.command(ctx, s, out, headers)
	if err != nil {
		return err
	}
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = b.stderr, b.stderr
	cmd.WaitDelay = 5 * time.Second // for its own children
	err = cmd.Run()
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &failed):
		return &exitError{status: exitFailed, err: fmt.Errorf("%s could not build %s: its messages are above", filepath.Base(cmd.Path), s.name)}
	case err != nil:
		return refusedf("%s could not build %s: %w", filepath.Base(cmd.Path), s.name, err)
	}
	return nil
}

// command is the command line of a compiler. It keeps names in the module, for backtraces. A C compiler searches the
// folder headers last.
func (b *builder) command(ctx context.Context, s source, out, headers string) (*exec.Cmd, error) {
	if s.language == languageC {
		clang, err := b.findClang(ctx)
		if err != nil {
			return nil, err
		}
		args := []string{"--target=wasm32-wasi", "-O2", "-Wall", "-Wl,--strip-debug", "-idirafter", headers, "-o", out}
		if s.handler {
			args = append(args, "-mexec-model=reactor")
		}
		return exec.CommandContext(ctx, clang, append(args, s.files...)...), nil //nolint:gosec // it is the user's own
	}
	program, err := exec.LookPath("go")
	if err != nil {
		return nil, refusedf("cannot build %s without Go: install it from https://go.dev/dl/, with `go` in PATH", s.name)
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", out}
	if s.handler {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.CommandContext(ctx, program, append(args, ".")...) //nolint:gosec // as above
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	return cmd, nil
}

// clangs are tried in this order, unless the environment names one.
var clangs = []string{
	"clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14",
}

// findClang finds a clang that links programs for WASI: CLANG, that of the WASI SDK in WASI_SDK_PATH, or one in PATH.
func (b *builder) findClang(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clang != "" {
		return b.clang, nil
	}
	candidates := clangs
	if sdk := b.env.get("WASI_SDK_PATH"); sdk != "" {
		candidates = []string{filepath.Join(sdk, "bin", "clang")}
	}
	if named := b.env.get("CLANG"); named != "" {
		candidates = []string{named}
	}
	var tried []string
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		if links(ctx, path) {
			b.clang = path
			return path, nil
		}
		tried = append(tried, candidate)
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	const remedy = "install one, on Debian with `apt-get install clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32`, elsewhere the WASI SDK, " +
		"and name it by CLANG=PATH or WASI_SDK_PATH=DIR"
	if len(tried) > 0 {
		return "", refusedf("no clang here builds for WebAssembly (%s: no wasm-ld or wasi-libc): %s", strings.Join(tried, ", "), remedy)
	}
	return "", refusedf("there is no clang (tried %s): %s", strings.Join(candidates, ", "), remedy)
}

// links reports whether a compiler links a program for WASI: many have no linker or library for it.
func links(ctx context.Context, clang string) bool {
	dir, err := os.MkdirTemp("", "quern-clang-*")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, clang, "--target=wasm32-wasi", "-x", "c", "-o", filepath.Join(dir, "a.wasm"), "-") //nolint:gosec // it is the user's own
	cmd.Stdin = strings.NewReader("int main(void) { return 0; }\n")
	return cmd.Run() == nil
}
