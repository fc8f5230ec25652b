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
		if len(rust.source(names)) > 0 { // a crate of Rust: its build script may compile the C files
			return nil
		}
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return filepath.Ext(name) != ".c" })
	},
	several: true,
	build:   buildC,
}

// cEntry matches source of a handler, which has the SDK's macro or the name of the export. Source that does not match
// is a command's.
var cEntry = regexp.MustCompile(`(?m)^\s*[^\s/*].*"quern_handle"|^\s*QUERN_HANDLER\b`)

// buildC compiles and links with clang. It keeps function names in the module, for backtraces. The SDK's header is
// found last, so a copy in the source's folder takes precedence. Linking is a separate command without -O: with -O,
// clang runs a wasm-opt that it finds in PATH, which removes the names.
func buildC(ctx context.Context, b *Builder, s *Source, out string) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "quern-c-*") // holds quern.h, for source without a copy, and the objects
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
	const module = "module.wasm" // no path: wasm-ld replaces each % in the path of its output
	link := []string{"--target=wasm32-wasi", "-Wl,--strip-debug", "-o", module}
	if slices.ContainsFunc(texts, cEntry.Match) {
		link = append(link, "-mexec-model=reactor")
	}
	for i, name := range s.Files {
		object := strconv.Itoa(i) + ".o"
		compiled := b.run(ctx, s, command(ctx, clang, "--target=wasm32-wasi", "-O2", "-Wall", "-idirafter", scratch,
			"-c", "-o", filepath.Join(scratch, object), "./"+name)) // ./ because of names that begin with - or @
		err, link = cmp.Or(err, compiled), append(link, object) // go on: the author wants the messages about all files
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

// clangs lists the programs that findClang tries, in this order, unless the environment names one.
var clangs = []string{
	"clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14",
}

// findClang returns the path of a clang that links programs for WASI: the one that CLANG names, the one of the WASI SDK
// in WASI_SDK_PATH, or the first one in PATH that works.
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

// links reports whether a clang can link a program for WASI. Many installations lack the linker or the library for it.
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
