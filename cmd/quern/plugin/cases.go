package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/abi"
)

// CaseView is the result of one test.
type CaseView struct {
	Plugin  string              `json:"plugin"`
	Test    string              `json:"test"`
	Passed  bool                `json:"passed"`
	Updated bool                `json:"updated,omitempty"`
	Outcome runtime.OutcomeKind `json:"outcome,omitempty"`
	// Exit is the guest's exit status; nil if the host ended the guest.
	Exit *int `json:"exit,omitempty"`
	// Wrong holds lines that explain why the test did not pass.
	Wrong []string `json:"wrong,omitempty"`
}

func newPluginTest(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "test [DIR|FILE...]", Short: "Run the tests in the manifests of plugins, without Redis",
		Long: "Runs the tests of the manifests beside plugins: each is a task of its own, in an instance that nobody has\n" +
			"used, with empty buckets. Its result must be that of the test's output: the same JSON value, or else the same\n" +
			"bytes, except for a newline at the file's end. Its exit status must be that of the test, 0 by default. A folder\n" +
			"stands for the .wasm files in it, the current folder if nothing is named.\n\n" +
			"  tests:\n" +
			"  - {input: tests/ada.txt, output: tests/ada.out}\n" +
			"  - {name: no name, exit: 65, error: give a name}\n" +
			"  - {name: a list, parameters: {names: [ada, bob]}}\n" +
			"  - name: known\n" +
			"    kv: {seen: {ada: \"1\"}}\n" +
			"    attempt: 2 # also queue, key and headers of the task\n" +
			"    http: [{method: GET, url: \"https://api.example.com/ada\", status: 200, body: \"{}\"}]\n\n" +
			"With http, HTTP requests of the task get these answers and go to no server; kv fills buckets before it runs.\n" +
			"With --database statements run on a PostgreSQL, in a transaction that is undone after the test; the test's\n" +
			"database: {NAME: FILE} names SQL that runs first in it, such as CREATE TABLE.\n" +
			"A plugin in the current folder, or in one that is named, is built first if its source there is newer.\n" +
			"With --grants a plugin has what a host with that file would give it in tasks of --tenant.\n" +
			"Exit status: 0 all passed, 1 some failed, 2 there is no such file or no test, 3 a plugin is refused.",
		Args: cli.Arguments(0, 1000),
	}
	local := newLocal(cmd.Flags(), env)
	update := cmd.Flags().Bool("update", false, "write the results of tasks that complete into the tests' outputs, where they differ")
	option.Duration(cmd.Flags(), &local.timeout, "timeout", unattended,
		"how long each test may run at most, whatever its manifest says; 0s without end")
	only := ""
	cmd.Flags().StringVar(&only, "run", "", "run only the tests whose name contains `NAME` (default all)")
	output := option.Output(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tested, err := pluginsToTest(cmd, local, args)
		if err == nil {
			err = keepTests(tested, only)
		}
		if err != nil {
			return err
		}
		if err := local.open(cmd); err != nil {
			return err
		}
		defer local.http.Close()
		views, failed, w := []CaseView{}, 0, cmd.OutOrStdout()
		for _, p := range tested {
			of, err := testAll(p, cmd, local, *update)
			if err != nil {
				return err
			}
			views = append(views, of...)
			for _, view := range of {
				if !output.JSON() {
					view.print(w)
				}
				if !view.Passed {
					failed++
				}
			}
		}
		switch {
		case output.JSON():
			err = show.JSON(w, views)
		case failed == 0 && len(views) == 1:
			_, err = fmt.Fprintln(w, "1 test passed")
		case failed == 0:
			_, err = fmt.Fprintf(w, "all %d tests passed\n", len(views))
		}
		if failed > 0 {
			err = errors.Join(err, &cli.ExitError{
				Status: cli.ExitFailed,
				Err:    fmt.Errorf("%d of %d tests failed", failed, len(views)),
			})
		}
		return err
	}
	return cmd
}

