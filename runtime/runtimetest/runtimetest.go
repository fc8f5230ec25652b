// Package runtimetest builds guests for the tests of this and other packages.
//
// Guests are built from source by the real compilers, when they are first asked for and once a
// process. A compiler that is missing fails the test and names the command that installs it.
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

// guests holds what was built so far. It lives as long as the process, because a guest is the same
// for every test that asks for it.
var guests builds

type builds struct {
	mu   sync.Mutex
	done map[string]func() ([]byte, error)
}

// get builds a guest at most once; who asks for it meanwhile waits.
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

// BuildC compiles one C source to a WASI command and returns the module. Further arguments go to
// clang, such as KeepNames or -DNAME=VALUE. The caller does not change what is returned.
func BuildC(t testing.TB, source string, arguments ...string) []byte {
	t.Helper()
	key := "c\x00" + source + "\x00" + strings.Join(arguments, "\x00")
	binary, err := guests.get(key, func() ([]byte, error) { return buildC(t.Context(), source, arguments) })
	if err != nil {
		t.Fatalf("build C guest: %v", err)
	}
	return binary
}

func buildC(ctx context.Context, source string, arguments []string) ([]byte, error) {
	clang, err := findClang()
	if err != nil {
		return nil, err
	}
	return inTemporary(func(dir, out string) error {
		in := filepath.Join(dir, "guest.c")
		if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
			return err
		}
		args := append([]string{"--target=wasm32-wasi", "-O2", "-o", out}, arguments...)
		if !slices.Contains(arguments, KeepNames) {
			args = append(args, "-Wl,--strip-all")
		}
		return command(ctx, clang, nil, dir, append(args, in)...)
	})
}

// buildGo puts the source into a module of its own, so that the build needs nothing else of this
// repository.
func buildGo(ctx context.Context, source []byte) ([]byte, error) {
	return inTemporary(func(dir, out string) error {
		if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module guest\n\ngo 1.26\n"), 0o600); err != nil {
			return err
		}
		env := append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
		return command(ctx, "go", env, dir, "build", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
	})
}

// inTemporary gives build a folder of its own and reads the file that it wrote there.
func inTemporary(build func(dir, out string) error) ([]byte, error) {
	dir, err := os.MkdirTemp("", "guest-*")
	if err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "guest.wasm")
	var binary []byte
	if err = build(dir, out); err == nil {
		binary, err = os.ReadFile(out)
	}
	return binary, errors.Join(err, os.RemoveAll(dir))
}

func command(ctx context.Context, name string, env []string, dir string, arguments ...string) error {
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, output.String())
	}
	return nil
}

// findClang asks .ci/clang, which knows for the Makefile, too, what builds WASI programs here; once a
// process.
var findClang = sync.OnceValues(func() (string, error) {
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	var said bytes.Buffer
	cmd := exec.Command(filepath.Join(filepath.Dir(string(gomod)), ".ci", "clang"))
	cmd.Stderr = &said
	clang, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, &said)
	}
	return strings.TrimSpace(string(clang)), nil
})
