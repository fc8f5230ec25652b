package pipeline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// report is what merge answers.
type report struct {
	Document string `json:"document"`
	Parts    int    `json:"parts"`
	Lines    int    `json:"lines"`
	Words    int    `json:"words"`
	Bytes    int    `json:"bytes"`
}

// buildFailing builds count so that the first attempt of every task fails when all is done.
const buildFailing = "clang-14 --target=wasm32-wasi -mexec-model=reactor -O2 -I ../../sdk/c -o %s testdata/failing.c"

// TestPlugins sends many documents through the pipeline on two hosts, once as it is, and once with a count that fails in the middle
// of every part. In both cases each document is reported once, with the right numbers.
func TestPlugins(t *testing.T) {
	t.Parallel()
	plugin := exampletest.New(t).Build(t, ".")
	for name, attempts := range map[string]int{"OK": 1, "OKFailing": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugins := plugin.Install(t, `part: "8192"`, `part: "200"`, "base: 1s", "base: 10ms, min: 10ms")
			if attempts > 1 {
				exampletest.Shell(t, ".", fmt.Sprintf(buildFailing, filepath.Join(plugins, "count.wasm")))
			}
			redis := queuetest.Start(t).URL()
			for range 2 {
				plugin.Quern.Start(t, redis, plugins)
			}
			run(t, newClient(t, redis), attempts)
		})
	}
	t.Run("OKShorter", func(t *testing.T) {
		t.Parallel()
		redis := queuetest.Start(t).URL()
		plugin.Quern.Start(t, redis, plugin.Install(t, `part: "8192"`, `part: "8"`))
		shorter(t, newClient(t, redis))
	})
	t.Run("README", func(t *testing.T) {
		t.Parallel()
		redis := queuetest.Start(t).URL()
		plugin.Quern.Start(t, redis, plugin.Install(t, `part: "8192"`, `part: "8"`))
		listing(t, plugin.Quern, redis)
	})
}

func newClient(t *testing.T, redis string) *queue.Client {
	t.Helper()
	client, err := queue.New(redis, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// shorter sends a document, deletes its tasks, and sends a shorter one under the same ID: what is kept of the first one, of which
// there is a part more, must not be taken for the second one's.
func shorter(t *testing.T, client *queue.Client) {
	t.Helper()
	for _, text := range []string{"millers grind corn", "querns grind"} {
		if _, err := client.Queue("split").Enqueue(t.Context(), []byte(text), queue.Options{ID: "book-1"}); err != nil {
			t.Fatal(err)
		}
		words := len(strings.Fields(text))
		if got, want := reported(t, client, "book-1"), (report{"book-1", words, 0, words, len(text)}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		ids := map[string][]string{"split": {"book-1"}, "merge": {"book-1.report"}}
		for part := range words {
			ids["count"] = append(ids["count"], fmt.Sprintf("book-1.%d", part+1))
		}
		for name, ids := range ids {
			for _, id := range ids {
				exampletest.Eventually(t, id+" is finished and deleted", func() bool {
					return client.Queue(name).Delete(t.Context(), id) == nil
				})
			}
		}
	}
}

// listing runs what the README says to do beside the host, with a document of a hundred parts: its report does not exist yet when
// split is complete.
func listing(t *testing.T, quern *exampletest.Quern, redis string) {
	t.Helper()
	document := filepath.Join(t.TempDir(), "document")
	if err := os.WriteFile(document, []byte(strings.Repeat("grinds.\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	// As quern dev would, the host serves before anything is enqueued.
	client := newClient(t, redis)
	for _, name := range []string{"split", "count", "merge"} {
		exampletest.Eventually(t, name+" is served", func() bool {
			served, err := client.Queue(name).HasListener(t.Context())
			return err == nil && served
		})
	}
	stdout := quern.Listing(t, ".", "quern enqueue", redis, "< ../../README.md", "< "+document)
	const want = `{"document":"book-1","parts":100,"lines":100,"words":100,"bytes":800}`
	if !strings.HasPrefix(stdout, "100 parts, ") || !strings.Contains(stdout, want) {
		t.Errorf("%s\nwant %s", stdout, want)
	}
}

// documents are many, of one part up to some.
func documents() (texts []string) {
	for i := range 20 {
		var text strings.Builder
		for line := range i * 3 {
			fmt.Fprintf(&text, "The %d. line of document %d:\tthe quern grinds the corn. \n", line+1, i+1)
		}
		texts = append(texts, text.String())
	}
	return texts
}

// run runs the documents and looks at what came of them, if each task of count takes so many attempts.
func run(t *testing.T, client *queue.Client, attempts int) {
	t.Helper()
	texts := documents()
	specs := make([]queue.Spec, len(texts))
	for i, text := range texts {
		specs[i].Parameters = []byte(text)
		specs[i].ID = fmt.Sprintf("document-%d", i+1)
	}
	if _, err := client.Queue("split").EnqueueMany(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	parts := 0
	for i, text := range texts {
		id := specs[i].ID
		got := reported(t, client, id)
		parts += got.Parts
		want := report{id, got.Parts, strings.Count(text, "\n"), len(strings.Fields(text)), len(text)}
		if got != want || len(text) > 400 && got.Parts < 2 {
			t.Errorf("%+v, want %+v", got, want)
		}
		chain(t, client, id, attempts)
	}
	settled(t, client, "split", len(texts))
	settled(t, client, "count", parts)
	settled(t, client, "merge", len(texts))
}

// reported waits for the report on a document.
func reported(t *testing.T, client *queue.Client, document string) (got report) {
	t.Helper()
	var task *queue.Task
	exampletest.Eventually(t, document+" is reported", func() bool {
		var err error
		task, err = client.Task(t.Context(), document+".report")
		return err == nil && task.Status.Finished()
	})
	if err := json.Unmarshal(task.Result, &got); err != nil {
		t.Fatalf("%v in the report %q: %+v", err, task.Result, task.Failure())
	}
	return got
}

// chain follows the parents of a report to its document.
func chain(t *testing.T, client *queue.Client, document string, attempts int) {
	t.Helper()
	task, err := client.Task(t.Context(), document+".report")
	if err != nil {
		t.Fatal(err)
	}
	if task.Queue != "merge" || task.Attempts != 1 || task.Key != document || !strings.HasPrefix(task.Parent, document+".") {
		t.Errorf("task %s of %s, key %s, has the parent %s and took %d attempts", task.ID, task.Queue, task.Key, task.Parent, task.Attempts)
	}
	part, err := client.Task(t.Context(), task.Parent)
	if err != nil {
		t.Fatal(err)
	}
	if part.Queue != "count" || part.Attempts != attempts || part.Key != document || part.Parent != document {
		t.Errorf("task %s of %s, key %s, has the parent %s and took %d attempts, want %d",
			part.ID, part.Queue, part.Key, part.Parent, part.Attempts, attempts)
	}
	first, err := client.Task(t.Context(), part.Parent)
	if err != nil || first.Queue != "split" || first.Parent != "" {
		t.Errorf("%v: the first task is %+v", err, first)
	}
}

// settled holds that so many tasks went through a queue, and all are complete.
func settled(t *testing.T, client *queue.Client, name string, want int) {
	t.Helper()
	for _, status := range queue.Statuses() {
		n, err := manage.New(client).Queue(name).Count(t.Context(), status)
		if err != nil {
			t.Fatal(err)
		}
		if status == queue.Complete && n != int64(want) || status != queue.Complete && n != 0 {
			t.Errorf("%d tasks of %s are %s; %d should be complete", n, name, status, want)
		}
	}
}
