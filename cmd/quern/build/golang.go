package build

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var golang = &Language{
	source: func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return filepath.Ext(name) != ".go" ||
				strings.HasSuffix(name, "_test.go")
		})
	},
	several: true,
	above:   []string{"go.mod", "go.work"},
	build:   buildGo,
}

// goEntry matches source of a handler. Source that does not match is a command's.
var goEntry = regexp.MustCompile(`(?m)^//go:wasmexport quern_handle\s*$`)

// buildGo runs the Go toolchain. It keeps function names in the module, for backtraces. It warns of functions that cannot
// work in a plugin.
func buildGo(ctx context.Context, b *Builder, s *Source, out string) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	for _, warning := range unfit(s, texts) {
		fmt.Fprintln(b.config.Stderr, warning)
	}
	program, err := lookPath("go")
	if err != nil {
		return because(Refused, "cannot build %s without Go: install it from https://go.dev/dl/, with `go` in PATH", s.Name)
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", out}
	if slices.ContainsFunc(texts, goEntry.Match) {
		args = append(args, "-buildmode=c-shared")
	}
	cmd := command(ctx, program, append(args, ".")...)
	cmd.Env = append(cmd.Env, "GOOS=wasip1", "GOARCH=wasm")
	return b.run(ctx, s, cmd)
}
