package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// Handlers that ask are told that the host ends, and complete long before the grace period is over.
func TestDrainTellsHandlers(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Concurrency: 4, Grace: time.Hour}, guests: map[string][]byte{"willing": willing(t)}})
	n.settled("willing")
	ids := n.enqueueMany("willing", 2, "")
	n.eventually("both run", func() bool { return n.log.lines("plugin says", "ready") == 2 })
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if task := n.task(id); task.Status != queue.Complete || string(task.Result) != "told" {
			t.Errorf("task is %s: %q %s", task.Status, task.Result, task.Error)
		}
	}
	n.gone("willing")
}

// A task that somebody cancels is stopped, and not asked.
func TestCancelledHandlerIsStopped(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"willing": willing(t)}})
	n.settled("willing")
	id := n.enqueue("willing", "")
	n.eventually("it runs", func() bool { return n.log.has("plugin says", "ready") })
	if _, err := n.client.Queue("willing").Cancel(n.ctx, id); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(id); task.Status != queue.Failed || task.Reason != queue.ReasonCancelled {
		t.Errorf("task is %s, %s: %q", task.Status, task.Reason, task.Result)
	}
}

// A plugin that was idle for long is unloaded, and its next task runs.
func TestIdlePluginIsUnloaded(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		engine: runtime.Config{IdleUnload: 100 * time.Millisecond}, guests: map[string][]byte{"p": numbered(t, "1")},
	})
	n.settled("p")
	for range 2 {
		n.answers("p", "1")
		if n.engine.Held() == 0 {
			t.Error("nothing is held after a task")
		}
		n.eventually("the plugin is unloaded", func() bool { return n.engine.Held() == 0 })
	}
}

// A plugin that was unloaded comes back from the compile cache, or without it if somebody has removed that.
// The cache of an engine under test is a temporary folder.
func TestPluginComesBack(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	n := start(t, settings{guests: map[string][]byte{"p": numbered(t, "1")}})
	n.settled("p")
	unload := func() {
		t.Helper()
		n.engine.Relieve(n.ctx, n.engine.Held())
		if held := n.engine.Held(); held > 0 {
			t.Fatalf("%d bytes are held after a relief", held)
		}
	}
	n.answers("p", "1")
	before := cached(t, temporary)
	unload()
	n.answers("p", "1")
	after := cached(t, temporary)
	if len(before) != 1 || len(after) != 1 || !os.SameFile(before[0], after[0]) {
		t.Errorf("the module was compiled anew: %v is in the cache, and was %v", after, before)
	}
	unload()
	folders, err := filepath.Glob(filepath.Join(temporary, "quern-compiled-*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%v are compile caches: %v", folders, err)
	}
	if err := os.RemoveAll(folders[0]); err != nil {
		t.Fatal(err)
	}
	n.answers("p", "1")
	if now := cached(t, temporary); len(now) != 1 {
		t.Errorf("%v is in the cache", now)
	}
}

// answers runs a task on a numbered handler.
func (n *node) answers(queueName, number string) {
	n.t.Helper()
	if task := n.wait(n.enqueue(queueName, "0")); string(task.Result) != number {
		n.t.Fatalf("task is %s: %q %s", task.Status, task.Result, task.Error)
	}
}

// cached are the entries of the compile caches in a folder.
func cached(t *testing.T, dir string) (entries []os.FileInfo) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "quern-compiled-*", "wazero-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, info)
	}
	return entries
}

// A handler that is replaced keeps the instance that runs until its task has ended, and then has none.
func TestSwapWaitsForTheLastCall(t *testing.T) {
	t.Parallel()
	old, young := numbered(t, "1"), numbered(t, "2")
	n := start(t, settings{guests: map[string][]byte{"p": old}})
	n.settled("p")
	n.wait(n.enqueue("p", "0"))
	alone := n.engine.Holdings()
	slow := n.enqueue("p", "9")
	n.eventually("it runs", func() bool { return n.engine.Holdings().Busy == 1 })
	n.install("p", young)
	var task *queue.Task
	for task = n.wait(n.enqueue("p", "0")); string(task.Result) != "2"; task = n.wait(n.enqueue("p", "0")) {
		if string(task.Result) != "1" {
			t.Fatalf("task is %s: %q %s", task.Status, task.Result, task.Error)
		}
	}
	if task.Digest != digest(young) {
		t.Errorf("the new version is %s, want %s", task.Digest, digest(young))
	}
	if task := n.wait(slow); string(task.Result) != "1" || task.Digest != digest(old) {
		t.Errorf("task of the old version is %s: %q %s, on %s", task.Status, task.Result, task.Error, task.Digest)
	}
	n.eventually("the old version is gone", func() bool {
		now := n.engine.Holdings()
		return now.Code <= alone.Code && now.Busy == 0 && now.Idle == 1
	})
}

