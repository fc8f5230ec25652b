package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the script
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/bundle"
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
		return base != "tests" && base != "test" && !strings.HasSuffix(base, ".egg-info") &&
			!strings.HasSuffix(base, ".dist-info")
	case slices.Contains([]string{manifest.ModuleSuffix, ".pyc", ".pyo"}, path.Ext(base)), strings.HasSuffix(base, "~"),
		strings.HasPrefix(base, "#"):
		return false
	case path.Ext(base) == ".py":
		return base != "conftest.py" && !strings.HasPrefix(base, "test_") && !strings.HasSuffix(base, "_test.py")
	case base != name:
		return true
	default: // beside the handler
		return !slices.Contains([]string{
			"pyproject.toml", "setup.cfg", "tox.ini", "uv.lock", "poetry.lock", "Pipfile",
			"Pipfile.lock", "quern.schema.json", "Makefile", "Dockerfile",
		}, base) &&
			!strings.HasPrefix(base, "requirements") && !strings.HasPrefix(base, "README") && !strings.HasPrefix(base, "LICENSE")
	}
}

// pipScript runs pip for the engine's platform.
//
//go:embed pip.py
var pipScript string

// pipArguments make pip choose pure wheels for the engine's Python, or else source distributions.
var pipArguments = []string{
	"install", "--platform=any", "--implementation=py", "--abi=none", "--python-version=3.11", "--no-compile",
	"--no-input",
	"--disable-pip-version-check", "--no-warn-conflicts", "--root-user-action=ignore", "--progress-bar=off",
}

// withoutNative are variables with which a source distribution leaves out its optional native part, and fails with one
// that it needs.
var withoutNative = []string{"CC=false", "CXX=false", "CARGO=false", "PIP_USER=0"}

const (
	requirements = "requirements.txt"
	installed    = "/app/site-packages" // where the engine finds packages
)

// packages are the files of what requirements.txt lists, below /app/site-packages. They are kept by a hash of it, so
// that the next build needs neither pip nor a network.
func (b *Builder) packages(ctx context.Context, s *Source) (map[string][]byte, error) {
	texts, local, err := readRequirements(filepath.Join(s.Dir, requirements), map[string]bool{})
	if err != nil || len(texts) == 0 {
		return nil, err
	}
	folder := ""
	if b.config.Cache != "" && !local {
		sum := sha256.Sum256([]byte(pipScript + strings.Join(pipArguments, " ") + strings.Join(texts, "\x00")))
		folder = filepath.Join(b.config.Cache, "site-packages", hex.EncodeToString(sum[:16]))
		if files, err := bundle.ReadFolder(folder, installed); err == nil {
			return files, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, because(Refused, "read packages: %w: remove %s", err, folder)
		}
	}
	temporary, err := b.temporary()
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(temporary)
	if err := b.pip(ctx, s, temporary); err != nil {
		return nil, err
	}
	if err := checkPure(temporary); err != nil {
		return nil, err
	}
	if err := tidy(temporary); err != nil {
		return nil, fmt.Errorf("install packages: %w", err)
	}
	files, err := bundle.ReadFolder(temporary, installed)
	if err == nil && folder != "" {
		_ = os.Rename(temporary, folder) // another build may have been first
	}
	return files, err
}

// temporary makes a folder for packages, in the cache if there is one.
func (b *Builder) temporary() (string, error) {
	parent := ""
	if b.config.Cache != "" {
		parent = filepath.Join(b.config.Cache, "site-packages")
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return "", err
		}
	}
	return os.MkdirTemp(parent, ".new-*")
}

var (
	comment  = regexp.MustCompile(`(?m)(^|\s)#.*$`)
	included = regexp.MustCompile(`^(?:-r|--requirement|-c|--constraint)[\s=]*(\S+)$`)
	editable = regexp.MustCompile(`^(?:-e|--editable)[\s=]`)
	// nearby matches what pip reads as a path or an archive on this machine, archives among others by their suffixes.
	nearby = regexp.MustCompile(`^(?:-f|--find-links)[\s=]|\bfile:|^\.|^[^:]*/|^[^:]*\.(?:whl|zip|tar|t[gbx]z|tar\.\w+)(?:[\s;[]|$)`)
)

// readRequirements returns what a file of requirements and those that it includes say, without comments. local says
// that they name something on this machine, which may change.
func readRequirements(file string, seen map[string]bool) (texts []string, local bool, err error) {
	if seen[file] {
		return nil, false, nil
	}
	seen[file] = true
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && len(seen) == 1 {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, because(Usage, "read requirements: %w: make it a readable file, or correct the line that names it",
			err)
	}
	for line := range strings.Lines(comment.ReplaceAllString(string(text), "")) {
		line = strings.TrimSpace(line)
		switch found := included.FindStringSubmatch(line); {
		case line == "":
			continue
		case editable.MatchString(line):
			return nil, false, because(Failed, "%s: %q: a plugin has its packages in it: write the path or URL without -e", file,
				line)
		case found != nil && !strings.Contains(found[1], "://"):
			more, alsoLocal, err := readRequirements(filepath.Join(filepath.Dir(file), found[1]), seen)
			if err != nil {
				return nil, false, err
			}
			texts, local = append(texts, more...), local || alsoLocal
		default:
			local = local || nearby.MatchString(line)
		}
		texts = append(texts, line)
	}
	return texts, local, nil
}

