package build

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/quern-project/quern/sdk/c"
)

var c = &Language{
	source: func(names []string) []string {
		if len(rust.source(names)) > 0 { // its build script may compile C
			return nil
		}
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return filepath.Ext(name) != ".c" })
	},
	several: true,
	build:   buildC,
}

// cEntry matches the source of a handler: the SDK's macro or the name of the export. Other source is that of a command.
var cEntry = regexp.MustCompile(`(?m)^\s*[^\s/*].*"quern_handle"|^\s*QUERN_HANDLER\b`)

// buildC runs a clang. It keeps names in the module, for backtraces, and searches the header last. It links by a
// command of its own, without -O: with -O clang has a wasm-opt that is in PATH change the module, and that removes the
// names.
func buildC(ctx context.Context, b *Builder, s *Source, out string) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "quern-c-*") // the header for source without a copy, the objects and the module
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(scratch)
	if err := os.WriteFile(filepath.Join(scratch, "quern.h"), sdk.Header, 0o600); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	clang, err := b.findClang(ctx)
	if err != nil {
		return err
	}
	const module = "module.wasm" // wasm-ld replaces each % of the path that it is given, so it gets one without
	link := []string{"--target=wasm32-wasi", "-Wl,--strip-debug", "-o", module}
	if slices.ContainsFunc(texts, cEntry.Match) {
		link = append(link, "-mexec-model=reactor")
	}
	for i, name := range s.Files {
		object := strconv.Itoa(i) + ".o"
		compiled := b.run(ctx, s, command(ctx, clang, "--target=wasm32-wasi", "-O2", "-Wall", "-idirafter", scratch,
			"-c", "-o", filepath.Join(scratch, object), "./"+name)) // with ./ no name is an option, or @ a file of options
		err, link = cmp.Or(err, compiled), append(link, object) // an author reads the messages about all files
	}
	if err != nil {
		return err
	}
	linking := command(ctx, clang, link...)
	linking.Dir = scratch
	if err := b.run(ctx, s, linking); err != nil {
		return err
	}
	return s.copyModule(filepath.Join(scratch, module), out)
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
	path, tried := firstProgram(candidates, func(path string) bool { return links(ctx, path) })
	if b.clang = path; path != "" || ctx.Err() != nil {
		return path, ctx.Err()
	}
	const remedy = "install one, on Debian with `apt-get install clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32`, elsewhere the WASI SDK, " +
		"and name it by CLANG=PATH or WASI_SDK_PATH=DIR"
	if len(tried) > 0 {
		return "", because(Refused, "no clang here builds for WebAssembly (%s: no wasm-ld or wasi-libc): %s",
			strings.Join(tried, ", "), remedy)
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
	cmd := command(ctx, clang, "--target=wasm32-wasi", "-x", "c", "-o", "a.wasm", "-")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader("int main(void) { return 0; }\n")
	return cmd.Run() == nil
}
