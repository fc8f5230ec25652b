package plugin

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/assemblyscript"
	"github.com/quern-project/quern/sdk/c"
	"github.com/quern-project/quern/sdk/javascript"
	"github.com/quern-project/quern/sdk/python"
	"github.com/quern-project/quern/sdk/rust"
)

// templates has the files of a new plugin: those for every language in the folder plugin, the others in the folder of
// their language. NAME in a file name stands for the plugin's name. LICENSE is the license of this module.
//
//go:embed all:templates
var templates embed.FS

const templateSuffix = ".tmpl"

// pluginName matches names that a queue, files and a Go module can have.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// deviceName matches names that Windows reserves for devices, with any suffix. No file on Windows and no Go module can
// have one of these names.
var deviceName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?$`)

func newPluginNew(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make the folder NAME with a first handler: code, manifest, tests, README",
		Long: "Makes the folder NAME with the source of a handler, its manifest, tests and a README with the commands to build,\n" +
			"test and run it. The folder includes the SDK, or its types for editors:\n" +
			"nothing has to be downloaded.",
		Args: cli.Arguments(1, 1),
	}
	language, words := "go", []string(nil)
	for _, l := range languages {
		words = append(words, l.Language)
	}
	short := map[string]string{"py": "python", "js": "javascript", "ts": "typescript"}
	option.Choice(cmd.Flags(), &language, "lang",
		"go, c, python (py), javascript (js), typescript (ts), rust or assemblyscript",
		append(words, slices.Sorted(maps.Keys(short))...)...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		language := cmp.Or(short[language], language)
		if err := makePlugin(cmd, args[0], language); err != nil {
			return err
		}
		noteNext(cmd, env, args[0], language)
		return nil
	}
	return cmd
}

func makePlugin(cmd *cobra.Command, dir, language string) error {
	name := filepath.Base(dir)
	if !pluginName.MatchString(name) {
		return cli.Usagef("plugin %q: it names a queue, files and a Go module: use 1 to 128 letters and digits, and ., _ or - between them", name)
	}
	if deviceName.MatchString(name) {
		return cli.Usagef("plugin %q: Windows keeps the name for a device, so neither files there nor a Go module can have it: use another one, such as my-%s", name, name)
	}
	if s, err := build.Read(filepath.Dir(dir)); err == nil && s.Manifest != "" {
		cli.Note(cmd, "%s comes into the folder of the plugin %s: if it is to stand beside it, remove it and run this one folder up",
			dir, s.Name)
	}
	files, err := pluginFiles(name, language)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return cli.Refusedf("%s exists already: choose another name, or remove it", dir)
		}
		return fmt.Errorf("make plugin: %w", err)
	}
	var own strings.Builder // the author's files, printed after all are written: a closed stdout ends the process
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, files[name], 0o644)
		}
		if err != nil {
			return fmt.Errorf("make plugin: %w", err)
		}
		if !slices.ContainsFunc([]string{sdkFolder, typesFolder, installedFolder}, func(folder string) bool {
			return strings.HasPrefix(name, folder)
		}) {
			fmt.Fprintln(&own, file)
		}
	}
	_, err = io.WriteString(cmd.OutOrStdout(), own.String())
	return err
}

// noteNext tells what to do with a new plugin.
func noteNext(cmd *cobra.Command, env cli.Environment, dir, language string) {
	program := "quern"
	if env.Get("npm_execpath") != "" { // npx has started it
		program = "npx quern"
	}
	if language == "go" {
		noteModule(cmd, dir)
	}
	cli.Note(cmd, "next: cd %s && %s dev", cli.ShellWord(dir), program)
	tests := filepath.Base(dir) + ".yaml"
	for _, l := range languages {
		if l.Language == language && l.TestFile != "" {
			tests += " and " + l.TestFile
		}
	}
	cli.Note(cmd, "its tests are in %s: change them with the handler", tests)
}

// noteModule tells that a new plugin in Go does not belong to the module or the workspace of a folder above it.
func noteModule(cmd *cobra.Command, dir string) {
	parent, err := filepath.Abs(filepath.Dir(dir))
	for ; err == nil; parent = filepath.Dir(parent) {
		if _, err := os.Stat(filepath.Join(parent, "go.work")); err == nil {
			cli.Note(cmd, "%s is a module that the workspace in %s does not know: go work use %s", dir, parent,
				cli.ShellWord(dir))
			return
		}
		if _, err := os.Stat(filepath.Join(parent, "go.mod")); err == nil {
			cli.Note(cmd, "%s is a module of its own, no part of that in %s: to import that one's packages see "+
				"`quern help go`, \"In a module you have\"", dir, parent)
			return
		}
		if parent == filepath.Dir(parent) {
			return
		}
	}
}

// blanks holds the values that are filled into templates.
type blanks struct {
	Name, Language             string
	Title, File, Needs, Tests  string // used in the README
	TestFile                   string // the file of the tests that need no host, "" if there is none
	Module, Version, GoVersion string // used in go.mod
	NPM                        string // used in package.json: see npmVersion
}

const needsEngine = ", with the engine that `pip install quern`, `npm install quern` and the release archives bring (in a checkout of Quern " +
	"`make engines` builds it, in about ten minutes)"

// languages lists the languages of new plugins in the order of --lang. The blanks that depend on the plugin are empty.
var languages = []blanks{
	{
		Language: "go", Title: "Go", File: "main.go", Needs: ", with Go " + SDKGoVersion + " or later",
		TestFile: "main_test.go",
		Tests:    " (`go test` runs those of `main_test.go`, which call `greet` and need no host)",
	},
	{
		Language: "c", Title: "C", File: "NAME.c",
		Needs: ", with a clang for WebAssembly (on Debian `apt-get install clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32`)",
	},
	{
		Language: "python", Title: "Python", File: "handler.py",
		Needs:    needsEngine + "; only packages in `requirements.txt` take a Python with pip",
		TestFile: "test_handler.py",
		Tests:    " (those of `test_handler.py`, which need no host, are run by `pytest`)",
	},
	{
		Language: "javascript", Title: "JavaScript", File: "handler.js", Needs: needsEngine,
		TestFile: "handler.test.js",
		Tests:    " (those of `handler.test.js`, which need no host, are run by `npm test`)",
	},
	{
		Language: "typescript", Title: "TypeScript", File: "handler.ts",
		Needs:    needsEngine + "; types are checked by `tsc --noEmit`, which `npm install` brings and `quern dev` runs",
		TestFile: "handler.test.ts",
		Tests:    " (those of `handler.test.ts`, which need no host, are run by `npm install` and `npm test`)",
	},
	{
		Language: "rust", Title: "Rust", File: "src/lib.rs",
		TestFile: "src/lib.rs",
		Tests:    " (those of `src/lib.rs`, which need no host, are run by `cargo test`)",
		Needs:    ", with Rust for WebAssembly (`rustup target add wasm32-unknown-unknown`, on Debian `apt-get install cargo libstd-rust-dev-wasm32 lld`)",
	},
	{
		Language: "assemblyscript", Title: "AssemblyScript", File: "handler.ts",
		Needs: ", with the compiler that `npm install` brings",
	},
}

// fill returns the blanks of a language, completed for the plugin with that name.
func (b blanks) fill(name string) blanks {
	version, _ := cli.BuildVersion()
	version, _, _ = strings.Cut(version, "+") // without the mark of a changed checkout
	if !strings.HasPrefix(version, "v") {
		version = "v0.0.0"
	}
	b.Name, b.File, b.Module, b.Version, b.GoVersion = name, strings.ReplaceAll(b.File, "NAME",
		name), SDKModule, version, SDKGoVersion
	if program, err := os.Executable(); err == nil {
		b.NPM = npmVersion(program)
	}
	return b
}

// npmVersion returns the version of the npm package that has brought this program; "" if npm has not. Then package.json
// names no package quern: the registry may not have one of this version.
func npmVersion(program string) string {
	program, err := filepath.EvalSymlinks(program)
	folder := filepath.Dir(program) // node_modules/@quern/PLATFORM
	if err != nil || filepath.Base(filepath.Dir(folder)) != "@quern" {
		return ""
	}
	var about struct{ Version string }
	text, err := os.ReadFile(filepath.Join(folder, "package.json"))
	if err != nil || json.Unmarshal(text, &about) != nil {
		return ""
	}
	return about.Version
}

// pluginFiles returns the files of a new plugin. The keys are paths in its folder, with slashes. Actions in the
// templates stand between [[ and ]], which the templates use for nothing else.
func pluginFiles(name, language string) (map[string][]byte, error) {
	files := map[string][]byte{"quern.schema.json": manifest.Schema()}
	licensed := "" // folder of an SDK that is copied in full, with its license
	var err error
	switch language {
	case "go":
		licensed, err = sdkFolder, addFiles(files, sdk.Source, ".", sdkFolder+"sdk/")
		files[sdkFolder+"go.mod"] = fmt.Appendf(nil, "module %s\n\ngo %s\n", SDKModule, SDKGoVersion)
	case "c":
		files["quern.h"] = c.Header
	case "python":
		err = addFiles(files, python.Source, "package/src", typesFolder)
	case "assemblyscript":
		licensed = sdkFolder + "@quern/assemblyscript/"
		err = addFiles(files, assemblyscript.Source, ".", licensed)
	case "rust":
		licensed, err = sdkFolder, addFiles(files, rust.Source, ".", sdkFolder)
	default:
		err = errors.Join(addFiles(files, javascript.Source, ".", typesFolder),
			addFiles(files, javascript.Source, ".", installedFolder+"@quern/sdk/"))
	}
	if err == nil && licensed != "" {
		files[licensed+"LICENSE"], err = templates.ReadFile("templates/LICENSE")
	}
	if err != nil {
		return nil, err
	}
	filled := languages[slices.IndexFunc(languages, func(b blanks) bool { return b.Language == language })].fill(name)
	for _, folder := range []string{"templates/plugin", "templates/" + language} {
		err := fs.WalkDir(templates, folder, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			to := strings.TrimSuffix(strings.TrimPrefix(file, folder+"/"), templateSuffix)
			files[strings.ReplaceAll(to, "NAME", name)], err = filledTemplate(file, filled)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// filledTemplate returns the text of a template's file.
func filledTemplate(file string, b blanks) ([]byte, error) {
	parsed, err := template.New(path.Base(file)).Delims("[[", "]]").ParseFS(templates, file)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, b)
	return text.Bytes(), err
}

// addFiles adds the files below folder in tree to files, except tests. A file's key is prefix and its path within
// folder.
func addFiles(files map[string][]byte, tree fs.ReadFileFS, folder, prefix string) error {
	return fs.WalkDir(tree, folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(file, "_test.go") {
			return err
		}
		files[prefix+strings.TrimPrefix(file, folder+"/")], err = tree.ReadFile(file)
		return err
	})
}

// typesFolder is the folder of a new plugin with the SDK's types, for editors. Builds ignore it because its name begins
// with a dot.
const typesFolder = ".quern/"

// installedFolder is where npm puts packages. It has a copy of typesFolder for tests, which package.json names: so they
// run before `npm install`, which replaces the copy by a link.
const installedFolder = "node_modules/"

// SDKModule is the path of the Go module that contains the SDK.
const SDKModule = "github.com/quern-project/quern"

// sdkFolder is the folder of a new plugin with a copy of the SDK, to which go.mod or Cargo.toml refers. A vendored Go
// module would work only until the author adds a dependency: then Go asks for the version in go.mod, which may not be
// published.
const sdkFolder = "quern/"

// SDKGoVersion is the oldest Go that builds the SDK: the version in this module's go.mod.
const SDKGoVersion = "1.26.0"
