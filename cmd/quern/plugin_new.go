package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
)

// templates are the files of a new plugin, a folder a language. The name of a file may hold NAME.
//
//go:embed all:templates
var templates embed.FS

// pluginName is what the templates can do with, of the names that a queue may have.
var pluginName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

func newPluginNew() *cobra.Command {
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Make the folder NAME with a plugin to begin with: code, manifest, README",
		Args: arguments(1, 1),
	}
	language := newChoice("go", "c")
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
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return refusedf("%s exists already: choose another name, or remove it", dir)
		}
		return fmt.Errorf("make plugin: %w", err)
	}
	return fs.WalkDir(templates, "templates/"+language, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		source, err := templates.ReadFile(path)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, strings.TrimSuffix(strings.ReplaceAll(entry.Name(), "NAME", name), ".tmpl"))
		if err := writeTemplate(file, string(source), name); err != nil {
			return fmt.Errorf("make plugin: %w", err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
		return err
	})
}

// writeTemplate fills in a template whose marks are [[ and ]], which neither Go nor C nor YAML uses.
func writeTemplate(file, source, name string) error {
	parsed, err := template.New(filepath.Base(file)).Delims("[[", "]]").Parse(source)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(parsed.Execute(out, struct{ Name string }{name}), out.Close())
}
