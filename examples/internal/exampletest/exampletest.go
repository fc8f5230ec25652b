// Package exampletest holds an example to its word: it builds the plugin by the very command that
// the example's README gives, and runs it as a person would, with quern plugin run.
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
)

const program = "github.com/quern-project/quern/cmd/quern"

// Quern is the program quern, built for a test.
type Quern struct {
	Path string
}

// Plugin is the plugin of an example, built for a test.
type Plugin struct {
	quern  *Quern
	folder string // the example's
	file   string // the .wasm file in it
}

// Result is what a run of a plugin showed.
type Result struct {
	Exit   int // 0 complete, 1 failed
	Stdout []byte
	Stderr string
}

// New builds quern. It is gone when the test ends.
func New(t *testing.T) *Quern {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quern")
	run(t, exec.CommandContext(t.Context(), "go", "build", "-o", path, program))
	return &Quern{Path: path}
}

// Build builds the plugin of the example in the folder, at the place that its README names; so an
// example is built once at a time.
func (q *Quern) Build(t *testing.T, folder string) *Plugin {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	command, file, err := buildCommand(string(readme))
	if err != nil {
		t.Fatalf("README.md of %s: %v", folder, err)
	}
	command = withCompiler(t, command)

	built := filepath.Join(folder, file)
	if err := os.Remove(built); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err) // a file left from before would pass for what the command built
	}
	build := exec.CommandContext(t.Context(), "sh", "-c", command)
	build.Dir = folder
	run(t, build)
	if _, err := os.Stat(built); err != nil {
		t.Fatalf("README.md of %s: %s: this built no %s", folder, command, file)
	}
	return &Plugin{quern: q, folder: folder, file: file}
}

// Run runs the plugin on the input, with the manifest beside it.
func (p *Plugin) Run(t *testing.T, input []byte) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), p.quern.Path, "plugin", "run", p.file)
	cmd.Dir = p.folder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return Result{Exit: cmd.ProcessState.ExitCode(), Stdout: stdout.Bytes(), Stderr: stderr.String()}
}

var (
	buildSection = regexp.MustCompile("(?m)^## Build\n+(?:[^`#\n].*\n+)*```sh\n((?:[^`\n]+\n)+)```")
	outputFlag   = regexp.MustCompile(`-o (\S+\.wasm)\b`)
)

// buildCommand finds the build command of a README, and the file that it makes: the only line of
// the first listing under the heading Build.
func buildCommand(readme string) (command, file string, err error) {
	section := buildSection.FindStringSubmatch(readme)
	if section == nil {
		return "", "", errors.New("no listing (```sh) follows a heading ## Build")
	}
	command = strings.TrimSuffix(section[1], "\n")
	if strings.Contains(command, "\n") {
		return "", "", fmt.Errorf("the listing under ## Build has more than one line: %q", command)
	}
	output := outputFlag.FindStringSubmatch(command)
	if output == nil {
		return "", "", fmt.Errorf("the command under ## Build has no -o NAME.wasm: %q", command)
	}
	return command, output[1], nil
}

// withCompiler is the command with a compiler that is there. The READMEs name the clang that the
// project is built with; where a system has only another, the one that .ci/clang finds will do.
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

// compilerOf is the first word of a command that does not set a variable.
func compilerOf(command string) string {
	for word := range strings.FieldsSeq(command) {
		if !strings.Contains(word, "=") {
			return word
		}
	}
	return ""
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, output)
	}
}
