package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/c"
)

// templates are the files of a new plugin: for every language in the folder plugin, for one in the folder of its name.
// NAME in a file name is the plugin's name. LICENSE is this module's.
//
//go:embed all:templates
var templates embed.FS

const templateSuffix = ".tmpl"

// pluginName matches the names of queues that the templates can use.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

func newPluginNew() *cobra.Command {
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make the folder NAME with a first handler: code, manifest, tests, README",
		Long: "Makes the folder NAME with the source of a handler, its manifest, tests and a README with the commands to build,\n" +
			"test and run it. The folder includes the SDK: nothing has to be downloaded.",
		Args: arguments(1, 1),
	}
	language := newChoice(languageGo, languageC)
	cmd.Flags().Var(language, "lang", "go or c")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return makePlugin(cmd, args[0], language.word)
	}
	return cmd
}

func makePlugin(cmd *cobra.Command, dir, language string) error {
	name := filepath.Base(dir)
	if !pluginName.MatchString(name) {
		return usagef("plugin %q: it names a queue, files and a Go module: use 1 to 128 letters and digits, and ., _ or - between them", name)
	}
	files, err := pluginFiles(name, language)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return refusedf("%s exists already: choose another name, or remove it", dir)
		}
		return fmt.Errorf("make plugin: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, files[name], 0o644)
		}
		if err != nil {
			return fmt.Errorf("make plugin: %w", err)
		}
		if strings.HasPrefix(name, sdkFolder) {
			continue // not the author's
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), file); err != nil {
			return err
		}
	}
	return nil
}

// blanks fill the templates.
type blanks struct {
	Name, Language, Source string
	Needs, Tests, Notes    string // of the README
	Version, GoVersion     string // of the SDK's module, and of Go
}

// pluginFiles are the files of a new plugin, by their paths in its folder with slashes.
func pluginFiles(name, language string) (map[string][]byte, error) {
	files := map[string][]byte{"quern.schema.json": manifest.Schema()}
	b := blanks{Name: name}
	switch language {
	case languageC:
		files["quern.h"] = c.Header
		b.Language, b.Source = "C", "`"+name+".c`"
		b.Needs = ", with a clang for WebAssembly (on Debian `apt-get install clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32`)"
		b.Notes = "\n`quern.h` is the SDK: it says what a handler can ask of its host.\n"
	default:
		if err := addSDK(files, &b); err != nil {
			return nil, err
		}
		b.Language, b.Source, b.Needs = "Go", "`main.go`", ", with Go "+b.GoVersion+" or later"
		b.Tests = " (those of `main_test.go`, which need no host, are run by `go test`)"
		b.Notes = "\n`quern` holds the SDK, so that nothing has to be downloaded; the line `replace` in `go.mod` says so. To have the published\n" +
			"module in its place:\n\n    rm -r quern\n    go mod edit -dropreplace=" + sdkModule + " -droprequire=" + sdkModule + "\n" +
			"    go get " + sdkModule + "@latest\n"
	}
	for _, folder := range []string{"templates/plugin", "templates/" + language} {
		if err := addTemplates(files, folder, b); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// addTemplates adds the templates of a folder, filled in.
func addTemplates(files map[string][]byte, folder string, b blanks) error {
	return fs.WalkDir(templates, folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		source, err := templates.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, folder+"/"), templateSuffix)
		files[strings.ReplaceAll(name, "NAME", b.Name)], err = fill(file, string(source), b)
		return err
	})
}

// fill fills in a template. Its marks are [[ and ]], which Go and C do not use.
func fill(name, source string, b blanks) ([]byte, error) {
	parsed, err := template.New(name).Delims("[[", "]]").Parse(source)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, b)
	return text.Bytes(), err
}

// sdkModule is the SDK's Go module.
const sdkModule = "github.com/quern-project/quern"

// sdkFolder is that module's folder in a new plugin, which go.mod names. A vendored one would work until the first
// dependency: then Go asks for the version in go.mod, which may not be published.
const sdkFolder = "quern/"

// addSDK adds the SDK for Go as a module of its own.
func addSDK(files map[string][]byte, b *blanks) error {
	b.Version, b.GoVersion = sdkVersion(), sdkGoVersion
	err := fs.WalkDir(sdk.Source, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(file, "_test.go") {
			return err
		}
		files[sdkFolder+"sdk/"+file], err = sdk.Source.ReadFile(file)
		return err
	})
	if err != nil {
		return err
	}
	files[sdkFolder+"go.mod"] = fmt.Appendf(nil, "module %s\n\ngo %s\n", sdkModule, sdkGoVersion)
	files[sdkFolder+"LICENSE"], err = templates.ReadFile("templates/LICENSE")
	return err
}

// sdkGoVersion is the oldest Go that builds the SDK: that of this module.
const sdkGoVersion = "1.26.0"

// sdkVersion is the version of this program for a go.mod: without the mark of a changed checkout, and v0.0.0 if it has
// none.
func sdkVersion() string {
	version, _ := buildVersion()
	version, _, _ = strings.Cut(version, "+")
	if !strings.HasPrefix(version, "v") {
		return "v0.0.0"
	}
	return version
}
