package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/plugin"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// TestManual does what the README, each page of the manual and the README of the SDK for Go show, as a reader would: from top to bottom, in an empty folder,
// with a Redis of the page's own. The tag of a fence says what becomes of it:
//
//	console       Bash runs the lines that begin with "$ ". The lines below are what it prints to stdout, stderr, or both:
//	              a line "..." stands for any lines, "..." in a line for any text, and IDs, times and durations for any others. A
//	              command that prints nothing here may print anything, but has to succeed. `quern serve`, `dev`, `admin` and `relay` run on until the page ends, and the lines
//	              below are awaited; so are those below `--watch` and `-f`.
//	text          Nothing: somebody else's output, or a form.
//	a language    A file, if the first line is a comment with a name that is its path. Otherwise a piece of a program, which is
//	              only checked by TestManualGo if it is Go.
//
// Addresses are replaced: 127.0.0.1:6379 is the Redis of the test, 5432 its PostgreSQL, and 9464 and 9465 are free ports. A fence without a tag is an error.
// With -update the test writes what is printed into the page.
func TestManual(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	golang := goEnvironment(t)
	for _, page := range pages(t) {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if page == "../../sdk/README.md" {
			name = "sdk"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := string(content(t, page))
			r := &reader{t: t, dir: t.TempDir(), user: newUser(t, "")}
			for engine, handler := range map[string]string{
				"python": "```[a-z]+\n# .*handler.py\n|--lang python\n", "javascript": "```[a-z]+\n// .*handler.[jt]s\n",
			} {
				if regexp.MustCompile(handler).MatchString(text) {
					interpreter(t, engine)
				}
			}
			withClients(t, r)
			if strings.Contains(text, "from raquel import") {
				r.env["PYTHONPATH"] += string(os.PathListSeparator) + raquelPackages(t)
			}
			if strings.Contains(text, "from nsj_queue_lib") {
				r.env["PYTHONPATH"] += string(os.PathListSeparator) + nsjPackages(t)
			}
			r.addresses = strings.NewReplacer("9465", freePort(t))
			if !strings.Contains(text, "$ quern dev") {
				redis := queuetest.Start(t)
				r.addresses = strings.NewReplacer("127.0.0.1:6379", redis.Addr(), "9464", freePort(t), "9465", freePort(t))
				r.env["QUERN_REDIS_URL"] = redis.URL()
			}
			if strings.Contains(text, "127.0.0.1:5432") {
				database := postgrestest.Start(t)
				r.addresses = strings.NewReplacer("127.0.0.1:5432", database.Addr())
				r.env["PATH"] = os.Getenv("PATH") + ":" + database.Programs()
			}
			if !strings.Contains(text, "9464") {
				r.env["QUERN_HTTP"] = "127.0.0.1:0"
			}
			maps.Copy(r.env, golang)
			if read := r.read(text); *update && read != text {
				write(t, page, read)
			}
			if name == "javascript" { // npm would download what the page's `npm test` takes
				r.user.shell(r.dir, withoutVitest(t, r.dir))
			}
		})
	}
}

// TestReadmeHandlers: each handler of the README passes the tests of a new plugin in its language, in the sandbox and
// without.
func TestReadmeHandlers(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	handlers := map[string]string{}
	for _, match := range fence.FindAllStringSubmatch(string(content(t, "../../README.md")), -1) {
		if name := fileName.FindStringSubmatch(match[2]); name != nil {
			handlers[filepath.Base(name[1])] = match[2]
		} else if match[1] == "go" {
			handlers["main.go"] = match[2]
		}
	}
	for language, handler := range map[string]string{"python": "handler.py", "typescript": "handler.ts", "go": "main.go"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if handlers[handler] == "" {
				t.Fatalf("the README does not show %s", handler)
			}
			if language != "go" {
				interpreter(t, map[string]string{"python": "python", "typescript": "javascript"}[language])
			}
			u, dir := newUser(t, "").asBuilt(), filepath.Join(t.TempDir(), "hello")
			u.must("plugin", "new", dir, "--lang", language)
			text := handlers[handler]
			if language == "go" { // the README shows the function alone
				whole := string(content(t, filepath.Join(dir, handler)))
				before, _, _ := strings.Cut(whole, "func greet(")
				text = before + text
			}
			write(t, filepath.Join(dir, handler), text)
			u.must("plugin", "test", dir)
			tests := "go test ./..."
			switch language {
			case "python":
				tests = cli.ShellWord(absolute(t, "../../build/venv/bin/python")) + " -m pytest -q -p no:cacheprovider"
			case "typescript":
				tests = withoutVitest(t, dir)
			}
			u.shell(dir, tests)
		})
	}
}

