package exampletest

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Install copies the example's plugins with their manifests into a new plugin directory, and returns its path. oldnew
// lists pairs of texts: in the manifests, the second text of a pair replaces the first. The test fails if the first
// text is in no manifest.
func (p *Plugin) Install(t *testing.T, oldnew ...string) string {
	t.Helper()
	dir := t.TempDir()
	var manifests string
	for _, file := range append([]string{p.file}, p.more...) {
		manifest := strings.TrimSuffix(file, ".wasm") + ".yaml"
		for _, name := range []string{file, manifest} {
			content, err := os.ReadFile(filepath.Join(p.folder, name))
			if err != nil {
				t.Fatal(err)
			}
			if name == manifest {
				manifests += string(content)
				content = []byte(strings.NewReplacer(oldnew...).Replace(string(content)))
			}
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for pair := range slices.Chunk(oldnew, 2) {
		if !strings.Contains(manifests, pair[0]) {
			t.Fatalf("no manifest of %s has %q, which the test replaces", p.folder, pair[0])
		}
	}
	return dir
}

// Node is a process of quern serve, one of a fleet. It runs until it is killed or the test ends.
type Node struct {
	shell *exec.Cmd
	stdin io.Closer // closing it ends the process
	pid   int
	end   sync.Once
	log   Log
}

// guard is a shell script that starts the host and then waits until its own stdin is closed. However the test ends, the
// pipe to the shell closes, and the shell kills the host.
const guard = `"$@" </dev/null >&2 & pid=$!; echo $pid; read _; kill -9 $pid; wait $pid`

// Start starts quern serve with the plugin directory and the Redis of that URL. Its settings are the flags alone,
// without the environment. Tasks that are enqueued before it serves run once it serves.
func (q *Quern) Start(t *testing.T, redis, plugins string, flags ...string) *Node {
	t.Helper()
	args := []string{
		"-c", guard, "quern-guard", q.Path, "serve", "--redis", redis, "--plugins", plugins, "--http",
		"127.0.0.1:0",
	}
	n := &Node{shell: exec.Command("sh", append(args, flags...)...)}
	n.shell.Env = withoutSettings(os.Environ())
	n.shell.Stderr = &n.log
	n.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches only the test
	var err error
	if n.stdin, err = n.shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := n.shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.shell.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		n.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("quern serve said:\n%s", n.Log())
		}
	})
	if err != nil {
		t.Fatalf("read process ID of quern serve: %v", err)
	}
	return n
}

// Kill ends the process at once, as a crash would, and waits for its end. Killing twice is no error.
func (n *Node) Kill() {
	n.end.Do(func() {
		if n.pid > 0 {
			_ = syscall.Kill(n.pid, syscall.SIGKILL)
		}
		_ = n.stdin.Close()
		_ = n.shell.Wait()
	})
}

// Log returns what the host has written so far.
func (n *Node) Log() string { return n.log.String() }

// Output runs quern with the arguments, without settings from the environment, and returns what it prints.
func (q *Quern) Output(t *testing.T, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), q.Path, args...)
	cmd.Env, cmd.Stderr = withoutSettings(os.Environ()), &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("quern %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return output
}

// Listing runs the listing of the folder's README that begins with prefix, with quern in PATH and this Redis, and
// returns what the listing prints. replaced lists pairs of texts: in the listing, the second text of a pair replaces
// the first.
func (q *Quern) Listing(t *testing.T, folder, prefix, redis string, replaced ...string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(readme), "```sh\n"+prefix)
	script, _, _ = strings.Cut(prefix+script, "```")
	for i := 0; i < len(replaced); i += 2 {
		found = found && strings.Contains(script, replaced[i])
	}
	if !found {
		t.Fatalf("the README has no listing that begins with %q and has %q", prefix, replaced)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.NewReplacer(replaced...).Replace(script))
	cmd.Dir = folder
	cmd.Env = append(withoutSettings(os.Environ()), "QUERN_REDIS_URL="+redis,
		"PATH="+filepath.Dir(q.Path)+":"+os.Getenv("PATH"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, stdout, &stderr)
	}
	return string(stdout)
}
