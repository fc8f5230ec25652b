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

// buildJavaScript bundles the handler's module with everything that it imports, and adds the bundle and its source map
// to the engine.
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
		Format: api.FormatESModule, Target: api.ES2023, Platform: api.PlatformNeutral,
		MainFields: []string{"module", "main"}, Conditions: []string{"module", "browser"}, External: []string{"@quern/sdk"},
		Define:           map[string]string{"process.env.NODE_ENV": `"production"`, "global": "globalThis"},
		MinifyWhitespace: true, MinifySyntax: true, // but keep names, for stack traces
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude,
		Plugins:  []api.Plugin{withoutScheme, inUTF8},
		LogLevel: api.LogLevelSilent,
	})
	installs := strings.Contains(readText(filepath.Join(dir, "package.json")), `"dependencies"`)
	for _, message := range result.Warnings {
		say(b.config.Stderr, "warning", message)
	}
	for _, message := range result.Errors {
		say(b.config.Stderr, "error", remedied(message, installs))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(result.Errors) > 0 {
		return because(Failed, "esbuild could not build %s: its messages are above", s.Name)
	}
	files := map[string][]byte{}
	for _, file := range result.OutputFiles {
		name, err := filepath.Rel(dir, file.Path)
		if err != nil {
			return err
		}
		files["/app/"+filepath.ToSlash(name)] = file.Contents
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

// inUTF8 refuses source files in encodings other than UTF-8. esbuild would replace their non-ASCII letters.
var inUTF8 = api.Plugin{Name: "utf8", Setup: func(build api.PluginBuild) {
	build.OnLoad(api.OnLoadOptions{Filter: `(\.([mc]?[jt]s|[jt]sx|json|css|txt)|/[^./]+)$`, Namespace: "file"},
		func(args api.OnLoadArgs) (api.OnLoadResult, error) {
			text := readText(args.Path) // "" if unreadable: esbuild reports that
			for i, size := 0, 0; i < len(text) && args.With["type"] != "bytes"; i += size {
				var letter rune
				if letter, size = utf8.DecodeRuneInString(text[i:]); letter != utf8.RuneError || size > 1 {
					continue
				}
				name, err := filepath.Rel(build.InitialOptions.AbsWorkingDir, args.Path)
				return api.OnLoadResult{Errors: []api.Message{{
					Text: fmt.Sprintf("byte 0x%02x is not UTF-8: save the file as UTF-8", text[i]),
					Location: &api.Location{
						File: name, Line: 1 + strings.Count(text[:i], "\n"), Column: i - strings.LastIndexByte(text[:i], '\n') - 1,
					},
				}}}, err
			}
			return api.OnLoadResult{}, nil // esbuild loads the file itself
		})
}}

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

var unresolved = regexp.MustCompile(`^Could not resolve "((?:node:)?(@[^"/]+/[^"/]+|[^"/]*)[^"]*)"$`)

var unloaded = regexp.MustCompile(`^No loader is configured for `)

// remedied rewrites esbuild's message about an import that cannot be resolved or loaded. The new message says what to
// do in a plugin, where esbuild suggests its own options. installs is true if package.json lists dependencies.
func remedied(m api.Message, installs bool) api.Message {
	if unloaded.MatchString(m.Text) {
		m.Text, m.Notes = m.Text+`: import a text by adding with { type: "text" } to the import, other data by with { type: "bytes" }`, nil
	}
	found := unresolved.FindStringSubmatch(m.Text)
	if found == nil {
		return m
	}
	path, name := found[1], found[2]
	switch i := slices.IndexFunc(nodeModules, func(n nodeModule) bool {
		return slices.Contains(strings.Fields(n.names),
			name)
	}); {
	case i >= 0:
		m.Text = fmt.Sprintf("import of %q: a plugin has no modules of Node: %s", path, nodeModules[i].instead)
	case strings.HasPrefix(path, "node:"):
		m.Text = fmt.Sprintf("import of %q: a plugin has no modules of Node", path)
	case strings.HasPrefix(path, ".") || strings.HasPrefix(path, "/"):
		m.Text = fmt.Sprintf("import of %q: there is no such file", path)
	case installs:
		m.Text = fmt.Sprintf("import of %q: the package is not installed: run npm install, or npm install %s if package.json does not list it", path, name)
	default:
		m.Text = fmt.Sprintf("import of %q: the package is not installed: run npm install %s", path, name)
	}
	m.Notes = nil
	return m
}

// nodeModule says what to use instead of some modules of Node. names lists these modules, separated by spaces.
type nodeModule struct{ names, instead string }

var nodeModules = []nodeModule{
	{"fs", `import the file itself: import text from "./a.txt"`},
	{"http https http2 net tls dgram dns", "use fetch, with capabilities.http in the manifest"},
	{"child_process cluster worker_threads", "enqueue a task for each part (enqueue of @quern/sdk)"},
	{"crypto", "use the global crypto: getRandomValues, randomUUID, subtle.digest"},
	{"buffer", "use Uint8Array and TextEncoder, or run npm install buffer"},
	{"perf_hooks", "use performance.now"},
	{"timers", "use setTimeout"},
	{"zlib", "run npm install pako"},
	{"path", "run npm install path-browserify, and import that"},
	{"stream", "run npm install readable-stream, and import that"},
	{"assert events punycode querystring string_decoder url util", "run npm install for the package of that name"},
	{"async_hooks console constants diagnostics_channel domain inspector module os process readline repl sqlite test trace_events tty v8 vm wasi", "leave out what needs it"},
}
