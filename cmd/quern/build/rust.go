package build

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/quern-project/quern/plugins/manifest"
)

var rust = &Language{
	source: named("Cargo.toml"),
	above:  []string{".cargo", "Cargo.toml", "rust-toolchain", "rust-toolchain.toml"},
	build:  buildRust,
}

// buildRust runs cargo with a rustc that supports the target, and copies the module that cargo built.
func buildRust(ctx context.Context, b *Builder, s *Source, out string) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	cargo, err := b.rustProgram("CARGO", "cargo", s.Name)
	if err != nil {
		return err
	}
	rustc, err := b.rustProgram("RUSTC", "rustc", s.Name)
	if err != nil {
		return err
	}
	_, noProgram := os.Stat(filepath.Join(s.Dir, "src", "main.rs"))
	_, noLibrary := os.Stat(filepath.Join(s.Dir, "src", "lib.rs"))
	// A package that has only src/lib.rs should be a cdylib.
	library := bytes.Contains(texts[0], []byte("cdylib")) || noProgram != nil && noLibrary == nil
	target, err := b.rustTarget(ctx, s, rustc, library)
	if err != nil {
		return err
	}
	var messages bytes.Buffer
	cmd := command(ctx, cargo, "build", "--quiet", "--release", "--target="+target,
		"--message-format=json-render-diagnostics")
	cmd.Stdout = &messages
	cmd.Env = append(cmd.Env, "RUSTC="+rustc)
	if err := b.run(ctx, s, cmd); err != nil {
		dir, _ := filepath.Abs(s.Dir)
		if i := strings.IndexAny(dir, "%:"); i >= 0 && ctx.Err() == nil {
			return because(Failed, "%w; Rust cannot build in %q, because of the %c in the path: move the folder, or set CARGO_TARGET_DIR to a folder without it", err, dir, dir[i])
		}
		return err
	}
	module, err := builtModule(s, messages.Bytes())
	if err != nil {
		return err
	}
	return s.copyModule(module, out)
}

// rustProgram returns the path of a program of Rust: the one that the environment variable names, or else the one in
// PATH.
func (b *Builder) rustProgram(variable, name, plugin string) (string, error) {
	if named := b.config.Getenv(variable); named != "" {
		name = named
	}
	path, err := lookPath(name)
	if err != nil {
		return "", because(Refused, "cannot build %s without Rust: there is no %s: install it from https://rustup.rs, and run `rustup target add wasm32-unknown-unknown`; "+
			"on Debian `apt-get install cargo libstd-rust-dev-wasm32 lld`", plugin, name)
	}
	return path, nil
}

// configuredTarget matches a WebAssembly target in a cargo configuration.
var configuredTarget = regexp.MustCompile(`(?m)^\s*target\s*=\s*"(wasm32-[^"]+)"`)

// rustTarget returns the target to build the plugin for. If cargo is configured for a WebAssembly target, that is used.
// Otherwise handlers, which need no WASI, and commands have different default targets.
func (b *Builder) rustTarget(ctx context.Context, s *Source, rustc string, handler bool) (string, error) {
	candidates := []string{"wasm32-wasip1", "wasm32-wasi"} // new and old name of the same target
	if handler {
		candidates = []string{"wasm32-unknown-unknown"}
	}
	if found := configuredTarget.FindStringSubmatch(readText(filepath.Join(s.Dir, ".cargo",
		"config.toml"))); found != nil {
		candidates = found[1:]
	}
	if named := b.config.Getenv("CARGO_BUILD_TARGET"); strings.HasPrefix(named, "wasm32-") {
		candidates = []string{named}
	}
	for _, target := range candidates {
		cmd := command(ctx, rustc, "--print=target-libdir", "--target="+target)
		cmd.Dir = s.Dir // a file in it can choose the toolchain
		folder, err := cmd.Output()
		if err != nil {
			continue // this rustc does not know the target
		}
		if _, err := os.Stat(strings.TrimSpace(string(folder))); err == nil {
			return target, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return "", because(Refused, "%s has no library for %s: run `rustup target add %[2]s`, or on Debian `apt-get install libstd-rust-dev-wasm32 lld`; RUSTC=PATH and "+
		"CARGO=PATH name another Rust", rustc, candidates[0])
}

// builtModule returns the path of the module that cargo built, according to cargo's messages. It prefers a library to a
// program.
func builtModule(s *Source, messages []byte) (string, error) {
	var libraries, programs []string
	for line := range bytes.Lines(messages) {
		var message struct {
			Reason    string
			Target    struct{ Kind []string }
			Filenames []string
		}
		if json.Unmarshal(line, &message) != nil || message.Reason != "compiler-artifact" {
			continue
		}
		for _, file := range message.Filenames {
			switch {
			case filepath.Ext(file) != manifest.ModuleSuffix:
			case slices.Contains(message.Target.Kind, "cdylib"):
				libraries = append(libraries, file)
			default:
				programs = append(programs, file)
			}
		}
	}
	modules := libraries
	if len(libraries) == 0 {
		modules = programs
	}
	switch len(modules) {
	case 0:
		return "", because(Failed, "cargo built no module of %s: add to Cargo.toml the lines [lib] and crate-type = [\"cdylib\"]", s.Name)
	case 1:
		return modules[0], nil
	}
	for i, module := range modules {
		modules[i] = strings.TrimSuffix(filepath.Base(module), manifest.ModuleSuffix)
	}
	slices.Sort(modules)
	return "", because(Failed, "cargo built %s of %s: a plugin is one module; leave one in Cargo.toml",
		strings.Join(modules, ", "), s.Name)
}
