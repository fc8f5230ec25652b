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
	"syscall"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/bundle"
)

var python = &Language{source: named("handler.py"), build: buildPython, test: isPythonTest}

// buildPython puts the folder's modules, packages and data into /app, and the packages that requirements.txt lists into
// /app/site-packages.
func buildPython(ctx context.Context, b *Builder, s *Source, out string) error {
	engine, err := b.engine("python")
	if err != nil {
		return err
	}
	granted, err := s.granted() // the host gives the handler these files
	if err != nil {
		return err
	}
	lists := map[string]bool{} // requirements.txt and the files that it includes
	required, local, err := readRequirements(filepath.Join(s.Dir, requirements), lists)
	if err == nil {
		err = checkRequired(required)
	}
	if err != nil {
		return err
	}
	files, err := appFiles(s.Dir, filepath.Dir(out), func(name string) bool {
		file := filepath.FromSlash(name)
		return isPython(name) && name != s.Name+manifest.Suffix && !slices.Contains(granted, file) &&
			!lists[filepath.Join(s.Dir, file)]
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
	b.tellData(s, files)
	packages, err := b.packages(ctx, s, required, local)
	if err != nil {
		return err
	}
	warnings, err := checkInstalled(packages)
	if err != nil {
		return err
	}
	maps.Copy(files, packages)
	for _, warning := range checkImports(files) {
		warnings = append(warnings, inFolder(warning, s))
	}
	for _, warning := range warnings {
		fmt.Fprintln(b.config.Stderr, "warning: "+warning)
	}
	if err := keepForTests(s.Dir, packages); err != nil {
		return fmt.Errorf("copy packages for tests: %w", err)
	}
	return publish(s, engine, files, out)
}

// tellData names the files of the plugin that are no modules, once until they change. One may be there by mistake,
// such as a file with credentials.
func (b *Builder) tellData(s *Source, files map[string][]byte) {
	const most = 10
	var names []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".py" {
			names = append(names, strings.TrimPrefix(name, "/app/"))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	list := strings.Join(names, ", ")
	b.mu.Lock()
	known := b.told[s.Dir] == list
	if b.told == nil {
		b.told = map[string]string{}
	}
	b.told[s.Dir] = list
	b.mu.Unlock()
	if !known {
		fmt.Fprintf(b.config.Stderr, "note: data files in %s: %s\n", s.Name+manifest.ModuleSuffix, list)
	}
}

// isPythonTest reports whether a file, by its path in the folder of the source, belongs to the tests.
func isPythonTest(name string) bool {
	base := path.Base(name)
	return base == "conftest.py" || base == "pytest.ini" ||
		path.Ext(base) == ".py" && (strings.HasPrefix(base, "test_") || strings.HasSuffix(base, "_test.py")) ||
		slices.ContainsFunc(strings.Split(path.Dir(name), "/"), isTestFolder)
}

// isTestFolder reports whether a folder with this name contains tests of a handler in Python.
func isTestFolder(name string) bool { return name == "tests" || name == "test" }

// isPython reports whether a file or a folder belongs to a handler in Python. The name of a folder ends in a slash.
// Tests do not belong to the handler, nor do files that describe the project to people and tools.
func isPython(name string) bool {
	switch base := path.Base(name); {
	case strings.HasSuffix(name, "/"):
		return !isTestFolder(base) && !strings.HasSuffix(base, ".egg-info") && !strings.HasSuffix(base, ".dist-info")
	case slices.Contains([]string{manifest.ModuleSuffix, ".pyc", ".pyo"}, path.Ext(base)), strings.HasSuffix(base, "~"),
		strings.HasPrefix(base, "#"):
		return false
	case isPythonTest(name):
		return false
	case path.Ext(base) == ".py":
		return true
	case base != name:
		return true
	default: // in the same folder as the handler
		return !slices.Contains([]string{
			"pyproject.toml", "mypy.ini", "pyrightconfig.json", "setup.cfg", "tox.ini", "uv.lock", "poetry.lock", "Pipfile",
			"Pipfile.lock", "quern.schema.json", "Makefile", "Dockerfile",
		}, base) &&
			!strings.HasPrefix(base, "requirements") && !strings.HasPrefix(base, "README") && !strings.HasPrefix(base, "LICENSE")
	}
}

// pipScript is a Python program that runs pip for the engine's platform.
//
//go:embed pip.py
var pipScript string

// pipArguments are arguments with which pip installs pure wheels for the engine's Python, or else source distributions.
var pipArguments = []string{
	"install", "--platform=any", "--implementation=py", "--abi=none", "--python-version=3.11", "--no-compile",
	"--no-input",
	"--disable-pip-version-check", "--no-warn-conflicts", "--root-user-action=ignore", "--progress-bar=off",
}

// withoutNative are environment variables that replace native compilers with a program that fails. A source
// distribution then builds without its native part if that part is optional, and fails to build otherwise.
var withoutNative = []string{"CC=false", "CXX=false", "CARGO=false", "PIP_USER=0"}

// packages returns the files of the packages that requirements.txt lists. The keys are paths below /app/site-packages.
// Unless a requirement is local, the files are cached under a hash of the requirements, so that the next build needs
// neither pip nor a network.
func (b *Builder) packages(ctx context.Context, s *Source, required []requirement,
	local bool,
) (map[string][]byte, error) {
	if len(required) == 0 {
		return nil, nil
	}
	var texts []string
	for _, line := range required {
		texts = append(texts, line.text)
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
		_ = os.Rename(temporary, folder) // fails if another build was faster
	}
	return files, err
}

// testPackages is the folder in a plugin's folder with a copy of the packages that are in the module. Tests and editors
// find them there: a Python of this machine has other versions, or none.
const testPackages = ".quern/site-packages"

// keepForTests makes the copy of the packages the same as the packages, whose keys are paths below /app/site-packages.
// Its time of change becomes that of the build: the plugin of pytest compares it with that of requirements.txt. A
// folder in which nothing can be written gets no copy.
func keepForTests(dir string, packages map[string][]byte) error {
	err := copyForTests(dir, packages)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return err
}

func copyForTests(dir string, packages map[string][]byte) error {
	folder := filepath.Join(dir, filepath.FromSlash(testPackages))
	const mark = ".gitignore"
	for _, path := range []string{filepath.Dir(folder), folder} {
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			return nil // a link or a file of the author's: what it leads to is not this build's
		}
	}
	if _, err := os.Lstat(filepath.Join(folder, mark)); err != nil {
		if _, err := os.Lstat(folder); err == nil {
			return nil // a folder of the author's
		}
	}
	if len(packages) == 0 {
		return os.RemoveAll(folder)
	}
	packages = maps.Clone(packages)
	packages[installed+"/"+mark] = []byte("*\n")
	there, err := bundle.ReadFolder(folder, installed)
	maps.DeleteFunc(there, func(name string, _ []byte) bool { return path.Ext(name) == ".pyc" }) // left by tests
	if err == nil && maps.EqualFunc(there, packages, bytes.Equal) {
		return os.Chtimes(folder, time.Time{}, time.Now())
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(folder), ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	for name, content := range packages {
		file := filepath.Join(temporary, filepath.FromSlash(strings.TrimPrefix(name, installed)))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644)); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(temporary, 0o755), os.RemoveAll(folder)); err != nil {
		return err
	}
	if err := os.Rename(temporary, folder); !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil // another build was faster
}

// temporary makes a temporary folder for packages, in the cache if there is one.
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
	// nearby matches a line in which pip finds a path or an archive on this machine. It also recognizes archives by their
	// suffixes.
	nearby = regexp.MustCompile(`^(?:-f|--find-links)[\s=]|\bfile:|^\.|^[^:]*/|^[^:]*\.(?:whl|zip|tar|t[gbx]z|tar\.\w+)(?:[\s;[]|$)`)
)

