package build

import (
	"bytes"
	"context"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quern-project/quern/plugins/manifest"
)

var python = &Language{source: named("handler.py"), build: buildPython}

// buildPython puts the folder's modules, packages and data into /app, and what requirements.txt lists below it.
func buildPython(ctx context.Context, b *Builder, s *Source, out string) error {
	engine, err := b.engine("python")
	if err != nil {
		return err
	}
	granted, err := s.granted() // the host shows these
	if err != nil {
		return err
	}
	files, err := appFiles(s.Dir, filepath.Dir(out), func(name string) bool {
		return isPython(name) && name != s.Name+manifest.Suffix && !slices.Contains(granted, filepath.FromSlash(name))
	})
	if err != nil {
		return err
	}
	for name, content := range files {
		switch {
		case name == "/app/quern.py" || name == "/app/quern/__init__.py":
			return because(Failed, "%s hides Quern's own module quern: rename it", inFolder(name, s))
		case path.Ext(name) == ".py" && bytes.IndexByte(content, 0) >= 0:
			return because(Failed, "%s has NUL bytes, as files in UTF-16 have: save it as UTF-8", inFolder(name, s))
		}
	}
	packages, err := b.packages(ctx, s)
	if err != nil {
		return err
	}
	maps.Copy(files, packages)
	return publish(s, engine, files, out)
}

// isPython reports whether a file belongs to a handler in Python, or a folder, whose name ends in a slash. Tests, and
// what describes the project to people and tools, do not.
func isPython(name string) bool {
	switch base := path.Base(name); {
	case strings.HasSuffix(name, "/"):
		return base != "tests" && base != "test" && !strings.HasSuffix(base, ".egg-info") && !strings.HasSuffix(base, ".dist-info")
	case slices.Contains([]string{manifest.ModuleSuffix, ".pyc", ".pyo"}, path.Ext(base)), strings.HasSuffix(base, "~"), strings.HasPrefix(base, "#"):
		return false
	case path.Ext(base) == ".py":
		return base != "conftest.py" && !strings.HasPrefix(base, "test_") && !strings.HasSuffix(base, "_test.py")
	case base != name:
		return true
	default: // beside the handler
		return !slices.Contains([]string{"pyproject.toml", "setup.cfg", "tox.ini", "uv.lock", "poetry.lock", "Pipfile", "Pipfile.lock", "quern.schema.json", "Makefile", "Dockerfile"}, base) &&
			!strings.HasPrefix(base, "requirements") && !strings.HasPrefix(base, "README") && !strings.HasPrefix(base, "LICENSE")
	}
}