// pip installs the packages into a folder.
func (b *Builder) pip(ctx context.Context, s *Source, target string) error {
	program, err := b.findPython(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"-c", pipScript}, pipArguments...)
	args = append(args, "--target", target, "-r", requirements)
	if b.config.Cache != "" { // not the user's own, for what is built here lacks its native part
		args = append(args, "--cache-dir", filepath.Join(b.config.Cache, "pip"))
	} else {
		args = append(args, "--no-cache-dir")
	}
	fmt.Fprintf(b.config.Stderr, "installing %s of %s by %s -m pip\n", requirements, s.Name, program)
	cmd := command(ctx, program, args...)
	cmd.Dir = s.Dir
	cmd.Env = append(cmd.Env, withoutNative...)
	cmd.WaitDelay = 5 * time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		return nil
	}
	if names := unbuilt(said.String()); len(names) > 0 {
		return native(names)
	}
	_, _ = b.config.Stderr.Write(said.Bytes())
	if missing := unfound.FindStringSubmatch(said.String()); missing != nil {
		return because(Failed, "pip finds no %s that a plugin can have (its messages are above): the name or the version is wrong, there is no network, "+
			"or it has native code, which a plugin cannot load", missing[1])
	}
	return because(Failed, "pip could not install %s of %s: its messages are above", requirements, s.Name)
}

// pythons are tried in this order, unless the environment names one.
var pythons = []string{"python3.11", "python3", "python"}

// hasPip tells by its exit status whether a Python has pip. Its sys.path is that of pip.py.
const hasPip = "import sys; sys.path = [folder for folder in sys.path if folder]; import pip; sys.exit(sys.version_info < (3, 8))"

// findPython finds a Python that has pip: PYTHON, or one in PATH. Its version does not matter.
func (b *Builder) findPython(ctx context.Context) (string, error) {
	candidates := pythons
	if named := b.config.Getenv("PYTHON"); named != "" {
		candidates = []string{named}
	}
	path, _ := firstProgram(candidates, func(path string) bool { return command(ctx, path, "-c", hasPip).Run() == nil })
	if path != "" || ctx.Err() != nil {
		return path, ctx.Err()
	}
	return "", because(Refused, "there is no Python 3 with pip to install %s (tried %s): install one, on Debian with `apt-get install python3-pip`, "+
		"or name one by PYTHON=PATH", requirements, strings.Join(candidates, ", "))
}

// failed matches what pip says of source distributions that do not build.
var failed = regexp.MustCompile(`(?m)^\s*(?:ERROR: Failed building wheel for|Failed to build|╰─>) ([A-Za-z0-9][\w.-]*)$`)

// unfound matches what pip says of packages that are not there, or have wheels with native code alone.
var unfound = regexp.MustCompile(`(?m)^ERROR: No matching distribution found for (.+?)$`)

// unbuilt are the packages that pip could not build.
func unbuilt(said string) (names []string) {
	for _, match := range failed.FindAllStringSubmatch(said, -1) {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

// instead are packages that do what one with native code does, by its name.
var instead = map[string]string{
	"pydantic-core": "use pydantic<2",
	"pillow":        "resize and convert images in a plugin in Go",
	"numpy":         "use the module statistics, or a plugin in Go or C",
	"cryptography":  "use the modules hashlib and hmac",
	"lxml":          "use xml.etree.ElementTree",
	"orjson":        "use the module json",
}

// native is the error of packages with native code.
func native(names []string) error {
	remedy := "remove it from " + requirements + ", or use a package or a version in pure Python"
	if other := instead[strings.ToLower(strings.ReplaceAll(names[0], "_", "-"))]; other != "" {
		remedy = other
	}
	return because(Failed, "%s has native code, which a plugin cannot load, and no version without: %s",
		strings.Join(names, ", "), remedy)
}

// checkPure refuses packages with native code.
func checkPure(folder string) error {
	var names []string
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".so", ".pyd", ".dylib", ".dll"}, filepath.Ext(file)) {
			return err
		}
		inside, err := filepath.Rel(folder, file)
		if name := owner(folder, filepath.ToSlash(inside)); err == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		return err
	}
	return native(names)
}

// owner is the name of the package that has installed a file.
func owner(folder, file string) string {
	records, _ := filepath.Glob(filepath.Join(folder, "*.dist-info", "RECORD"))
	for _, record := range records {
		if text, err := os.ReadFile(record); err == nil && bytes.Contains(text, []byte(file+",")) {
			name, _, _ := strings.Cut(filepath.Base(filepath.Dir(record)), "-")
			return name
		}
	}
	name, _, _ := strings.Cut(file, "/")
	return name
}

// tidy removes what differs from one machine to the next, or is of no use in a plugin: programs, and how and when
// packages were installed.
func tidy(folder string) error {
	if err := os.RemoveAll(filepath.Join(folder, "bin")); err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name == "__pycache__":
			if err := os.RemoveAll(file); err != nil {
				return err
			}
			return fs.SkipDir
		case filepath.Ext(filepath.Dir(file)) == ".dist-info" &&
			slices.Contains([]string{"RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json"}, name):
			return os.Remove(file)
		}
		return nil
	})
}
