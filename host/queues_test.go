package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// A handler that may enqueue to any queue makes so many, and goes on with those that there are.
func TestChildrenNameFewQueues(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{MaxQueues: 3, Poll: never}, guests: map[string][]byte{"breeding": breeding(t)},
		yaml: map[string]string{"breeding": fmt.Sprintf(breedingManifest, ", after: call")},
	})
	n.settled("breeding") // which is one of the three
	for i, want := range []string{"", "", "-11", ""} {
		name := fmt.Sprint("many.", i%3)
		task := n.wait(n.enqueue("breeding", "c1"+name))
		if got := string(task.Result); want != "" && got != want || want == "" && len(got) != 36 {
			t.Errorf("%s: %q, want %q: %+v", name, got, want, task.Failure())
		}
		if want == "" {
			continue
		}
		lines, err := manage.New(n.client).Log(n.ctx, task.ID, 0)
		if err != nil || len(lines) != 1 || !strings.Contains(lines[0].Text, "the tenant has 3 queues, and the host lets handlers add no more: "+
			"use one of them, or raise --max-queues") {
			t.Errorf("log %+v, %v", lines, err)
		}
	}
	// What exists takes tasks, also if no poll has seen it.
	if err := n.rdb.ZAdd(n.ctx, n.tenant+"_queues", redis.Z{Member: "many.unseen"}).Err(); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(n.enqueue("breeding", "c1many.unseen")); len(task.Result) != 36 {
		t.Errorf("%q: %+v", task.Result, task.Failure())
	}
}

// However many queues a tenant has in Redis, and has had here, the series of few are kept.
func TestSeriesOfFewQueues(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		Config: Config{MaxQueues: 5}, guests: map[string][]byte{"a": runtimetest.Empty(t)}, yaml: map[string]string{"a": "queues: [a0]"},
	})
	n.serving("a0")
	if err := listen.NewFleet(n.client).SetMaxQueues(n.ctx, 0); err != nil { // as for clients other than Quern's
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := n.client.Queue(fmt.Sprint("other", i)).Enqueue(n.ctx, nil, queue.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	hostile := make([]redis.Z, 9_979) // with a0 and those others, 10,000 queues
	for i := range hostile {
		hostile[i].Member = fmt.Sprint("hostile", i)
	}
	if err := n.rdb.ZAdd(n.ctx, n.tenant+"_queues", hostile...).Err(); err != nil {
		t.Fatal(err)
	}
	samples, err := n.samples()
	if err != nil || len(samples) != 5 || samples[0].Queue != "a0" {
		t.Errorf("samples %+v, %v", samples, err)
	}
	if hidden := n.metric("quern_queues_hidden", "tenant", n.tenant); hidden != 9_995 {
		t.Errorf("%v queues are hidden, want 9,995", hidden)
	}
	n.eventually("a scrape with a line for each of five queues", func() bool {
		return strings.Count(n.scrape(), "\nquern_queue_listeners{queue=") == 5
	})
	for i := range 12 {
		name := fmt.Sprint("a", i)
		n.write("a.yaml", []byte("queues: ["+name+"]"))
		n.serving(name)
		if task := n.wait(n.enqueue(name, "")); task.Status != queue.Complete {
			t.Fatalf("%+v", task)
		}
	}
	n.eventually("the series of few queues are left", func() bool {
		families, err := n.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, family := range families {
			if family.GetName() != "quern_task_wait_seconds" {
				continue
			}
			for _, metric := range family.Metric {
				for _, label := range metric.Label {
					if label.GetName() == "queue" {
						names[label.GetValue()] = true
					}
				}
			}
		}
		return names["a11"] && !names["a0"] && len(names) <= 6
	})
}