// pages are the files of the manual, the README of the SDK for Go, and the README.
func pages(t *testing.T) []string {
	t.Helper()
	return append(topics(t), "../../sdk/README.md", "../../README.md")
}

// topics are the files of the manual.
func topics(t *testing.T) []string {
	t.Helper()
	topics, err := filepath.Glob("manual/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

// withClients installs the clients in Python and JavaScript, as pip and npm would.
func withClients(t *testing.T, r *reader) {
	t.Helper()
	programs := t.TempDir() // build/venv/bin has another Redis, too
	python := write(t, filepath.Join(programs, "python"), "#!/bin/sh\nexec "+absolute(t, "../../build/venv/bin/python")+" \"$@\"\n")
	if err := os.Chmod(python, 0o700); err != nil {
		t.Fatal(err)
	}
	r.env["PATH"] = programs + string(os.PathListSeparator) + os.Getenv("PATH")
	r.env["PYTHONPATH"], r.env["PYTHONDONTWRITEBYTECODE"] = absolute(t, "../../sdk/python/package/src"), "1"
	modules := filepath.Join(r.dir, "node_modules", "@quern")
	if err := os.MkdirAll(modules, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(absolute(t, "../../sdk/javascript/client"), filepath.Join(modules, "client")); err != nil {
		t.Fatal(err)
	}
}

// fence is a block of a page: its tag, and its text with the last line's end.
var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// fileName is the first line of a file: a comment of nothing but its path.
var fileName = regexp.MustCompile(`^(?:#|//|--) ([\w./-]+\.[a-z]+|Dockerfile)\n`)

// reader is somebody who tries a page.
type reader struct {
	*user
	t         *testing.T
	dir       string // where the reader is
	addresses *strings.Replacer
}

// TestManualGo tests that Go in the pages is formatted.
func TestManualGo(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, block := range fence.FindAllStringSubmatch(string(content(t, page)), -1) {
			if block[1] != "go" {
				continue
			}
			if formatted, err := format.Source([]byte(block[2])); err != nil || string(formatted) != block[2] {
				t.Errorf("%s: %v\n%s", page, err, udiff.Unified("page", "gofmt", block[2], string(formatted)))
			}
		}
	}
}

// read does what a page shows, and returns it with what was printed.
func (r *reader) read(page string) string {
	return fence.ReplaceAllStringFunc(page, func(block string) string {
		match := fence.FindStringSubmatch(block)
		tag, text := match[1], match[2]
		name := fileName.FindStringSubmatch(text)
		switch {
		case tag == "":
			r.t.Errorf("a fence without a tag: see TestManual\n%s", text)
		case tag == "console":
			return "```console\n" + r.console(text) + "```"
		case name != nil:
			write(r.t, filepath.Join(r.dir, name[1]), r.addresses.Replace(text))
		case tag == "yaml":
			if _, err := manifest.Parse("page.yaml", []byte(text)); err != nil {
				r.t.Errorf("%v\n%s", err, text)
			}
		}
		return block
	})
}

// console runs the commands of a block, and returns it with what they printed.
func (r *reader) console(block string) string {
	var all strings.Builder
	for _, step := range regexp.MustCompile(`(?m)^\$ `).Split(block, -1)[1:] {
		command, shown, _ := strings.Cut(step, "\n")
		for strings.HasSuffix(command, `\`) {
			line, rest, _ := strings.Cut(shown, "\n")
			command, shown = command+"\n"+line, rest
		}
		got := r.try(command, shown)
		fmt.Fprintf(&all, "$ %s\n%s", command, got)
	}
	return all.String()
}

// endless matches commands that go on until they are stopped.
var endless = regexp.MustCompile(`^quern (serve|dev|admin|relay)( --?[^c]|$)|--watch|logs -f`)

// try runs a command, and returns what it printed: as it is shown, if that is the same.
func (r *reader) try(command, shown string) string {
	r.t.Helper()
	where := filepath.Join(r.t.TempDir(), "where")
	quern, err := binary()
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), testTimeout)
	prompt := exec.CommandContext(ctx, "bash", "-c", "set -o pipefail\ntrap 'pwd > "+where+"' EXIT\n"+r.addresses.Replace(command))
	prompt.Dir = r.dir
	prompt.Env = os.Environ()
	for name, value := range r.env {
		prompt.Env = append(prompt.Env, name+"="+value)
	}
	prompt.Env = append(prompt.Env, "PATH="+filepath.Dir(quern)+string(os.PathListSeparator)+r.env["PATH"])
	stdout, stderr := newOutput(), newOutput()
	prompt.Stdout, prompt.Stderr = stdout, stderr
	if endless.MatchString(command) {
		prompt.Args[2] = "exec " + r.addresses.Replace(command)
		prompt.Cancel = func() error { return prompt.Process.Signal(syscall.SIGTERM) }
		if err := prompt.Start(); err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() {
			cancel()
			_ = prompt.Wait() // it was stopped
			if r.t.Failed() {
				r.t.Logf("%s\n%s", command, stderr)
			}
		})
		awaited := regexp.MustCompile("(?s)(^|\n)" + expected(shown))
		eventually(r.t, command+" prints\n"+shown, func() bool { return awaited.MatchString(squeezed(stderr.String() + stdout.String())) })
		return shown
	}
	defer cancel()
	failed := prompt.Run()
	if to, err := os.ReadFile(where); err == nil {
		r.dir = strings.TrimSpace(string(to))
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatal(err)
	}
	pattern, out, remarks := regexp.MustCompile(`(?s)^`+expected(shown)+`$`), stdout.String(), stderr.String()
	seen := slices.ContainsFunc([]string{out, remarks, remarks + out}, func(text string) bool { return pattern.MatchString(squeezed(text)) })
	switch {
	case shown == "" && failed != nil, shown != "" && !seen && !*update:
		r.t.Fatalf("$ %s\n%s%s%v; it is shown with\n%s", command, remarks, out, failed, shown)
	case shown != "" && !seen && failed != nil:
		out = remarks
	case shown == "" || seen:
		return shown
	}
	return strings.TrimRight(out, "\n") + "\n"
}

// varying is what differs each time, with what stands for it.
var varying = []struct{ pattern, any string }{
	{`\S+~[0-9a-f]{8}_\d+`, "<LISTENER>"},
	{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "<ID>"},
	{`((Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d+(:?\d\d)?| [A-Z]{3,4})?`, "<TIME>"},
	{`\b\d+(\.\d+)?(ns|µs| ?ms|s|m\d+(\.\d+)?s)\b`, "<SPAN>"},
	{`\b[0-9a-f]{12,64}\b`, "<HEX>"},
	{`[ \t]+`, " "},
	{` \n`, "\n"},
}

// squeezed is printed text without what differs each time.
func squeezed(text string) string {
	for _, v := range varying {
		text = regexp.MustCompile(v.pattern).ReplaceAllLiteralString(text, v.any)
	}
	return strings.TrimRight(text, "\n") + "\n"
}

// expected is a pattern for squeezed text that is like what is shown.
func expected(shown string) string {
	pattern := regexp.QuoteMeta(squeezed(shown))
	pattern = regexp.MustCompile(`(?m)^\\\.\\\.\\\.\n`).ReplaceAllLiteralString(pattern, "(.*\n)?")
	return strings.ReplaceAll(pattern, `\.\.\.`, `[^\n]*`)
}

// goEnvironment lets Go find the published SDK without a network, and all else that this module needs; it keeps what it then
// downloads in a folder of the test.
func goEnvironment(t *testing.T) map[string]string {
	t.Helper()
	caches, err := goCaches()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"go.mod": content(t, "../../go.mod"), "LICENSE": content(t, "../../LICENSE")}
	err = filepath.WalkDir("../../sdk", func(path string, entry fs.DirEntry, err error) error {
		ours := slices.Contains([]string{".go", ".s", ".lua"}, filepath.Ext(path)) && !strings.HasSuffix(path, "_test.go")
		if err == nil && ours && !entry.IsDir() {
			files[filepath.ToSlash(strings.TrimPrefix(path, "../../"))], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	publish(t, proxy, plugin.SDKModule, files)
	return map[string]string{
		"GOPROXY": "file://" + proxy + ",file://" + caches.modules + "/cache/download", "GOSUMDB": "off",
		"GOMODCACHE": t.TempDir(), "GOFLAGS": "-modcacherw -trimpath", // as the tests are built: what is in the cache serves
	}
}

// freePort is a port that nobody listens to.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// TestManualCommands looks at each command that stands in the text of a page: quern has it, with these flags and as many arguments.
func TestManualCommands(t *testing.T) {
	t.Parallel()
	span := regexp.MustCompile("(`quern [^`]+`)|(?ms:^```.*?^```$)")
	words := regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	for _, page := range pages(t) {
		for _, match := range span.FindAllStringSubmatch(string(content(t, page)), -1) {
			if match[1] == "" {
				continue // TestManual runs it
			}
			command := strings.Trim(match[1], "`")
			typed, _, _ := strings.Cut(regexp.MustCompile(` ([<>|#]|&&).*`).ReplaceAllString(command, ""), "\n")
			var args []string
			for _, word := range words.FindAllString(typed, -1)[1:] {
				args = append(args, strings.Trim(word, `'"`))
			}
			root := newRoot(newUser(t, "").lookup)
			root.InitDefaultHelpCmd()
			root.InitDefaultCompletionCmd()
			cmd, rest, err := root.Find(args)
			if err == nil && cmd != root && cmd.Name() != "help" {
				cmd.InitDefaultHelpFlag()
				if err = cmd.ParseFlags(rest); err == nil && cmd.Flags().NArg() > 0 {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
			}
			if err == nil && cmd.Name() == "help" && len(rest) > 0 && rest[0] != strings.ToUpper(rest[0]) {
				if target, left, _ := root.Find(rest); target == root || len(left) > 0 {
					err = fmt.Errorf("there is no such topic")
				}
			}
			if err == nil && cmd == root && len(rest) > 0 {
				err = fmt.Errorf("there is no such command")
			}
			if err != nil {
				t.Errorf("%s: %s: %v", page, command, err)
			}
		}
	}
}

// TestManualTables compares tables of the manual with what the code knows.
func TestManualTables(t *testing.T) {
	t.Parallel()
	for _, table := range []struct{ page, source, pattern, row string }{
		{"errors", "../../sdk/queue/failure.go", `(?m)^\tReason\w+ +Reason = "(\w+)"`, "| `%s` | "},
		{"errors", "../../runtime/abi/errno.go", `(?m)^\terrno\w+ +errno += (-\d+)`, "| %s | E"},
		{"metrics", "../../metrics/catalogue.go", `"(quern_\w+)"`, "`%s`"},
		{"resets", "testdata/help.golden", `--reset word .*: (\w+), (\w+), (\w+), (\w+), or auto`, "| `%s` | "},
	} {
		text := string(content(t, "manual/"+table.page+".md"))
		known := regexp.MustCompile(table.pattern).FindAllStringSubmatch(string(content(t, table.source)), -1)
		if len(known) == 0 {
			t.Errorf("%s does not match %s", table.source, table.pattern)
		}
		for _, match := range known {
			for _, name := range match[1:] {
				if row := fmt.Sprintf(table.row, name); !strings.Contains(text, row) {
					t.Errorf("%s.md does not have %s", table.page, row)
				}
			}
		}
	}
}

// TestManualLabels: the table of metrics has the labels of each.
func TestManualLabels(t *testing.T) {
	t.Parallel()
	page, catalogue := string(content(t, "manual/metrics.md")), string(content(t, "../../metrics/catalogue.go"))
	families := regexp.MustCompile(`(?m)^\t\t"(quern_\w+)", \w+, "\w*", "([\w ]*)",$`).FindAllStringSubmatch(catalogue, -1)
	if all := strings.Count(catalogue, "\t\t\"quern_"); len(families) != all {
		t.Errorf("the labels of %d families of %d are read", len(families), all)
	}
	for _, family := range families {
		row := regexp.MustCompile("(?m)^\\|[^|]*`" + family[1] + "`[^|]*\\| *([^|]*?) *\\|").FindStringSubmatch(page)
		if want := strings.Join(strings.Fields(family[2]), ", "); row == nil || row[1] != want {
			t.Errorf("metrics.md has %q for %s; its labels are %q", row, family[1], want)
		}
	}
}

// TestManualKeys: the page has a row for each key of a manifest, and shows each key below it.
func TestManualKeys(t *testing.T) {
	t.Parallel()
	type keys struct {
		Properties map[string]keys `json:"properties"`
		Items      *keys           `json:"items"`
	}
	var schema keys
	if err := json.Unmarshal(manifest.Schema(), &schema); err != nil || len(schema.Properties) < 10 {
		t.Fatalf("%v: %+v", err, schema)
	}
	page := string(content(t, "manual/manifest.md"))
	for key, of := range schema.Properties {
		if !strings.Contains(page, "| `"+key+"` | ") {
			t.Errorf("manifest.md has no row for %s", key)
		}
		if of.Items != nil {
			of = *of.Items
		}
		for below := range of.Properties {
			if !regexp.MustCompile(`[ {]` + below + `: `).MatchString(page) {
				t.Errorf("manifest.md does not show %s of %s", below, key)
			}
		}
	}
}

// TestManualCommandList: the list of commands is that of the program; -update writes it.
func TestManualCommandList(t *testing.T) {
	t.Parallel()
	var list strings.Builder
	list.WriteString("| command | |\n|---|---|\n")
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		group := reflect.ValueOf(cmd.RunE).Pointer() == reflect.ValueOf(cli.NeedsCommand).Pointer()
		if cmd.Runnable() && cmd.HasParent() && !group {
			fmt.Fprintf(&list, "| `%s` | %s |\n", strings.ReplaceAll(strings.TrimSuffix(cmd.UseLine(), " [flags]"), "|", `\|`), cmd.Short)
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				add(sub)
			}
		}
	}
	add(newRoot(newUser(t, "").lookup))
	const page, begin, end = "manual/commands.md", "<!-- commands -->\n", "<!-- /commands -->"
	text := string(content(t, page))
	head, rest, ok := strings.Cut(text, begin)
	listed, tail, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no %s and %s", page, begin, end)
	}
	if diff := udiff.Unified(page, "the program", listed, list.String()); diff != "" && !*update {
		t.Errorf("%s does not list what the program has: `go test -run TestManual -update` writes it anew\n%s", page, diff)
	}
	if *update {
		write(t, page, head+begin+list.String()+end+tail)
	}
}

// TestManualLinks looks for the files and headings to which the links of all documents lead.
func TestManualLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|src="([^"]+)"`)
	unfit := regexp.MustCompile(`[^a-z0-9 _-]`)
	documents := pages(t)
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, found...)
	}
	for _, page := range documents {
		if strings.HasPrefix(page, "../../build/") {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(string(content(t, page)), -1) {
			target := match[1] + match[2]
			if strings.Contains(target, "://") {
				continue
			}
			file, heading, _ := strings.Cut(target, "#")
			path := page
			if file != "" {
				path = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %s: %v", page, target, err)
				continue
			}
			var headings []string
			if heading != "" {
				for _, line := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(content(t, path)), -1) {
					headings = append(headings, strings.ReplaceAll(unfit.ReplaceAllString(strings.ToLower(line[1]), ""), " ", "-"))
				}
				if !slices.Contains(headings, heading) {
					t.Errorf("%s: %s: there is no such heading, only %s", page, target, strings.Join(headings, ", "))
				}
			}
		}
	}
}