// readRequirements returns the requirements in a file and in the files that it includes. local
// reports whether one of them names something on this machine, which can change. seen holds the files read so far.
func readRequirements(file string, seen map[string]bool) (lines []requirement, local bool, err error) {
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
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(comment.ReplaceAllString(line, ""))
		where := fmt.Sprintf("%s:%d", file, number+1)
		switch found := included.FindStringSubmatch(line); {
		case line == "":
			continue
		case editable.MatchString(line):
			return nil, false, because(Failed, "%s: %q: a plugin has its packages in it: write the path or URL without -e", where,
				line)
		case found != nil && !strings.Contains(found[1], "://"):
			more, alsoLocal, err := readRequirements(filepath.Join(filepath.Dir(file), found[1]), seen)
			if err != nil {
				return nil, false, err
			}
			lines, local = append(lines, more...), local || alsoLocal
		default:
			local = local || nearby.MatchString(line)
		}
		lines = append(lines, requirement{line, where})
	}
	return lines, local, nil
}

// pip installs the packages of requirements.txt into the folder target.
func (b *Builder) pip(ctx context.Context, s *Source, target string) error {
	program, err := b.findPython(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"-c", pipScript}, pipArguments...)
	args = append(args, "--target", target, "-r", requirements)
	if b.config.Cache != "" { // not the user's cache, since wheels built here lack native parts
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
		return because(Failed, "%s%w", requiredBy(names[0], said.String(), s.Dir), native(names))
	}
	_, _ = b.config.Stderr.Write(said.Bytes())
	if missing := unfound.FindStringSubmatch(said.String()); missing != nil {
		return because(Failed, "pip finds no %s that a plugin can have ("+above+"): the name or the version is wrong, there is no network, "+
			"or it has native code, which a plugin cannot load", missing[1])
	}
	return because(Failed, "pip could not install %s of %s: "+above, requirements, s.Name)
}