// Under a load of handlers' tasks of all lengths, with the plugin replaced all the time, each task ends
// on the version that it began with, and of the old versions nothing is left.
func TestSwapHandlersUnderLoad(t *testing.T) {
	t.Parallel()
	const versions, swaps, batch = 4, 12, 40
	modules := make([][]byte, versions)
	digests := make(map[string]string)
	for i := range modules {
		modules[i] = numbered(t, fmt.Sprint(i))
		digests[fmt.Sprint(i)] = digest(modules[i])
	}
	n := start(t, settings{Config: Config{Concurrency: 16}, guests: map[string][]byte{"p": modules[0]}})
	n.settled("p")
	var ids []string
	for swap := range swaps {
		ids = append(ids, n.enqueueMany("p", 2, "3")...)
		short := n.enqueueMany("p", batch, "0")
		ids = append(ids, short...)
		n.wait(short[0]) // that one has run on this version
		n.install("p", modules[(swap+1)%versions])
		n.eventually("it is replaced", func() bool { return n.log.lines("plugin loaded", "replaces=") == swap+1 })
	}
	n.complete("p", ids)
	ran := make(map[string]int)
	for _, id := range ids {
		task := n.task(id)
		if want, known := digests[string(task.Result)]; !known || task.Digest != want {
			t.Errorf("%q was written by %s, want %s", task.Result, task.Digest, want)
		}
		ran[string(task.Result)]++
	}
	if len(ran) != versions {
		t.Errorf("%v ran, want all of %d versions", ran, versions)
	}
	n.install("p", bulky(t, "1"))
	n.eventually("only the last version is left", func() bool {
		got := n.engine.Holdings()
		return got.Idle == 0 && got.Busy == 0 && got.Snapshots == 0
	})
}

// Redis hands out an ID that still runs here: the former run is stopped, and the new one waits for its end. Nothing outlasts the host.
func TestOneRunOfATask(t *testing.T) {
	t.Parallel()
	const id = "once"
	for what, forget := range map[string]func(n *node){
		"deleted by hand and enqueued anew": func(n *node) {
			n.rdb.Del(n.ctx, n.tenant+"_task_"+id)
			n.enqueueAs("a", "0", queue.Options{ID: id})
		},
		"forgotten by a server that lost its last second": func(n *node) {
			_, err := n.rdb.TxPipelined(n.ctx, func(p redis.Pipeliner) error {
				p.HSet(n.ctx, n.tenant+"_task_"+id, "status", "pending", "run", 0, "parameters", "0")
				p.LRem(n.ctx, n.tenant+"_reserved_tasks_a_"+n.listener(), 0, id)
				p.LPush(n.ctx, n.tenant+"_pending_tasks_a", id)
				p.Publish(n.ctx, n.tenant+"_channel_a", "")
				return nil
			})
			if err != nil {
				n.t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := start(t, settings{
				Config: Config{Concurrency: 2, Grace: time.Hour}, hclog: hclog.Info, guests: map[string][]byte{"a": runtimetest.Sleep(t)},
			})
			n.enqueueAs("a", "3600000", queue.Options{ID: id})
			n.eventually("it runs", func() bool { return n.log.has("plugin says", "task_id="+id, "line=ready") })
			forget(n)
			if task := n.wait(id); task.Status != queue.Complete {
				t.Errorf("the task is %s: %s", task.Status, task.Error)
			}
			n.counted(1, "quern_tasks_total", "outcome", "lost")
			if err := n.stop(); err != nil { // though the grace is an hour
				t.Error(err)
			}
		})
	}
}
