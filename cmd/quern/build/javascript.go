package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"

	jssdk "github.com/quern-project/quern/sdk/javascript"
)

// javascript builds handlers in JavaScript and TypeScript.
var javascript = &Language{
	source: func(names []string) []string {
		files := named("handler.ts", "handler.tsx", "handler.mjs", "handler.js")(names)
		if len(assemblyscript.source(names)) > 0 { // then handler.ts is AssemblyScript
			files = slices.DeleteFunc(files, func(name string) bool { return name == "handler.ts" })
		}
		return files
	},
	above: []string{"node_modules", "package.json", "tsconfig.json", ".pnp.cjs", ".pnp.js", ".pnp.data.json"},
	test:  javaScriptTest.MatchString,
	build: buildJavaScript,
}

// javaScriptTest matches files that node --test and vitest run, and files in folders of tests.
var javaScriptTest = regexp.MustCompile(`\.(test|spec)\.[cm]?[jt]sx?$|(^|/)(test|tests|__tests__)/`)

// buildJavaScript bundles the handler's module with everything that it imports, and adds the bundle and the positions
// of its source map to the engine.
func buildJavaScript(ctx context.Context, b *Builder, s *Source, out string) error {
	engine, err := b.engine("javascript")
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{
		EntryPoints: s.Files, AbsWorkingDir: dir, Outfile: filepath.Join(dir, "handler.js"), Bundle: true,
		Format: api.FormatESModule, Target: api.ES2023, Platform: api.PlatformBrowser,
		MainFields: []string{"browser", "module", "main"}, Conditions: []string{"module", "browser"}, External: []string{"@quern/sdk"},
		Define: map[string]string{
			"process.env.NODE_ENV": `"production"`, "process.env": "import.meta.env", "global": "globalThis",
		},
		MinifyWhitespace: true, MinifySyntax: true, // but keep names, for stack traces
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude,
		Plugins:  []api.Plugin{unusable, withoutScheme, sources(s)},
		LogLevel: api.LogLevelSilent,
	})
	installs := strings.Contains(readText(filepath.Join(dir, "package.json")), `"dependencies"`)
	for _, message := range result.Warnings {
		say(b.config.Stderr, "warning", message)
	}
	for _, message := range onePerPackage(result.Errors) {
		say(b.config.Stderr, "error", remedied(message, installs))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(result.Errors) > 0 {
		return because(Failed, "esbuild could not build %s: "+above, s.Name)
	}
	files := map[string][]byte{}
	for _, file := range result.OutputFiles {
		name, contents := "/app/handler.js", file.Contents
		if strings.HasSuffix(file.Path, ".map") {
			name = jssdk.PositionsFile
			if contents, err = jssdk.Positions(contents); err != nil {
				return fmt.Errorf("build %s: %w", s.Name, err)
			}
		}
		files[name] = contents
	}
	return publish(s, engine, files, out)
}

// readText returns the text of a file, "" if it cannot be read.
func readText(file string) string {
	text, _ := os.ReadFile(file)
	return string(text)
}

// withoutScheme resolves node:events as events, because npm may have a package of that name.
var withoutScheme = api.Plugin{Name: "node", Setup: func(build api.PluginBuild) {
	build.OnResolve(api.OnResolveOptions{Filter: "^node:"}, func(args api.OnResolveArgs) (api.OnResolveResult, error) {
		found := build.Resolve(strings.TrimPrefix(args.Path, "node:"),
			api.ResolveOptions{Importer: args.Importer, ResolveDir: args.ResolveDir, Kind: args.Kind})
		if len(found.Errors) > 0 {
			return api.OnResolveResult{}, nil // esbuild reports the unresolved import
		}
		return api.OnResolveResult{Path: found.Path}, nil
	})
}}

// sources refuses source files in encodings other than UTF-8, because esbuild would replace their non-ASCII letters. In
// the author's own files it also refuses names that only Node has.
func sources(s *Source) api.Plugin {
	load := func(dir string, args api.OnLoadArgs) (result api.OnLoadResult, err error) {
		text := readText(args.Path) // "" if unreadable: esbuild reports that
		name, err := filepath.Rel(dir, args.Path)
		at := func(i int) *api.Location {
			line := strings.LastIndexByte(text[:i], '\n') + 1
			return &api.Location{File: name, Line: 1 + strings.Count(text[:i], "\n"), Column: i - line}
		}
		if packageOf(name) == "" && javaScriptTest.MatchString(filepath.ToSlash(name)) {
			message := fmt.Sprintf("%s is a test, which is not in a plugin: move what the handler imports to another folder", name)
			result.Errors = []api.Message{{Text: message}}
			return result, err
		}
		if i := badByte(text); i >= 0 && args.With["type"] != "bytes" {
			message := fmt.Sprintf("byte 0x%02x is not UTF-8: save the file as UTF-8", text[i])
			result.Errors = []api.Message{{Text: message, Location: at(i)}}
			return result, err
		}
		if loader, ok := loaders[filepath.Ext(name)]; ok && packageOf(name) == "" {
			errors, warnings := missingNames(text, loader)
			for _, found := range errors {
				result.Errors = append(result.Errors, api.Message{Text: found.text, Location: at(found.at)})
			}
			for _, found := range slices.Concat(warnings, missingEnv(text, s), foreignLocale(text)) {
				result.Warnings = append(result.Warnings, api.Message{Text: found.text, Location: at(found.at)})
			}
		}
		return result, err // without contents: esbuild loads the file itself
	}
	return api.Plugin{Name: "sources", Setup: func(build api.PluginBuild) {
		build.OnLoad(api.OnLoadOptions{Filter: `(\.([mc]?[jt]s|[jt]sx|json|css|txt)|/[^./]+)$`, Namespace: "file"},
			func(args api.OnLoadArgs) (api.OnLoadResult, error) {
				return load(build.InitialOptions.AbsWorkingDir, args)
			})
	}}
}

// badByte returns the index of the first byte that is not UTF-8, -1 if there is none.
func badByte(text string) int {
	for i, letter := range text {
		if letter == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			return i
		}
	}
	return -1
}

// say prints a message of esbuild with its place in the source, in the form that editors recognize.
func say(w io.Writer, kind string, m api.Message) {
	place := ""
	if l := m.Location; l != nil {
		place = fmt.Sprintf("%s:%d:%d: ", l.File, l.Line, l.Column+1)
	}
	fmt.Fprintf(w, "%s%s: %s\n", place, kind, m.Text)
	if l := m.Location; l != nil && l.LineText != "" {
		fmt.Fprintf(w, "    %s\n", strings.TrimSpace(l.LineText))
	}
	for _, note := range m.Notes {
		place = ""
		if l := note.Location; l != nil {
			place = fmt.Sprintf("%s:%d:%d: ", l.File, l.Line, l.Column+1)
		}
		fmt.Fprintf(w, "    %snote: %s\n", place, note.Text)
	}
}
