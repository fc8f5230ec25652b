package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// bluequePage is what the page for Blueque's users shows.
type bluequePage struct {
	worker, handler, client, reader, message, long, flaky string
	manifest                                              string
	withWorker, withQuern                                 string // what the client prints
}

func readBluequePage(t *testing.T) (p bluequePage) {
	t.Helper()
	text, err := os.ReadFile("manual/blueque.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{} // by the language
	for _, block := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks[block[1]] = append(blocks[block[1]], block[2])
	}
	for language, parts := range map[string][]*string{
		"python": {&p.worker, &p.handler, &p.client, &p.reader, &p.message, &p.long, &p.flaky},
		"yaml":   {&p.manifest},
		"text":   {&p.withWorker, &p.withQuern},
	} {
		if len(blocks[language]) != len(parts) {
			t.Fatalf("the page has %d blocks in %q, want %d", len(blocks[language]), language, len(parts))
		}
		for i, part := range parts {
			*part = blocks[language][i]
		}
	}
	return p
}

// runs runs Python with Blueque on a Redis, and returns what it prints. The client waits between enqueueing and reading, which
// the page leaves out.
func (p *bluequePage) runs(t *testing.T, url string) string {
	t.Helper()
	const wait = `
import time
while any(client.get_task(id).status not in ("complete", "failed") for id in (good, bad)):
    time.sleep(0.05)
`
	cmd := bluequePython(t, url, p.client+wait+p.reader+p.message)
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("the client: %v: %s", err, cmd.Stderr)
	}
	return string(printed)
}

func bluequePython(t *testing.T, url, source string) *exec.Cmd {
	t.Helper()
	const address = "redis://127.0.0.1:6379/0"
	if !strings.Contains(source, address) {
		t.Fatalf("%s is not in\n%s", address, source)
	}
	cmd := exec.CommandContext(t.Context(), "../../build/venv/bin/python", "-c", strings.ReplaceAll(source, address, url))
	cmd.Stderr = newOutput()
	return cmd
}

// TestBluequePage takes the page's worker to its handler: the same client gets the same results, and long tasks and retries
// do what the page tells of them.
func TestBluequePage(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	page := readBluequePage(t)
	plugins := folder(t, map[string][]byte{
		"invoices": runtimetest.Interpreted(t, "python", page.handler),
		"long":     runtimetest.Interpreted(t, "python", page.long),
		"flaky":    runtimetest.Interpreted(t, "python", page.flaky),
	})
	write(t, filepath.Join(plugins, "invoices.yaml"), page.manifest)
	write(t, filepath.Join(plugins, "flaky.yaml"), strings.Replace(page.manifest, "[invoices]", "[flaky]", 1))
	url := queuetest.Start(t).URL()

	worker := bluequePython(t, url, page.worker)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	if got := page.runs(t, url); got != page.withWorker+"no lines\n" {
		t.Errorf("with the worker the client prints\n%s\nwant\n%s", got, page.withWorker)
	}
	_ = worker.Process.Kill()
	_ = worker.Wait()

	u := newUser(t, url).asBuilt()
	host, _ := u.host(plugins, "--poll", "1s")
	if got := page.runs(t, url); got != page.withQuern+"no lines\n" {
		t.Errorf("with a host the client prints\n%s\nwant\n%s", got, page.withQuern)
	}

	u.must("queue", "purge", "invoices", "--older-than", "0.001s")
	if kept := u.must("queue", "show", "invoices"); !regexp.MustCompile(`invoices( +0){4} +2 +2 `).MatchString(kept) {
		t.Errorf("the client's tasks are purged:\n%s", kept)
	}
	u.must("queue", "purge", "invoices", "--older-than", "0.001s", "--foreign")
	if kept := u.must("queue", "show", "invoices"); !regexp.MustCompile(`invoices( +0){6} `).MatchString(kept) {
		t.Errorf("purge --foreign keeps\n%s", kept)
	}

	python := queuetest.Python(t, url)
	retried := python.Enqueue("flaky", "")
	u.must("task", "wait", retried)
	if task := python.Task(retried); task.Status != "complete" || *task.Result != "attempt 3" {
		t.Errorf("a task that is retried: %+v", task)
	}

	long := python.Enqueue("long", `{"pages": 60}`)
	eventually(t, "the task is at work", func() bool { return strings.Contains(u.must("task", "show", long), "page ") })
	host.stop()
	host.wait()
	u.host(plugins, "--poll", "1s")
	var result struct{ Pages, Runs int }
	if err := json.Unmarshal([]byte(u.must("task", "wait", long)), &result); err != nil {
		t.Fatal(err)
	}
	if result.Pages != 60 || result.Runs != 2 {
		t.Errorf("a long task whose host was stopped: %+v", result)
	}
}
