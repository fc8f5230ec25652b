package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
)

const ascConfig = "asconfig.json"

var assemblyscript = &Language{
	source: named(ascConfig), above: []string{"node_modules", "package.json"},
	build: buildAssemblyScript,
}

// buildAssemblyScript runs the compiler asc of the plugin's own node_modules, or else the one in PATH. It does not
// search the folders above, because they can belong to another user.
func buildAssemblyScript(ctx context.Context, b *Builder, s *Source, out string) error {
	if err := checkConfig(s); err != nil {
		return err
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	program, err := lookPath(filepath.Join(dir, "node_modules", ".bin", "asc"))
	if err != nil {
		program, err = lookPath("asc")
	}
	if err != nil {
		return because(Refused, "cannot build %s without AssemblyScript: run `npm install --save-dev assemblyscript` in %s, or where npm has it in a folder above, "+
			"`npm exec -- quern plugin build`, which puts that in PATH; npm is part of Node.js, on Debian `apt-get install nodejs npm`", s.Name, dir)
	}
	return b.run(ctx, s, command(ctx, program, "--target", "release", "--outFile", out))
}

// checkConfig refuses configurations for which asc would print its own source code, or print its help and exit with 0.
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
