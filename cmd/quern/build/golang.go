package build

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

var golang = &Language{
	source: func(names []string) (files []string) {
		for _, name := range names {
			if filepath.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") {
				files = append(files, name)
			}
		}
		return files
	},
	several: true,
	build:   buildGo,
}

// goEntry matches the source of a handler. Other source is that of a command.
var goEntry = regexp.MustCompile(`(?m)^//go:wasmexport quern_handle\s*$`)

// buildGo runs the Go toolchain. It keeps names in the module, for backtraces.
func buildGo(ctx context.Context, b *Builder, s *Source, out string) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	program, err := exec.LookPath("go")
	if err != nil {
		return because(Refused, "cannot build %s without Go: install it from https://go.dev/dl/, with `go` in PATH", s.Name)
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", out}
	if slices.ContainsFunc(texts, goEntry.Match) {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := exec.CommandContext(ctx, program, append(args, ".")...) //nolint:gosec // it is the user's own
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	return b.run(ctx, s, cmd)
}

// run runs a compiler in the folder of the source.
func (b *Builder) run(ctx context.Context, s *Source, cmd *exec.Cmd) error {
	cmd.Dir = s.Dir
	if cmd.Stderr = b.config.Stderr; cmd.Stdout == nil {
		cmd.Stdout = b.config.Stderr
	}
	cmd.WaitDelay = 5 * time.Second // for its own children
	err := cmd.Run()
	program := filepath.Base(cmd.Path)
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &failed):
		return because(Failed, "%s could not build %s: its messages are above", program, s.Name)
	case err != nil:
		return because(Refused, "%s could not build %s: %w", program, s.Name, err)
	}
	return nil
}
