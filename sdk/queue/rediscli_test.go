package queue_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// recipe is a block of commands of REDIS-CLI.md and what it says that they print, if it does.
type recipe struct{ commands, prints string }

// recipes reads the page: its blocks by their heading, "" before the first.
func recipes(t *testing.T) map[string][]recipe {
	t.Helper()
	page := make(map[string][]recipe)
	heading, kind, block := "", "", ""
	for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile("REDIS-CLI.md")))) {
		fence, fenced := strings.CutPrefix(line, "```")
		switch list := page[heading]; {
		case !fenced && kind != "":
			block += line
		case !fenced:
			if title, ok := strings.CutPrefix(line, "## "); ok {
				heading = strings.TrimSpace(title)
			}
		case kind == "":
			kind, block = strings.TrimSpace(fence), ""
		case kind == "sh":
			page[heading], kind = append(list, recipe{commands: block}), ""
		case kind == "text" && len(list) > 0:
			list[len(list)-1].prints, kind = block, ""
		default:
			t.Fatalf("REDIS-CLI.md: a block of the kind %q under %q", kind, heading)
		}
	}
	return page
}

// shell is a shell in which somebody pastes blocks of commands, one after the other.
type shell struct {
	t      *testing.T
	dir    string
	input  io.Writer
	output *bufio.Reader
	blocks int
}

// newShell runs a shell whose redis-cli, the real one, talks to the server.
func newShell(t *testing.T, name string, server *queuetest.Server) *shell {
	t.Helper()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal("redis-cli is not installed: run `make deps` (or apt-get install redis-tools)")
	}
	dir := t.TempDir()
	host, port, _ := net.SplitHostPort(server.Addr())
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s -h %s -p %s \"$@\"\n", cli, host, port)
	if err := os.WriteFile(filepath.Join(dir, "redis-cli"), []byte(wrapper), 0o700); err != nil { //nolint:gosec // to be run
		t.Fatal(err)
	}
	cmd := exec.Command(name)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	input := must[io.WriteCloser](t)(cmd.StdinPipe())
	output := must[io.ReadCloser](t)(cmd.StdoutPipe())
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &shell{t: t, dir: dir, input: input, output: bufio.NewReader(output)}
}

// run runs a block as if it were pasted and returns what it prints.
func (s *shell) run(commands string) string {
	s.t.Helper()
	s.blocks++
	file, end := fmt.Sprintf("./block%d", s.blocks), fmt.Sprintf("--- end of block %d ---\n", s.blocks)
	if err := os.WriteFile(filepath.Join(s.dir, file), []byte("set -eu\n"+commands), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(s.input, ". %s < /dev/null; printf '%%s' '%s\n'\n", file, strings.TrimSuffix(end, "\n")); err != nil {
		s.t.Fatal(err)
	}
	var printed strings.Builder
	for {
		line, err := s.output.ReadString('\n')
		if line == end {
			return printed.String()
		}
		printed.WriteString(line)
		if err != nil {
			s.t.Fatalf("the shell ended at\n%s\nit printed\n%s", commands, printed.String())
		}
	}
}

// value is what a variable of the shell holds.
func (s *shell) value(name string) string { return strings.TrimSpace(s.run("echo $" + name)) }

func TestRedisCLIPage(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sh", "bash"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(name); err != nil {
				t.Skip("there is no " + name)
			}
			server := queuetest.Start(t)
			w := newWorld(t, server.URL())
			w.Store().Keys, w.Config().Tenant = store.Keys{Tenant: queue.DefaultTenant}, queue.DefaultTenant
			testRedisCLIPage(t, w, newShell(t, name, server), recipes(t))
		})
	}
}

