package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// A chain of tasks goes on from end to end by messages alone, and each gets the result of the one before it.
func TestAChainGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: time.Hour}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	n.wait(n.enqueue("echo", "warm"))
	const steps = 50
	specs := []queue.Spec{{Parameters: []byte("first"), Options: queue.Options{ID: "0"}}}
	for i := 1; i < steps; i++ {
		specs = append(specs, queue.Spec{Options: queue.Options{ID: fmt.Sprint(i), After: []string{fmt.Sprint(i - 1)}}})
	}
	begun := time.Now()
	if _, err := n.client.Queue("echo").EnqueueMany(n.ctx, specs); err != nil {
		t.Fatal(err)
	}
	if last := n.wait(fmt.Sprint(steps - 1)); string(last.Result) != "first" {
		t.Errorf("the last one's result is %q", last.Result)
	}
	t.Logf("%s a step", time.Since(begun)/steps)
}

// What nobody told a host, it finds: an end whose message was lost, and one by a Python listener.
func TestEndsWithoutAWord(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: 200 * time.Millisecond}, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
	lost, python := n.enqueue("other", ""), n.enqueue("other", "")
	one := n.enqueueAs("echo", "", queue.Options{After: []string{lost}})
	two := n.enqueueAs("echo", "", queue.Options{After: []string{python}})
	n.rdb.HSet(n.ctx, n.tenant+"_task_"+lost, "status", "complete", "result", "lost")
	n.rdb.ZAdd(n.ctx, n.tenant+"_ended", redis.Z{Score: -2, Member: lost})
	if got := n.wait(one); string(got.Result) != "lost" {
		t.Errorf("%+v", got)
	}
	n.rdb.HSet(n.ctx, n.tenant+"_task_"+python, "status", "complete", "result", "python")
	if got := n.wait(two); string(got.Result) != "python" {
		t.Errorf("%+v", got)
	}
}

// A child may wait for the task that enqueues it, and for others; what it waits for and is not there has failed.
func TestChildrenWaitForTasks(t *testing.T) {
	t.Parallel()
	n := breed(t, "")
	for i, c := range []struct {
		after  string
		status queue.Status
		reason queue.Reason
	}{
		{`"after":["p0"]`, queue.Pending, ""},
		{`"after":["none"]`, queue.Failed, queue.ReasonDependency},
		{`"after":["none"],"when":"ended"`, queue.Pending, ""},
	} {
		id := fmt.Sprint("p", i)
		n.wait(n.enqueueAs("breeding", fmt.Sprintf(`c1born {"id":"c%d",%s}`, i, c.after), queue.Options{ID: id}))
		if child := n.task(fmt.Sprint("c", i)); child.Status != c.status || child.Reason != c.reason || child.Parent != id {
			t.Errorf("%s: %+v", c.after, child)
		}
	}
}

// A handler reads what its task waited for, as many as that may be, and the results one by one; what failed or goes on has none.
func TestAHandlerReadsResults(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"summing": runtimetest.BuildCHandler(t, `
#include "quern.h"
static char list[2000000], result[100];
QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_slot(quern_task_text(QUERN_TASK_DEPENDENCIES), list, sizeof list);
	if (size < 0) return quern_fail(QUERN_FATAL, "no list");
	quern_view rest = quern_view_of(list, (uint32_t)size), id, end;
	int64_t count = 0, sum = 0, without = 0;
	while (quern_next_dependency(&rest, &id, &end)) {
		if (count++ % 100 && quern_equal(QUERN_VIEW(end), QUERN_TEXT("complete"))) continue;
		int32_t digits = quern_slot(quern_dependency_result(QUERN_VIEW(id)), result, sizeof result);
		if (digits == QUERN_ENOTFOUND) without++;
		int64_t value = 0;
		for (int32_t i = 0; i < digits; i++) value = value * 10 + result[i] - '0';
		sum += value;
	}
	quern_builder b = quern_build(result, sizeof result);
	quern_add_number(&b, count);
	quern_add(&b, " ", 1);
	quern_add_number(&b, sum);
	quern_add(&b, " ", 1);
	quern_add_number(&b, without);
	return quern_output_write(QUERN_VIEW(b));
}`)}})
	var ids []string
	pipe := n.rdb.Pipeline()
	for i := range queue.MaxDependencies {
		ids = append(ids, fmt.Sprintf("summand-%d", i))
		ended := []any{"queue", "other", "status", "complete", "result", fmt.Sprint(i)}
		if i%1000 == 999 {
			ended = []any{"queue", "other", "status", "failed"}
		}
		pipe.HSet(n.ctx, n.tenant+"_task_"+ids[i], ended...)
	}
	if _, err := pipe.Exec(n.ctx); err != nil {
		t.Fatal(err)
	}
	all := n.wait(n.enqueueAs("summing", "", queue.Options{After: ids, When: queue.WhenEnded}))
	if want := "10000 495000 10"; string(all.Result) != want {
		t.Errorf("result %q, want %q: %s", all.Result, want, all.Error)
	}
	going := n.enqueue("other", "")
	some := n.wait(n.enqueueAs("summing", "", queue.Options{After: []string{ids[200], ids[300], going}, When: queue.WhenAny}))
	if want := "3 200 1"; string(some.Result) != want {
		t.Errorf("result %q, want %q: %s", some.Result, want, some.Error)
	}
	if none := n.wait(n.enqueue("summing", "")); string(none.Result) != "0 0 0" {
		t.Errorf("result %q: %s", none.Result, none.Error)
	}
}

// A handler that reads the result of a failed dependency learns its error.
func TestAHandlerReadsNoResult(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{
		"failing": runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) { return quern_fail(QUERN_FATAL, "no ink"); }`),
		"reading": runtimetest.BuildCHandler(t, `
#include "quern.h"
static char text[1000];
QUERN_HANDLER int32_t handle(void) {
	if (quern_dependency_result(QUERN_TEXT("bad")) != QUERN_ENOTFOUND) return quern_fail(QUERN_FATAL, "it has a result");
	int32_t size = quern_slot(quern_task_text(QUERN_TASK_REFUSAL), text, sizeof text);
	return size < 0 ? QUERN_FAILED : quern_output_write(text, (uint32_t)size);
}`),
	}})
	n.wait(n.enqueueAs("failing", "", queue.Options{ID: "bad"}))
	task := n.wait(n.enqueueAs("reading", "", queue.Options{After: []string{"bad"}, When: queue.WhenEnded}))
	if want := "task bad failed and has no result: (fatal) no ink"; string(task.Result) != want {
		t.Errorf("result %q, want %q: %s", task.Result, want, task.Error)
	}
	if log := n.taskLog(task.ID); len(log) != 0 { // it is no refusal
		t.Errorf("the task's log has %+v", log)
	}
}
