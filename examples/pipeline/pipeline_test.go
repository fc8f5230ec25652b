package pipeline

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/sdk/queue"
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
			client, err := queue.New(redis, queue.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			run(t, client, attempts)
		})
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
		exampletest.Eventually(t, id+" is reported", func() bool {
			task, err := client.Task(t.Context(), id+".report")
			return err == nil && task.Status.Finished()
		})
		task, err := client.Task(t.Context(), id+".report")
		if err != nil {
			t.Fatal(err)
		}
		var got report
		if err := json.Unmarshal(task.Result, &got); err != nil {
			t.Fatalf("%v in the report %q: %+v", err, task.Result, task.Failure())
		}
		parts += got.Parts
		want := report{id, got.Parts, strings.Count(text, "\n"), len(strings.Fields(text)), len(text)}
		if got != want || len(text) > 400 && got.Parts < 2 {
			t.Errorf("%+v, want %+v", got, want)
		}
		chain(t, client, task, id, attempts)
	}
	settled(t, client, "split", len(texts))
	settled(t, client, "count", parts)
	settled(t, client, "merge", len(texts))
}

// chain follows the parents of a report to its document.
func chain(t *testing.T, client *queue.Client, task *queue.Task, document string, attempts int) {
	t.Helper()
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
		n, err := client.Queue(name).Count(t.Context(), status)
		if err != nil {
			t.Fatal(err)
		}
		if status == queue.Complete && n != int64(want) || status != queue.Complete && n != 0 {
			t.Errorf("%d tasks of %s are %s; %d should be complete", n, name, status, want)
		}
	}
}
