// Package runtimetest builds guests for the tests of this and other packages.
//
// Guests are built from source by the real compilers, once in each process, when a test first asks for them. A compiler
// that is missing fails the test and names the command that installs it.
package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// guests holds the guests that were built so far. It lives as long as the process, because a guest is the same for
// every test that asks for it.
var guests builds

type builds struct {
	mu   sync.Mutex
	done map[string]func() ([]byte, error)
}

// get builds a guest at most once; other callers wait meanwhile.
func (b *builds) get(key string, build func() ([]byte, error)) ([]byte, error) {
	b.mu.Lock()
	once, ok := b.done[key]
	if !ok {
		if b.done == nil {
			b.done = map[string]func() ([]byte, error){}
		}
		once = sync.OnceValues(build)
		b.done[key] = once
	}
	b.mu.Unlock()
	return once()
}

// KeepNames is an argument for BuildC that leaves the names of functions in the module.
const KeepNames = "-Wl,--strip-debug"

// BuildC compiles one C source to a WASI command and returns the module. Further arguments go to clang, such as
// KeepNames or -DNAME=VALUE. The caller must not change the module.
func BuildC(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	return build(t, "C", "guest.c", source, arguments,
		func(dir, out string) error { return compileC(t.Context(), dir, out, arguments) })
}

// BuildCHandler compiles one C source to a handler, as BuildC does to a command. The source can include "quern.h", the
// SDK for C in sdk/c.
func BuildCHandler(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	return BuildC(t, source, slices.Concat(arguments, []string{"-mexec-model=reactor"})...)
}

// build returns the guest that compile makes from source. dir is a new folder that contains the source in a file called
// name. compile writes the guest to the path out.
func build(t testing.TB, language, name, source string, arguments []string,
	compile func(dir, out string) error,
) []byte {
	t.Helper()
	key := language + "\x00" + source + "\x00" + strings.Join(arguments, "\x00")
	binary, err := guests.get(key, func() (binary []byte, err error) {
		dir, err := os.MkdirTemp("", "guest-*")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			return nil, err
		}
		out := filepath.Join(dir, "guest.wasm")
		if err := compile(dir, out); err != nil {
			return nil, err
		}
		return os.ReadFile(out)
	})
	if err != nil {
		t.Fatalf("build %s guest: %v", language, err)
	}
	return binary
}

var clang = compiler("clang")

func compileC(ctx context.Context, dir, out string, arguments []string) error {
	clang, err := clang()
	if err != nil {
		return err
	}
	root, err := repository()
	if err != nil {
		return err
	}
	object := filepath.Join(dir, "guest.o")
	if slices.Contains(arguments, "-c") { // the caller wants an object file
		object = out
	}
	compile := append([]string{"--target=wasm32-wasi", "-O2", "-I", filepath.Join(root, "sdk", "c"), "-c", "-o", object},
		arguments...)
	if err := command(ctx, clang[0], nil, dir, append(compile, "guest.c")...); err != nil || object == out {
		return err
	}
	link := []string{"--target=wasm32-wasi", "-o", out} // with -O, clang would run a wasm-opt that is in PATH
	for _, argument := range arguments {
		if !strings.HasPrefix(argument, "-O") {
			link = append(link, argument)
		}
	}
	if !slices.Contains(arguments, KeepNames) {
		link = append(link, "-Wl,--strip-all")
	}
	return command(ctx, clang[0], nil, dir, append(link, object)...)
}

func command(ctx context.Context, name string, env []string, dir string, arguments ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &output, &output
	if err := cmd.Run(); errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: run make deps", err)
	} else if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, output.String())
	}
	return nil
}

// repository returns the folder of this repository: the folder of the tested module, or a folder above it.
var repository = sync.OnceValues(func() (string, error) {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := filepath.Dir(string(gomod)); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".ci", "clang")); err == nil {
			return dir, nil
		} else if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
	}
})

// compiler returns a function that runs a script in .ci, at most once in each process, and returns the words that it
// prints. The script prints the command that builds WASI programs on this machine; the Makefile uses it as well.
func compiler(script string) func() ([]string, error) {
	return sync.OnceValues(func() ([]string, error) {
		root, err := repository()
		if err != nil {
			return nil, err
		}
		var said bytes.Buffer
		cmd := exec.Command(filepath.Join(root, ".ci", script))
		cmd.Stderr = &said
		name, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, &said)
		}
		return strings.Fields(string(name)), nil
	})
}

// installed returns the path of a file in an npm package; name is its path in node_modules. make deps installs the
// packages that .ci/npm lists in build/npm.
func installed(name string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "build", "npm", "node_modules", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run make deps", err)
	}
	return path, nil
}
