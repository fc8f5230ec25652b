package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/bundle"
)

// publish appends the files of a handler to the module of an engine, and writes the result to out.
func publish(s *Source, engine []byte, app map[string][]byte, out string) error {
	module, err := bundle.Append(engine, app)
	if err != nil {
		return fmt.Errorf("build %s: %w", s.Name, err)
	}
	if len(module) > runtime.MaxModule {
		return because(Refused, "%s has %d MiB with its packages, and the maximum is %d: remove what the handler does not need",
			s.Name, len(module)>>20, runtime.MaxModule>>20)
	}
	if err := os.WriteFile(out, module, 0o600); err != nil {
		return fmt.Errorf("build %s: %w", s.Name, err)
	}
	return nil
}

// start checks and starts the built module with Config.Start, so that authors learn of a wrong import at build time.
func (b *Builder) start(ctx context.Context, s *Source, module string) error {
	wrong, err := b.config.Start(ctx, s, module)
	if refused, ok := errors.AsType[*runtime.RefusedError](err); ok {
		return because(Failed, "%s is refused: %w", s.Name+manifest.ModuleSuffix, refused)
	}
	if err != nil || len(wrong) == 0 {
		return err
	}
	last := wrong[len(wrong)-1]
	found := notFound.FindStringSubmatch(last)
	for i, line := range wrong {
		said := found != nil && found[2] != "" && strings.Contains(line, found[2]) // by the error below
		if said || i < len(wrong)-1 && strings.HasPrefix(line, last) {
			continue
		}
		fmt.Fprintln(b.config.Stderr, inFolder(line, s))
	}
	if found != nil {
		if file := s.leftOut(found[1]); file != "" {
			return because(Failed, "%s does not start: %s is left out of plugins, as are tests (test_*.py, *_test.py, conftest.py, folders tests and test) "+
				"and folders site-packages: rename it, or list it in %s if it is a package", s.Name, file, requirements)
		}
		if found[2] != "" { // without a remedy, a part of a package is missing
			return because(Failed, "%s does not start: no module named %s: %s", s.Name, found[1], found[2])
		}
	}
	return because(Failed, "%s does not start: "+above, s.Name)
}

// notFound matches the last line of a Python traceback about a module that neither the plugin nor the engine has.
var notFound = regexp.MustCompile(`^ModuleNotFoundError: No module named '([^']+)'(?:: (.+))?$`)

// leftOut returns the path of a Python module that is in the source's folder but is left out of the plugin; "" if there
// is none.
func (s *Source) leftOut(module string) string {
	name := strings.ReplaceAll(module, ".", "/")
	for _, below := range []string{"", "site-packages"} {
		for _, suffix := range []string{".py", ""} {
			file := filepath.Join(s.Dir, below, name+suffix)
			if _, err := os.Stat(file); err == nil {
				return file
			}
		}
	}
	return ""
}

// inFolder replaces names of files in the plugin by the names of the source files that they were made from.
func inFolder(text string, s *Source) string {
	text = strings.Replace(text, "handler.js exports ", s.Files[0]+" exports ", 1) // the engine only knows the bundle
	return strings.ReplaceAll(text, "/app/", filepath.ToSlash(filepath.Clean(s.Dir))+"/")
}

// engine returns the module of an interpreter, which carries the interpreter's own files.
func (b *Builder) engine(name string) ([]byte, error) {
	folder, err := b.engines()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, name+manifest.ModuleSuffix)
	engine, err := bundle.Engine(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, because(Refused, "there is no engine %s: take quern from `pip install quern`, `npm install quern` or the release archive, "+
			"which have it, or run `make engines` in a checkout of Quern; --engines DIR names another folder", file)
	case err != nil:
		return nil, because(Refused, "read engine: %w: install quern again, or run `make engines` in a checkout of Quern", err)
	}
	return engine, nil
}

// engines returns the folder of the engines: Config.Engines, or else the folder engines next to this program's binary,
// or else, if that is in a folder bin as pip installs it, share/quern/engines next to bin.
func (b *Builder) engines() (string, error) {
	if b.config.Engines != "" {
		return b.config.Engines, nil
	}
	program, err := os.Executable()
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return "", because(Refused, "find the folder of the engines: %w: name it by --engines DIR", err)
	}
	beside := filepath.Join(filepath.Dir(program), "engines")
	installed := filepath.Join(filepath.Dir(program), "..", "share", "quern", "engines")
	if _, err := os.Stat(beside); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(installed); err == nil {
			return installed, nil
		}
	}
	return beside, nil
}

// appFiles reads the files below dir that keep accepts. The keys are their paths below /app. It enters neither foreign
// folders nor outDir, the folder that the plugin is built into. It follows links to files, also to files outside dir.
func appFiles(dir, outDir string, keep func(name string) bool) (map[string][]byte, error) {
	files, size := map[string][]byte{}, int64(0)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil || name == "." {
			return err
		}
		name = filepath.ToSlash(name)
		info, err := os.Stat(file)
		if err == nil && info.IsDir() {
			own, linked := !foreign(file, outDir) && keep(name+"/"), !entry.IsDir()
			switch {
			case own && linked:
				return because(Failed, "%s is a link to a folder, whose files would be missing in the plugin: put the folder in its place, "+
					"or install it by a line in %s", file, requirements)
			case !own && !linked:
				return filepath.SkipDir
			}
			return nil
		}
		if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(path.Base(name), ".") || !keep(name) {
			return nil //nolint:nilerr // a link to nowhere, such as an editor's lock
		}
		if !utf8.ValidString(name) {
			return because(Failed, "%q: the name is not UTF-8: rename it", file)
		}
		if size += info.Size(); size > bundle.MaxBytes {
			return because(Refused, "the files of %s take more than 64MiB: %s is one too many; move what the handler does not read out of the folder", dir, name)
		}
		files["/app/"+name], err = os.ReadFile(file)
		return err
	})
	var cause *Error
	if err != nil && !errors.As(err, &cause) {
		err = because(Usage, "read source: %w", err)
	}
	return files, err
}