// pluginsToTest returns the plugins that have tests, among the files and in the folders that args name, in the order of
// args. It first builds plugins whose source is newer than their module.
func pluginsToTest(cmd *cobra.Command, local *local, args []string) ([]*pluginfile.File, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	var files []string
	for _, arg := range args {
		if info, err := os.Stat(arg); err != nil || !info.IsDir() {
			if err == nil && !strings.HasSuffix(arg, manifest.ModuleSuffix) {
				return nil, cli.Usagef("%q is no plugin: name a %s file, or a folder that has some", arg, manifest.ModuleSuffix)
			}
			if err := local.rebuild(cmd, arg, false); err != nil {
				return nil, err
			}
			files = append(files, arg)
			continue
		}
		if s, err := build.Read(arg); err == nil { // its module may not exist yet
			if err := local.rebuild(cmd, filepath.Join(arg, s.Name+manifest.ModuleSuffix), true); err != nil {
				return nil, err
			}
		}
		found, err := pluginfile.ModulesIn(arg)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var tested []*pluginfile.File
	for _, file := range files {
		p, err := pluginfile.Read(file)
		if err == nil {
			err = p.Refusal()
		}
		if err != nil {
			return nil, err
		}
		if len(p.Manifest.Tests) > 0 {
			tested = append(tested, p)
		}
	}
	if len(tested) == 0 {
		return nil, cli.Usagef("there is no test: name some in the manifest of %s, such as tests: [{input: tests/a.txt, output: tests/a.out}]",
			strings.Join(files, ", "))
	}
	return tested, nil
}

// keepTests removes the tests whose name does not contain the text only. It is an error if none is left.
func keepTests(tested []*pluginfile.File, only string) error {
	var names []string
	left := 0
	for _, p := range tested {
		p.Manifest.Tests = slices.DeleteFunc(p.Manifest.Tests, func(test manifest.Test) bool {
			names = append(names, test.Name)
			return !strings.Contains(test.Name, only)
		})
		left += len(p.Manifest.Tests)
	}
	if left == 0 {
		return cli.Usagef("--run %q: no test has a name that contains it: the tests are %s", only, strings.Join(names, ", "))
	}
	return nil
}

// testAll runs the tests of a plugin. If update is true, it also writes the results into the tests' output files.
func testAll(p *pluginfile.File, cmd *cobra.Command, local *local, update bool) ([]CaseView, error) {
	l, err := openPlugin(p, cmd, local)
	if err != nil {
		return nil, err
	}
	defer l.close()
	var views []CaseView
	for _, test := range p.Manifest.Tests {
		slow := time.AfterFunc(slowAfter, func() {
			cli.Note(cmd, "the test %q of %s has run for %s, of %s at most (--timeout)", test.Name, p.Name, slowAfter,
				l.limits.Timeout)
		})
		view, err := l.test(cmd.Context(), test, update)
		slow.Stop()
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, cmd.Context().Err()
}

// test runs one test. It returns an error if this machine fails; failures of the plugin are in the CaseView.
func (l *loaded) test(ctx context.Context, test manifest.Test, update bool) (CaseView, error) {
	view := CaseView{Plugin: l.Name, Test: test.Name}
	read := func(from string) ([]byte, error) { return plugins.LoadFile(l.ManifestPath, from, cli.MaxParameters) }
	input, want := test.Parameters, []byte(nil)
	var err error
	if test.Input != "" {
		if input, err = read(test.Input); err != nil {
			view.Wrong = []string{fmt.Sprintf("input %q cannot be read: %v", test.Input, cli.Bare(err))}
			return view, nil
		}
	}
	file := filepath.Join(filepath.Dir(l.ManifestPath), filepath.FromSlash(test.Output))
	if test.Output != "" {
		want, err = read(test.Output)
	}
	missing := err
	awaited, err := readDependencies(test.Dependencies, read)
	if err != nil {
		view.Wrong = []string{err.Error()}
		return view, nil
	}
	if err := l.fillBuckets(ctx, test.KV); err != nil {
		view.Wrong = []string{"kv of this test: " + err.Error()}
		return view, nil
	}
	scripts := make(map[string]string)
	for name, file := range test.Database {
		script, err := read(file)
		if err != nil {
			view.Wrong = []string{fmt.Sprintf("the SQL %q for database %s cannot be read: %v", file, name, cli.Bare(err))}
			return view, nil
		}
		scripts[name] = string(script)
	}
	around := surroundings{
		scripts: scripts,
		awaited: awaited, attempt: max(test.Attempt, 1), queue: test.Queue, key: test.Key, headers: test.Headers,
	}
	if test.HTTP != nil {
		around.answers = &answers{given: test.HTTP, used: map[int]bool{}}
	}
	var log []string
	begun := time.Now()
	outcome, _ := l.run(ctx, runtime.Call{Input: input, Log: func(line string) { log = append(log, line) }}, around)
	if outcome.Kind == runtime.HostFault {
		return view, fmt.Errorf("internal error: %w", outcome.Err)
	}
	view.judge(test, outcome)
	asExpected := len(view.Wrong) == 0
	if !asExpected {
		view.Wrong = append(view.Wrong, computed(outcome, time.Since(begun))...)
	}
	if around.answers != nil {
		view.Wrong = slices.Concat(view.Wrong, around.answers.missing)
		// A denied request asks for no answer, and a task that ended too soon may not have come to its request.
		if asExpected && !around.answers.denied {
			view.Wrong = append(view.Wrong, around.answers.unused()...)
		}
	}
	if len(view.Wrong) == 0 && test.Output != "" && (missing != nil || !sameResult(want, outcome.Output)) {
		switch {
		case update:
			if err := atomicfile.Write(file, outcome.Output, 0o644); err != nil {
				return view, fmt.Errorf("write output: %w", err)
			}
			view.Updated = true
		case missing != nil:
			view.Wrong = []string{fmt.Sprintf("output %q cannot be read: %v: --update writes it", test.Output,
				cli.Bare(missing))}
		default:
			view.Wrong = difference(want, outcome.Output, test.Output)
		}
	}
	if view.Passed = len(view.Wrong) == 0; !view.Passed {
		log = slices.DeleteFunc(log, func(line string) bool { // the error has it already
			text := strings.TrimPrefix(line, "error: ")
			if strings.HasPrefix(text, abi.ModuleName+".") { // a denial: the function, and the reason
				_, text, _ = strings.Cut(text, ": ")
			}
			return strings.Contains(outcome.Message, strings.TrimSpace(text))
		})
		for _, line := range log[max(0, len(log)-shownLines):] {
			view.Wrong = append(view.Wrong, "log: "+line)
		}
	}
	return view, nil
}

// judge compares the outcome of the test's task with what the test expects.
func (v *CaseView) judge(test manifest.Test, outcome runtime.Outcome) {
	v.Outcome = outcome.Kind
	ended := "it ended with exit status " + fmt.Sprint(outcome.Code)
	switch outcome.Kind {
	case runtime.Complete, runtime.Retry, runtime.Fatal, runtime.Failed:
		v.Exit = &outcome.Code
	default:
		ended = "it was ended (" + string(host.Failure(outcome).Reason) + ")"
	}
	anyFailure := test.Exit == 0 && test.Error != ""
	switch {
	case anyFailure && outcome.Kind == runtime.Complete:
		v.Wrong = []string{ended + ", expected it to fail"}
	case !anyFailure && (v.Exit == nil || *v.Exit != test.Exit):
		v.Wrong = []string{fmt.Sprintf("%s, expected %d", ended, test.Exit)}
	case !strings.Contains(outcome.Message, test.Error):
		v.Wrong = []string{fmt.Sprintf("the error does not contain %q", test.Error)}
	}
	if len(v.Wrong) > 0 && outcome.Message != "" {
		v.Wrong = append(v.Wrong, strings.Split("error: "+outcome.Message, "\n")...)
	}
}

// shownLines is the number of lines, at the end of its log, that a failed test shows.
const shownLines = 10

func (v CaseView) print(w io.Writer) {
	verdict, note := "FAIL", ""
	if v.Passed {
		verdict = "ok  "
	}
	if v.Updated {
		note = " (output updated)"
	}
	fmt.Fprintf(w, "%s %s: %s%s\n", verdict, v.Plugin, show.Escape(v.Test), note)
	for _, line := range v.Wrong {
		fmt.Fprintf(w, "     %s\n", line)
	}
}
