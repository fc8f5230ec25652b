package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/quern-project/quern/sdk/c"
)

var c = &Language{
	source: func(names []string) (files []string) {
		if len(rust.source(names)) > 0 { // its build script may compile C
			return nil
		}
		for _, name := range names {
			if filepath.Ext(name) == ".c" {
				files = append(files, name)
			}
		}
		return files
	},
	several: true,
	build:   buildC,
}

// cEntry matches the source of a handler: the SDK's macro or the name of the export. Other source is that of a command.
var cEntry = regexp.MustCompile(`(?m)^\s*[^\s/*].*"quern_handle"|^\s*QUERN_HANDLER\b`)

// buildC runs a clang. It keeps names in the module, for backtraces, and searches the header last.
func buildC(ctx context.Context, b *Builder, s *Source, out string) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	headers, err := os.MkdirTemp("", "quern-header-*") // for source without a copy
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(headers)
	if err := os.WriteFile(filepath.Join(headers, "quern.h"), sdk.Header, 0o600); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	clang, err := b.findClang(ctx)
	if err != nil {
		return err
	}
	args := []string{"--target=wasm32-wasi", "-O2", "-Wall", "-Wl,--strip-debug", "-idirafter", headers, "-o", out}
	if slices.ContainsFunc(texts, cEntry.Match) {
		args = append(args, "-mexec-model=reactor")
	}
	return b.run(ctx, s, exec.CommandContext(ctx, clang, append(args, s.Files...)...)) //nolint:gosec // it is the user's own
}

// clangs are tried in this order, unless the environment names one.
var clangs = []string{
	"clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14",
}

// findClang finds a clang that links programs for WASI: CLANG, that of the WASI SDK in WASI_SDK_PATH, or one in PATH.
func (b *Builder) findClang(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clang != "" {
		return b.clang, nil
	}
	candidates := clangs
	if sdk := b.config.Getenv("WASI_SDK_PATH"); sdk != "" {
		candidates = []string{filepath.Join(sdk, "bin", "clang")}
	}
	if named := b.config.Getenv("CLANG"); named != "" {
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
		return "", because(Refused, "no clang here builds for WebAssembly (%s: no wasm-ld or wasi-libc): %s", strings.Join(tried, ", "), remedy)
	}
	return "", because(Refused, "there is no clang (tried %s): %s", strings.Join(candidates, ", "), remedy)
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