func testRedisCLIPage(t *testing.T, w *world, sh *shell, page map[string][]recipe) {
	ran := 0
	// follow pastes the blocks of a heading and checks what they print.
	follow := func(heading string) {
		t.Helper()
		if len(page[heading]) == 0 {
			t.Fatalf("REDIS-CLI.md has nothing under %q", heading)
		}
		for _, recipe := range page[heading] {
			ran++
			if printed := sh.run(recipe.commands); recipe.prints != "" && printed != recipe.prints {
				t.Errorf("%s:\n%s\nprints\n%s\nthe page says\n%s", heading, recipe.commands, printed, recipe.prints)
			}
		}
	}
	const parameters = `{"photo": "grüße.jpg", "size": 200}`

	// A task by hand runs.
	follow("")
	follow("Enqueue")
	first := sh.value("id")
	stop := w.working(t, "thumbnails", func(_ context.Context, task *queue.Task) ([]byte, error) {
		return task.Parameters, nil
	})
	if task := w.finished(t, first); task.Status != queue.Complete || string(task.Result) != parameters || task.Created.IsZero() {
		t.Errorf("the first task: %+v", task)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	// Two more wait.
	follow("Enqueue")
	follow("Schedule")
	pending, scheduled := sh.value("id"), sh.value("later")
	if task := w.task(t, pending); pending == first || task.Status != queue.Pending || string(task.Parameters) != parameters {
		t.Errorf("the pending task: %+v", task)
	}
	task := w.task(t, scheduled)
	if wait := task.ETA.Sub(task.Created); task.Status != queue.Scheduled || wait < 3599e9 || wait > 3601e9 {
		t.Errorf("the scheduled task: %+v", task)
	}
	follow("Look")
	follow("Count")
	w.depth(t, "thumbnails", map[queue.Status]int64{queue.Complete: 1, queue.Pending: 1, queue.Scheduled: 1})
	// With listeners that hold something it counts as Stats does.
	node := w.node(t, "thumbnails")
	reserved := w.reserve(t, node, "thumbnails", false)
	w.enqueue(t, "thumbnails", "", queue.Options{})
	started := w.reserve(t, node, "thumbnails", true)
	if printed := sh.run(page["Count"][0].commands); printed != "scheduled 1\npending 0\nreserved 1\nstarted 1\ncomplete 1\nfailed 0\n" {
		t.Errorf("with tasks that are held it counts\n%s", printed)
	}
	w.settle(t, node, "thumbnails", listen.Settlement{Claim: listen.Claim{ID: started.ID, Run: started.Run}})
	if errs, err := node.Release(w.ctx, "thumbnails", []listen.Claim{{ID: reserved.ID, Run: reserved.Run}}); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}

	// Cancelled they show as failed, whoever waits is told, and nobody runs them.
	waits := map[string]<-chan waited{pending: w.waiting(t, pending), scheduled: w.waiting(t, scheduled)}
	for id := range waits {
		w.subscribed(t, w.Store().Keys.Done(id))
	}
	follow("Cancel a pending task")
	follow("Cancel a scheduled task")
	for id, wait := range waits {
		got := receive(t, "the end of Wait", wait)
		if got.err != nil || got.task.Status != queue.Failed || got.task.Reason != queue.ReasonCancelled ||
			got.task.Failure().Message != "cancelled by hand" || got.task.FinishedAt.IsZero() {
			t.Errorf("cancelled: %+v, %v", got.task, got.err)
		}
		if batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "thumbnails", Count: 10}})[0]; len(batch.Tasks) != 0 || batch.Err != nil {
			t.Errorf("%s can still be reserved: %+v", id, batch)
		}
	}
	w.depth(t, "thumbnails", map[queue.Status]int64{queue.Complete: 2, queue.Failed: 2})
	failed := idsOf(must[[]*queue.Task](t)(manage.New(w.Client).Queue("thumbnails").List(w.ctx, manage.ListOptions{Status: queue.Failed})))
	if !slices.Equal(failed, []string{scheduled, pending}) {
		t.Errorf("failed are %v", failed)
	}
	// The second time it is too late, and the page's commands say so and change nothing.
	for heading, id := range map[string]string{"Cancel a pending task": pending, "Cancel a scheduled task": scheduled} {
		if printed := sh.run(page[heading][0].commands); !strings.Contains(printed, id) || !strings.Contains(printed, "failed") {
			t.Errorf("%s twice: %s", heading, printed)
		}
	}
	w.depth(t, "thumbnails", map[queue.Status]int64{queue.Complete: 2, queue.Failed: 2})

	// One that runs is stopped by whoever runs it.
	follow("Enqueue")
	running := sh.value("id")
	held := w.reserve(t, node, "thumbnails", true)
	follow("Cancel a task that runs")
	if marked, _, err := node.Marks(w.ctx, []string{running}); held.ID != running || len(marked) != 1 || err != nil {
		t.Errorf("marked are %v, %v", marked, err)
	}

	blocks := 0
	for _, list := range page {
		blocks += len(list)
	}
	if again := 2 * len(page["Enqueue"]); ran != blocks+again {
		t.Errorf("%d blocks ran of %d: a section is left out", ran-again, blocks)
	}
}
