package main

import (
	"bytes"
	"embed"
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
	language := languageGo
	newChoice(cmd.Flags(), &language, "lang", "go or c", languageGo, languageC)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return makePlugin(cmd, args[0], language) }
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

// pluginFiles are the files of a new plugin, by their paths in its folder with slashes. The templates' marks are [[ and ]],
// which Go and C do not use.
func pluginFiles(name, language string) (map[string][]byte, error) {
	files := map[string][]byte{"quern.schema.json": manifest.Schema()}
	if language == languageC {
		files["quern.h"] = c.Header
	} else if err := addSDK(files); err != nil {
		return nil, err
	}
	version, _ := buildVersion()
	version, _, _ = strings.Cut(version, "+") // the mark of a changed checkout
	if !strings.HasPrefix(version, "v") {
		version = "v0.0.0"
	}
	blanks := struct{ Name, Language, Module, Version, GoVersion string }{name, language, sdkModule, version, sdkGoVersion}
	for _, folder := range []string{"templates/plugin", "templates/" + language} {
		err := fs.WalkDir(templates, folder, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			parsed, err := template.New(path.Base(file)).Delims("[[", "]]").ParseFS(templates, file)
			if err != nil {
				return err
			}
			var text bytes.Buffer
			err = parsed.Execute(&text, blanks)
			to := strings.TrimSuffix(strings.TrimPrefix(file, folder+"/"), templateSuffix)
			files[strings.ReplaceAll(to, "NAME", name)] = text.Bytes()
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// sdkModule is the SDK's Go module.
const sdkModule = "github.com/quern-project/quern"

// sdkFolder is that module's folder in a new plugin, which go.mod names. A vendored one would work until the first
// dependency: then Go asks for the version in go.mod, which may not be published.
const sdkFolder = "quern/"

// addSDK adds the SDK for Go as a module of its own.
func addSDK(files map[string][]byte) error {
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
