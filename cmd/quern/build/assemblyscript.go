package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
)

const ascConfig = "asconfig.json"

var assemblyscript = &Language{source: named(ascConfig), build: buildAssemblyScript}

// buildAssemblyScript runs the asc of the plugin or of a folder above it, as npm does, or else that in PATH.
func buildAssemblyScript(ctx context.Context, b *Builder, s *Source, out string) error {
	if err := checkConfig(s); err != nil {
		return err
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	program := ""
	for above := dir; program == "" && above != filepath.Dir(above); above = filepath.Dir(above) {
		program, _ = exec.LookPath(filepath.Join(above, "node_modules", ".bin", "asc"))
	}
	if program == "" {
		if program, err = exec.LookPath("asc"); err != nil {
			return because(Refused, "cannot build %s without AssemblyScript: run `npm install --save-dev assemblyscript` in %s; npm is part of Node.js, "+
				"on Debian `apt-get install nodejs npm`", s.Name, dir)
		}
	}
	return b.run(ctx, s, exec.CommandContext(ctx, program, "--target", "release", "--outFile", out)) //nolint:gosec // it is the user's own
}

// checkConfig finds what asc answers with its own source code, or with its help and success.
func checkConfig(s *Source) error {
	texts, err := s.read()
	if err != nil {
		return err
	}
	const remedy = `"entries": ["handler.ts"]`
	file, text := filepath.Join(s.Dir, ascConfig), texts[0]
	var config map[string]json.RawMessage
	err = json.Unmarshal(text, &config)
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		line := 1 + bytes.Count(text[:max(wrong.Offset-1, 0)], []byte("\n"))
		return because(Failed, "%s:%d: %w: expected JSON, an object with at least "+remedy, file, line, wrong)
	}
	var entries []string
	if err != nil || json.Unmarshal(config["entries"], &entries) != nil || len(entries) == 0 {
		return because(Failed, "%s: entries does not name the handler's file: add "+remedy, file)
	}
	return nil
}
