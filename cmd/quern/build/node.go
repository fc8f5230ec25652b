package build

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/quern-project/quern/plugins"
)

// What Node has and a plugin does not: modules, and packages that need them. names.go has the global names.

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
	switch instead := told(name, nodeModules); {
	case path == testingPath:
		m.Text = fmt.Sprintf("import of %q: it is for tests in Node: import it in a test, such as handler.test.js", path)
	case instead != "":
		m.Text = fmt.Sprintf("import of %q: a plugin has no modules of Node: %s", path, instead)
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

var nodeModules = []obstacle{
	{names: "fs", instead: `to read, import the file itself: import text from "./a.txt"; to write, return the data, or keep it in kv of @quern/sdk`},
	{names: "http https http2 net tls dgram dns", instead: "use fetch, with capabilities.http in the manifest"},
	{names: "child_process cluster worker_threads", instead: "enqueue a task for each part (enqueue of @quern/sdk)"},
	{names: "crypto", instead: "use the global crypto: getRandomValues, randomUUID, subtle.digest"},
	{names: "buffer", instead: "use Uint8Array and TextEncoder, or run npm install buffer"},
	{names: "perf_hooks", instead: "use performance.now"},
	{names: "timers", instead: "use setTimeout"},
	{names: "zlib", instead: "run npm install pako"},
	{names: "path", instead: "run npm install path-browserify, and import that"},
	{names: "stream", instead: "run npm install readable-stream, and import that"},
	{names: "assert events punycode querystring string_decoder url util", instead: "run npm install for the package of that name"},
	{names: "async_hooks console constants diagnostics_channel domain inspector module os process readline repl sqlite test trace_events tty v8 vm wasi", instead: "leave out what needs it"},
}

// npmModules has the modules of Node that npm has as well, by what installs them.
var npmModules = map[string]string{
	"assert": "assert", "buffer": "buffer", "events": "events", "path": "path@npm:path-browserify", "punycode": "punycode",
	"querystring": "querystring", "stream": "stream@npm:readable-stream", "string_decoder": "string_decoder", "url": "url",
	"util": "util",
}

const (
	noSockets = "a plugin has no sockets"
	noNative  = "a plugin runs no native code"
)

// nodePackages has packages that cannot run in a plugin.
var nodePackages = []obstacle{
	{names: "ioredis redis @redis/client bullmq bull bee-queue", why: noSockets, instead: "use kv, enqueue and publish of @quern/sdk"},
	{names: "pg pg-pool pg-promise postgres", why: noSockets, instead: "use database of @quern/sdk, with capabilities.sql in the manifest"},
	{
		names: "mysql mysql2 mariadb mssql tedious oracledb mongodb mongoose cassandra-driver neo4j-driver " +
			"knex sequelize typeorm", why: noSockets, instead: "reach the database by an HTTP API, with fetch",
	},
	{names: "kafkajs amqplib mqtt nats ws socket.io socket.io-client @grpc/grpc-js", why: noSockets, instead: "use publish of @quern/sdk, or an HTTP API with fetch"},
	{names: "nodemailer", why: noSockets, instead: "use the HTTP API of a mail service, with fetch"},
	{names: "got undici request superagent node-fetch", instead: "use the global fetch, with capabilities.http in the manifest"},
	{names: "sharp canvas @napi-rs/canvas", why: noNative, instead: "write this handler in Go or Rust, or use an HTTP API with fetch"},
	{names: "bcrypt", why: noNative, instead: "use bcryptjs"},
	{names: "argon2", why: noNative, instead: "use @noble/hashes"},
	{names: "better-sqlite3 sqlite3", why: noNative, instead: "use kv of @quern/sdk"},
	{names: "puppeteer puppeteer-core playwright playwright-core", instead: "a plugin starts no browser: use the HTTP API of one, with fetch"},
	{names: "jsonwebtoken", instead: "it needs Node's crypto: use jose, for HS256, HS384 and HS512"},
	{names: "dotenv", instead: "use config of @quern/sdk, with config in the manifest"},
	{names: "winston bunyan log4js", instead: "use console, or log of @quern/sdk"},
	{names: "express fastify koa @hapi/hapi @nestjs/core", instead: "a plugin serves tasks, not HTTP requests: export a handler"},
	{names: "fs-extra chokidar execa shelljs", instead: "a plugin has no files but those that it imports, and starts no programs"},
}

// testingPath is the module of @quern/sdk for tests.
const testingPath = "@quern/sdk/testing"

// unusable refuses imports of nodePackages in the author's files, so that esbuild does not list all that is missing in
// such a package.
var unusable = api.Plugin{Name: "unusable", Setup: func(build api.PluginBuild) {
	build.OnResolve(api.OnResolveOptions{Filter: `^[@a-z]`}, func(args api.OnResolveArgs) (result api.OnResolveResult, err error) {
		if args.Kind == api.ResolveEntryPoint || packageOf(args.Importer) != "" {
			return result, nil
		}
		instead := told(packageOf("node_modules/"+args.Path), nodePackages)
		switch {
		case args.Path == testingPath:
			result.Errors = []api.Message{{Text: fmt.Sprintf("Could not resolve %q", args.Path)}}
		case instead != "" && args.Kind != api.ResolveJSRequireCall: // which may be optional
			result.Errors = []api.Message{{Text: fmt.Sprintf("import of %q: %s", args.Path, instead)}}
		}
		return result, nil
	})
}}

// packageOf returns the name of the package that has a file, "" for the author's own files.
func packageOf(file string) string {
	parts := strings.Split(filepath.ToSlash(file), "/")
	for i := len(parts) - 2; i >= 0; i-- {
		if parts[i] != "node_modules" {
			continue
		}
		if strings.HasPrefix(parts[i+1], "@") && i+2 < len(parts) {
			return parts[i+1] + "/" + parts[i+2]
		}
		return parts[i+1]
	}
	return ""
}

// onePerPackage replaces the messages about modules of Node that the files of a package import by one for the package.
func onePerPackage(messages []api.Message) (kept []api.Message) {
	type need struct {
		at      int // in kept
		modules map[string]bool
	}
	needs := map[string]need{}
	for _, m := range messages {
		found, name := unresolved.FindStringSubmatch(m.Text), ""
		if m.Location != nil {
			name = packageOf(m.Location.File)
		}
		if name == "" || found == nil || told(found[2], nodeModules) == "" && !strings.HasPrefix(found[1], "node:") {
			kept = append(kept, m)
			continue
		}
		if _, ok := needs[name]; !ok {
			needs[name] = need{len(kept), map[string]bool{}}
			place := *m.Location
			place.LineText = "" // it is not the author's
			kept = append(kept, api.Message{Location: &place})
		}
		needs[name].modules[found[2]] = true
	}
	for name, n := range needs {
		kept[n.at].Text = fmt.Sprintf("the package %s needs modules of Node (%s), which a plugin does not have: %s", name,
			strings.Join(slices.Sorted(maps.Keys(n.modules)), ", "),
			cmp.Or(told(name, nodePackages), installing(n.modules), "use one that runs in browsers"))
	}
	return kept
}

// installing returns how to install modules of Node that npm has as well, "" if it does not have all.
func installing(modules map[string]bool) string {
	command := "run npm install"
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		install, ok := npmModules[module]
		if !ok {
			return ""
		}
		command += " " + install
	}
	return command
}

