package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sdk "github.com/quern-project/quern/sdk/c"
)

// compilers are those of this machine.
type compilers struct {
	env environment

	mu    sync.Mutex
	clang string // path; "" until findClang found one; guarded by mu
}

// compile compiles source to the absolute path out.
func (c *compilers) compile(ctx context.Context, s source, out string, stderr io.Writer) error {
	headers := ""
	if s.language == languageC {
		dir, err := writeHeader()
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		headers = dir
	}
	cmd, err := c.command(ctx, s, out, headers)
	if err != nil {
		return err
	}
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = stderr, stderr
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

// writeHeader makes a folder with quern.h, for source without a copy.
func writeHeader() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "quern-header-*"); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "quern.h"), sdk.Header, 0o600); err != nil {
		return "", errors.Join(fmt.Errorf("write header: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// command is the command line of a compiler. It keeps names in the module, for backtraces. A C compiler searches the
// folder headers last.
func (c *compilers) command(ctx context.Context, s source, out, headers string) (*exec.Cmd, error) {
	if s.language == languageC {
		clang, err := c.findClang(ctx)
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
func (c *compilers) findClang(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clang != "" {
		return c.clang, nil
	}
	candidates := clangs
	if sdk := c.env.get("WASI_SDK_PATH"); sdk != "" {
		candidates = []string{filepath.Join(sdk, "bin", "clang")}
	}
	if named := c.env.get("CLANG"); named != "" {
		candidates = []string{named}
	}
	var tried []string
	for _, candidate := range candidates {
		path, err := exec.LookPath(candidate)
		if err != nil {
			continue
		}
		if links(ctx, path) {
			c.clang = path
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