// pythons lists the programs that findPython tries, in this order, unless the environment names one.
var pythons = []string{"python3.11", "python3", "python"}

// hasPip is a Python program that exits with 0 if it runs in Python 3.8 or later with pip. It sets sys.path as pip.py
// does.
const hasPip = "import sys; sys.path = [folder for folder in sys.path if folder]; import pip; sys.exit(sys.version_info < (3, 8))"

// findPython returns the path of a Python 3.8 or later that has pip: the one that PYTHON names, or the first one in
// PATH. It need not have the engine's version.
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

// failed matches what pip prints about source distributions that it could not build.
var failed = regexp.MustCompile(`(?m)^\s*(?:ERROR: Failed building wheel for|Failed to build|╰─>) ([A-Za-z0-9][\w.-]*)$`)

// unfound matches what pip prints about packages that do not exist, or whose wheels all have native code.
var unfound = regexp.MustCompile(`(?m)^ERROR: No matching distribution found for (.+?)$`)

// collecting matches what pip prints about each package that it looks at. broken is in its messages if it could not
// even learn the version of a source distribution, which is that of the last package.
var collecting = regexp.MustCompile(`(?m)^Collecting ([A-Za-z0-9][\w.-]*)`)

const broken = "metadata-generation-failed"

// unbuilt returns the names of the packages that pip could not build. said is what pip printed.
func unbuilt(said string) (names []string) {
	if all := collecting.FindAllStringSubmatch(said, -1); len(all) > 0 && strings.Contains(said, broken) {
		return []string{all[len(all)-1][1]}
	}
	for _, match := range failed.FindAllStringSubmatch(said, -1) {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

// collected matches what pip prints about a package and the line that it comes from.
var collected = regexp.MustCompile(`(?m)^\s*Collecting ([A-Za-z0-9][\w.-]*).*\(from (?:(.+)->)?-r (\S+) \(line (\d+)\)\)`)

// requiredBy returns the beginning of an error about a package: the line that asks for it, and the package in that line
// if that is another one. said is what pip printed.
func requiredBy(name, said, dir string) string {
	for _, found := range collected.FindAllStringSubmatch(said, -1) {
		if normalized(found[1]) != normalized(name) {
			continue
		}
		where := filepath.Join(dir, found[3]) + ":" + found[4] + ": "
		if found[2] == "" {
			return where
		}
		chain := strings.Split(found[2], "->")
		return where + chain[len(chain)-1] + " needs a package that a plugin cannot have: "
	}
	return ""
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

// owner returns the name of the package that installed a file. The file's path is relative to the folder.
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

// tidy removes files that differ between machines or are useless in a plugin: programs, compiled modules, and records
// of how and when packages were installed.
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