// finding is a message about a position in a text.
type finding struct {
	at   int
	text string
}

var loaders = map[string]api.Loader{
	".js": api.LoaderJS, ".mjs": api.LoaderJS, ".cjs": api.LoaderJS, ".jsx": api.LoaderJSX,
	".ts": api.LoaderTS, ".mts": api.LoaderTS, ".cts": api.LoaderTS, ".tsx": api.LoaderTSX,
}

var usedLocale = regexp.MustCompile(`//[^\n]*|\.(toLocale(?:Date|Time|)String)\(\s*\[?\s*["'\x60]([\w-]+)["'\x60]|` +
	`\.(localeCompare)\([^()\n]*,\s*\[?\s*["'\x60]([\w-]+)["'\x60]`)

// sameLocale matches locales for which the engine gives the right result: sdk/javascript/engine/locale.js has the
// same list.
var sameLocale = regexp.MustCompile(`^en(-US)?$|^localeCompare (de|fr|it|nl|pt)\b`)

// foreignLocale finds the first call with a locale that the engine does not have.
func foreignLocale(text string) []finding {
	for _, place := range usedLocale.FindAllStringSubmatchIndex(text, -1) {
		if place[2] < 0 {
			place = append(place[:2], place[6:]...)
		}
		if place[2] < 0 { // a comment
			continue
		}
		name, locale := text[place[2]:place[3]], text[place[4]:place[5]]
		if !sameLocale.MatchString(locale) && !sameLocale.MatchString(name+" "+locale) {
			return []finding{{place[2], fmt.Sprintf("%s: the locale %q has no effect, because a plugin has no Intl: use a package such as dayjs, "+
				"or format it yourself", name, locale)}}
		}
	}
	return nil
}

var usedEnv = regexp.MustCompile(`//[^\n]*|\bprocess\.env\.(\w+)`)

// missingEnv finds variables that the author's code reads and the manifest does not grant.
func missingEnv(text string, s *Source) (found []finding) {
	m, err := plugins.LoadManifest(s.Manifest) // without a manifest it grants none
	if err != nil && s.Manifest != "" {
		return nil // the build tells of it
	}
	for _, place := range usedEnv.FindAllStringSubmatchIndex(text, -1) {
		if place[2] < 0 { // a comment
			continue
		}
		name := text[place[2]:place[3]]
		if _, ok := m.Capabilities.Env[name]; ok || name == "NODE_ENV" {
			continue
		}
		found = append(found, finding{place[0], fmt.Sprintf("process.env.%s is undefined: add capabilities: {env: {%s: ...}} to the manifest, "+
			"or use config or secrets of @quern/sdk", name, name)})
	}
	return found
}
