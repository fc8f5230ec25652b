// Package exampletest tests that an example works as its README says. It builds the plugins by the commands of the
// README. It runs them as a developer would, with quern plugin run and quern dev, or as an operator would, with quern
// serve and a Redis.
package exampletest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const program = "github.com/quern-project/quern/cmd/quern"

// Quern is the program quern, built for a test.
type Quern struct {
	Path string
}

// Plugin is the plugin of an example, built for a test.
type Plugin struct {
	Quern *Quern

	folder string   // the example's folder
	file   string   // the .wasm file in it
	more   []string // the .wasm files of the example's other plugins
}

// Result is the outcome of a run of a plugin.
type Result struct {
	Exit   int // exit status: 0 complete, 1 failed
	Stdout []byte
	Stderr string
}

// New builds quern with go run, which leaves the program in the build cache of Go, where all examples share it. It
// skips a test that is to be short.
func New(t *testing.T) *Quern {
	t.Helper()
	if testing.Short() {
		t.Skip("builds plugins and runs them, which takes long: run make examples")
	}
	for range 2 { // if the first run has to link the program, it prints a temporary path
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "go", "run", "-exec", "echo", program)
		cmd.Stderr = &stderr
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
		}
		path := strings.TrimSpace(string(said))
		if _, err := os.Stat(path); err == nil {
			return &Quern{Path: path}
		}
	}
	t.Fatal("go run does not cache what it builds: is this an old Go?")
	return nil
}

// Build builds the plugins of the example in the folder, into the files that its README names. Do not build an example
// twice at the same time. The returned Plugin is the first one of the example.
func (q *Quern) Build(t *testing.T, folder string) *Plugin {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	builds, err := buildCommands(string(readme))
	if err != nil {
		t.Fatalf("README.md of %s: %v", folder, err)
	}
	p := &Plugin{Quern: q, folder: folder, file: builds[0].file}
	for i, b := range builds {
		b.run(t, folder)
		if i > 0 {
			p.more = append(p.more, b.file)
		}
	}
	return p
}

// build is a command of a README, and the file that it makes.
type build struct{ command, file string }

func (b build) run(t *testing.T, folder string) {
	t.Helper()
	built := filepath.Join(folder, b.file)
	if err := os.Remove(built); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err) // an old file would pass for the result of the command
	}
	Shell(t, folder, b.command)
	if _, err := os.Stat(built); err != nil {
		t.Fatalf("README.md of %s: %s: this built no %s", folder, b.command, b.file)
	}
}

// Run runs the plugin on the input, with the manifest beside it.
func (p *Plugin) Run(t *testing.T, input []byte) Result {
	t.Helper()
	return p.run(t, nil, input, "plugin", "run", p.file)
}

// run runs quern in the plugin's folder. If env is nil, quern gets the environment of the test.
func (p *Plugin) run(t *testing.T, env []string, input []byte, args ...string) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), p.Quern.Path, args...)
	cmd.Dir, cmd.Env = p.folder, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return Result{Exit: cmd.ProcessState.ExitCode(), Stdout: stdout.Bytes(), Stderr: stderr.String()}
}

// Cases runs the cases that the manifest lists, by quern plugin test. The test fails unless there are exactly want
// cases and all of them pass.
func (p *Plugin) Cases(t *testing.T, want int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.Quern.Path, "plugin", "test")
	cmd.Dir = p.folder
	output, err := cmd.CombinedOutput()
	passed := fmt.Sprintf("all %d tests passed\n", want)
	if want == 1 {
		passed = "1 test passed\n"
	}
	if err != nil || !strings.HasSuffix(string(output), passed) {
		t.Errorf("quern plugin test: %v, want %d that pass\n%s", err, want, output)
	}
}

var (
	buildSection = regexp.MustCompile("(?m)^## Build\n+(?:[^`#\n].*\n+)*```sh\n((?:[^`\n]+\n)+)```")
	outputFlag   = regexp.MustCompile(`-o (\S+\.wasm)\b`)
)

// buildCommands returns the build commands of a README, one for each plugin: the lines of the first listing under the
// heading Build.
func buildCommands(readme string) ([]build, error) {
	section := buildSection.FindStringSubmatch(readme)
	if section == nil {
		return nil, errors.New("no listing (```sh) follows a heading ## Build")
	}
	var builds []build
	for command := range strings.Lines(section[1]) {
		command = strings.TrimSuffix(command, "\n")
		output := outputFlag.FindStringSubmatch(command)
		if output == nil {
			return nil, fmt.Errorf("a command under ## Build has no -o NAME.wasm: %q", command)
		}
		builds = append(builds, build{command: command, file: output[1]})
	}
	return builds, nil
}

// withCompiler returns the command with a compiler that this system has. The READMEs name the clang
// that the project is built with; the system may have another, which .ci/clang finds.
func withCompiler(t *testing.T, command string) string {
	t.Helper()
	compiler := compilerOf(command)
	if !strings.HasPrefix(compiler, "clang") {
		return command
	}
	gomod, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	find := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(string(gomod)), ".ci", "clang"))
	find.Stderr = &said
	clang, err := find.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	return strings.Replace(command, compiler, strings.TrimSpace(string(clang)), 1)
}

// compilerOf returns the first word of a command that does not set a variable.
func compilerOf(command string) string {
	for word := range strings.FieldsSeq(command) {
		if !strings.Contains(word, "=") {
			return word
		}
	}
	return ""
}

// Shell runs a build command in the folder.
func Shell(t *testing.T, folder, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", withCompiler(t, command))
	cmd.Dir = folder
	// Build the same bytes as quern dev and the Makefile, without the commit in them, because hosts have cached the
	// machine code of these bytes.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath -buildvcs=false")
	run(t, cmd)
}

// Eventually waits until the condition is true. what describes the condition in the error.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, lookInterval, what)
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, output)
	}
}