// TestManualFrame: each page begins with what its reader wants and a first example, has a table, and is in the list of the README.
func TestManualFrame(t *testing.T) {
	t.Parallel()
	readme := string(content(t, "../../README.md"))
	if len(readme) > 7<<10 {
		t.Errorf("the README has %d bytes, more than %d: what is looked up belongs into the manual", len(readme), 7<<10)
	}
	for _, page := range topics(t) {
		text, name := string(content(t, page)), strings.TrimSuffix(filepath.Base(page), ".md")
		if !regexp.MustCompile(`^# ` + name + `: [a-z][^\n]*[^.\n]\n\n\w`).MatchString(text) {
			t.Errorf("%s does not begin with %q and a sentence", page, "# "+name+": what the reader wants to do")
		}
		if first := strings.Index(text, "\n```"); first < 0 || first > 1100 {
			t.Errorf("%s has no example within its first 1,100 bytes: the first stands at %d", page, first)
		}
		if !strings.Contains(text, "\n| ") || !strings.Contains(text, "```") {
			t.Errorf("%s has no table, or nothing that a test runs", page)
		}
		if !strings.Contains(readme, "cmd/quern/manual/"+name+".md") {
			t.Errorf("the README does not link to %s", page)
		}
	}
}

// TestHelpTopics: a page is printed with all that it shows, and its links lead on from a terminal.
func TestHelpTopics(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	for _, page := range topics(t) {
		topic := strings.TrimSuffix(filepath.Base(page), ".md")
		printed := u.must("help", topic)
		for _, block := range fence.FindAllString(string(content(t, page)), -1) {
			if !strings.Contains(printed, block) {
				t.Errorf("help %s does not show\n%s", topic, block)
			}
		}
		text := fence.ReplaceAllString(printed, "")
		if strings.Contains(text, "](") {
			t.Errorf("help %s has links that only a browser can follow:\n%s", topic, text)
		}
		for _, link := range regexp.MustCompile("`quern help ([a-z-]+)`").FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat("manual/" + link[1] + ".md"); err != nil {
				t.Errorf("help %s: %s: %v", topic, link[0], err)
			}
		}
		for _, link := range regexp.MustCompile(`/blob/main/([^)#]+)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat("../../" + link[1]); err != nil {
				t.Errorf("help %s: %v", topic, err)
			}
		}
	}
	if got := u.must("help", "retries"); u.must("retries") != got || !strings.Contains(got, "Under `capabilities` of grants (`quern help grants`)") {
		t.Errorf("it prints\n%s", got)
	}
	for word, page := range map[string]string{"typescript": "javascript", "webhooks": "topics", "cron": "scheduling", "secrets": "capabilities", "asynq": "from-asynq", "retry": "retries", "Tests": "handlers", "memory": "limits"} {
		if u.must("help", word) != u.must("help", page) {
			t.Errorf("help %s does not print the page %s", word, page)
		}
	}
	if r := u.run("help", "limit"); r.status != exitUsage || r.stderr != "quern: no command or topic \"limit\": did you mean limits?\n" {
		t.Errorf("exit %d: %s", r.status, r.stderr)
	}
	if all := u.must("help"); !regexp.MustCompile(`Additional help topics:(?s:.*)\n  quern limits +bound what`).MatchString(all) {
		t.Errorf("it does not list the topics:\n%s", all)
	}
	if got := u.must("__complete", "help", "lim"); !strings.Contains(got, "limits\n") {
		t.Errorf("it completes\n%s", got)
	}
}
