package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// breeding is a handler that enqueues: its input is a letter that says how it ends (c: complete, f: fail, t: trap), a
// digit for how many tasks more, and the queue; the rest are the options, behind a space. It writes the last answer, if
// that is an error, else the last ID.
func breeding(t testing.TB) []byte {
	t.Helper()
	return runtimetest.BuildCHandler(t, `
#include "quern.h"
static char input[20000], id[200];
QUERN_HANDLER int32_t handle(void) {
	uint32_t size = quern_input_read(0, input, sizeof input), end = 2;
	while (end < size && input[end] != ' ') end++;
	uint32_t options = end < size ? end + 1 : end;
	int32_t answer = 0;
	for (int i = input[1] == '*' ? 257 : input[1] - '0'; i > 0; i--)
		answer = quern_enqueue(input + 2, end - 2, input, size, input + options, size - options);
	if (input[0] == 't') __builtin_trap();
	if (input[0] == 'f') return 1;
	if (answer >= 0) return quern_output_write(id, quern_result_read(0, id, sizeof id));
	char digits[3] = {'-', '0' + -answer / 10, '0' + -answer % 10};
	return quern_output_write(digits, 3);
}`)
}

const breedingManifest = `
retry: {max_attempts: 1}
capabilities:
  enqueue: {queues: [born, breeding, "many.*"]%s}
`

// breed starts a host with that handler.
func breed(t testing.TB, more string) *node {
	t.Helper()
	return start(t, settings{
		guests: map[string][]byte{"breeding": breeding(t)}, yaml: map[string]string{"breeding": fmt.Sprintf(breedingManifest, more)},
	})
}

// A task's children come into being when it completes, and not if it fails.
func TestChildren(t *testing.T) {
	t.Parallel()
	n := breed(t, "")
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	parent := n.wait(n.enqueueAs("breeding", `c2born {"key":"k","labels":{"a":"b"},"priority":70}`, queue.Options{Traceparent: trace}))
	n.count("born", queue.Pending, 2)
	child := n.task(string(parent.Result))
	if child.Parent != parent.ID || child.Depth != 1 || child.Traceparent != trace || child.Key != "k" || child.Labels["a"] != "b" ||
		child.Priority != 70 || string(child.Parameters) != string(parent.Parameters) {
		t.Errorf("child %+v of %+v", child, parent)
	}
	for _, end := range []string{"f", "t"} {
		if task := n.wait(n.enqueue("breeding", end+"2born")); task.Status != queue.Failed {
			t.Errorf("%+v", task)
		}
	}
	n.count("born", queue.Pending, 2)
	if task := n.wait(n.enqueue("breeding", `c1born {"id":"named"}`)); string(task.Result) != "named" || n.task("named").Parent != task.ID {
		t.Errorf("%+v", task)
	}
}

// By after: call they come into being at once, and the queue's limit holds.
func TestChildrenAtOnce(t *testing.T) {
	t.Parallel()
	n := breed(t, ", after: call")
	n.wait(n.enqueue("breeding", "t2born"))
	n.count("born", queue.Pending, 2)
	if err := n.client.Queue("born").SetLimit(n.ctx, 3); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(n.enqueue("breeding", "c1born")); len(task.Result) != 36 {
		t.Errorf("%q: %+v", task.Result, task.Failure())
	}
	if task := n.wait(n.enqueue("breeding", "c1born")); string(task.Result) != "-06" { // EQUOTA
		t.Errorf("%q, want EQUOTA: %+v", task.Result, task.Failure())
	}
	n.count("born", queue.Pending, 3)

	if err := n.rdb.SAdd(n.ctx, n.tenant+"_pending_tasks_many.y", "no list").Err(); err != nil {
		t.Fatal(err)
	}
	if task := n.wait(n.enqueue("breeding", "c1many.y")); string(task.Result) != "-09" { // EAGAIN
		t.Errorf("%q: %+v", task.Result, task.Failure())
	}
	if !n.log.has("[WARN]", "a task cannot enqueue", "many.y") {
		t.Error("the host's log does not have the damaged queue")
	}
}

// A task enqueues as many as its manifest and its tenant's ceiling grant, and of as many bytes, whenever they come into being
// and whatever its output may have; in its next attempt the same again.
func TestChildrenAreBounded(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1000) // the input, which each child has as its parameters
	for name, tt := range map[string]struct {
		manifest, grants, input string
		result                  string // of the last enqueue: ELIMIT, or that of an ID
		born                    int64
		line                    string
	}{
		"Default":         {", after: call", "", "c*born", "-11", 256, "a task may enqueue 256 tasks: raise capabilities.enqueue.tasks"},
		"More":            {", after: call, tasks: 300", "", "c*born", "", 257, ""},
		"Less":            {", tasks: 2", "", "c3born", "-11", 2, "a task may enqueue 2 tasks: raise capabilities.enqueue.tasks"},
		"Bytes":           {", bytes: 4kB", "", "c3born " + big, "-11", 2, "tasks of 4kB together, and this one of 1993B is more than is left: raise capabilities.enqueue.bytes"},
		"BytesAtOnce":     {", after: call, bytes: 4kB", "", "c3born " + big, "-11", 2, "raise capabilities.enqueue.bytes"},
		"CeilingOfTasks":  {", after: call", "after: call, tasks: 1", "c2born", "-11", 1, `add capabilities: {enqueue: {tasks: 256}} to "%s" in g.yaml`},
		"CeilingOfBytes":  {"", "bytes: 2kB", "c2born " + big, "-11", 1, `add capabilities: {enqueue: {bytes: 16MiB}} to "%s" in g.yaml`},
		"OtherAttempts":   {", after: call, tasks: 1", "", "f1born", "", 2, ""},
		"RefusedTakeNone": {", after: call, tasks: 1", "", "c1other", "-03", 0, `add "other" to queues in capabilities.enqueue`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant, options := queuetest.Tenant(), ""
			if input, padding, ok := strings.Cut(tt.input, " "); ok {
				tt.input, options = input, ` {"key":"`+padding[:len(padding)-50]+`"}`
			}
			var grants *manifest.Grants
			if tt.grants != "" {
				var err error
				grants, err = manifest.ParseGrants("g.yaml", fmt.Appendf(nil, `%s: {capabilities: {enqueue: {queues: ["*"], %s}}}`, tenant, tt.grants))
				if err != nil {
					t.Fatal(err)
				}
			}
			n := start(t, settings{
				tenants: []string{tenant}, grants: grants, guests: map[string][]byte{"breeding": breeding(t)},
				yaml: map[string]string{"breeding": "limits: {output: 1MiB}\n" +
					strings.Replace(fmt.Sprintf(breedingManifest, tt.manifest), "max_attempts: 1", "max_attempts: 2, min: 1ms, max: 1ms", 1)},
			})
			task := n.wait(n.enqueue("breeding", tt.input+options))
			if got := string(task.Result); tt.result != "" && got != tt.result || tt.result == "" && tt.input[0] == 'c' && len(got) != 36 {
				t.Errorf("%q, want %q: %+v", got, tt.result, task.Failure())
			}
			n.count("born", queue.Pending, tt.born)
			want := strings.ReplaceAll(tt.line, "%s", tenant)
			lines, err := manage.New(n.client).Log(n.ctx, task.ID, 0)
			if err != nil || want != "" && (len(lines) != 1 || !strings.Contains(lines[0].Text, want)) {
				t.Errorf("log %+v, %v, want %s", lines, err, want)
			}
		})
	}
}

// What a task may not enqueue is refused, and the log says why.
func TestChildrenRefused(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"breeding": breeding(t)},
		yaml:   map[string]string{"breeding": strings.Replace(fmt.Sprintf(breedingManifest, ", depth: 3"), `"many.*"`, `"many.*", "*hook"`, 1)},
	})
	if _, err := n.client.Subscribe(n.ctx, queue.Subscription{ID: "hook", Topic: "t", Webhook: &queue.Webhook{URL: "https://example.com"}}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ input, want, line string }{
		"Queue":   {"c1other", "-03", `queue "other" is not granted: add "other" to queues in capabilities.enqueue`},
		"Option":  {`c1born {"delay":1}`, "-01", `the options: json: unknown field "delay"`},
		"Tries":   {`c1born {"max_attempts":-1}`, "-01", "max_attempts -1: use 1 or more"},
		"Value":   {`c1born {"priority":101}`, "-01", "priority 101: use 0 to 100"},
		"Labels":  {`c1born {"key":"` + strings.Repeat("k", 16<<10-10) + `"}`, "-01", "at most 16384 together"},
		"Delay":   {`c1born {"delay_ms":9223372036854775807}`, "-01", "delay 876000h0m0.001s: use 0s to"},
		"Name":    {"c1many.\x7f", "-01", "use 1 to 128 printable"},
		"Many":    {"c*born", "-11", "a task may enqueue 256 tasks: raise capabilities.enqueue.tasks"},
		"Pattern": {"c1many.x", "", ""},
		"Webhook": {"c1webhook.hook", "-01", `queue "webhook.hook": queues that begin with webhook. accept only publications`},
		"Posing":  {`c1born {"id":"` + queue.PublishedID("p", "hook") + `"}`, "-01", "only publications and dead letters have such IDs"},
	} {
		task := n.wait(n.enqueue("breeding", tt.input))
		if tt.want != "" && string(task.Result) != tt.want || tt.want == "" && len(task.Result) != 36 {
			t.Errorf("%s: %q, want %s: %+v", name, task.Result, tt.want, task.Failure())
		}
		lines, err := manage.New(n.client).Log(n.ctx, task.ID, 0)
		if err != nil || tt.line != "" && (len(lines) != 1 || !strings.Contains(lines[0].Text, tt.line)) {
			t.Errorf("%s: log %+v, %v, want %s", name, lines, err, tt.line)
		}
	}
	n.count("born", queue.Pending, 256)

	// A circle ends: each task enqueues one to its own queue.
	id, results := n.enqueue("breeding", "c1breeding"), []string{}
	for task := n.wait(id); ; task = n.wait(string(task.Result)) {
		if results = append(results, string(task.Result)); len(task.Result) != 36 {
			break
		}
	}
	if len(results) != 4 || results[3] != "-11" {
		t.Errorf("the chain's results are %q", results)
	}
}

// A queue that somebody damaged fails the task whose children it would get, and nothing else.
func TestChildrenOfADamagedQueue(t *testing.T) {
	t.Parallel()
	n := breed(t, "")
	if err := n.rdb.SAdd(n.ctx, n.tenant+"_pending_tasks_born", "no list").Err(); err != nil {
		t.Fatal(err)
	}
	bad, good := n.enqueue("breeding", "c1born"), n.enqueue("breeding", "c1many.x")
	if task := n.wait(bad); task.Status != queue.Failed || !strings.Contains(task.Error, `enqueue in \"born\"`) {
		t.Errorf("%+v", task)
	}
	if task := n.wait(good); task.Status != queue.Complete {
		t.Errorf("%+v", task)
	}
}

// A task whose children would exceed twice a quota of its tenant is tried again, and completes when there is room.
func TestChildrenOverAQuota(t *testing.T) {
	t.Parallel()
	n := breed(t, "")
	quotas := func(most string) {
		t.Helper()
		if err := manage.SetQuotas(n.ctx, n.clientOf(n.tenant), manage.Quotas{"tasks_waiting": most}); err != nil {
			t.Fatal(err)
		}
	}
	quotas("1")
	n.count("born", queue.Pending, 0)
	id, err := n.clientOf(n.tenant).Queue("breeding").Enqueue(n.ctx, []byte("c3born"), queue.Options{
		Retry: queue.Retry{MaxAttempts: 1000, Min: time.Millisecond, Base: time.Millisecond, Max: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.eventually("the task has been refused and tried again", func() bool {
		task, err := n.client.Task(n.ctx, id)
		return err == nil && task.Attempts > 1 && strings.Contains(task.LastError, "the quota tasks_waiting of tenant")
	})
	quotas("2")
	if task := n.wait(id); task.Status != queue.Complete {
		t.Errorf("%+v", task)
	}
	n.count("born", queue.Pending, 3)
}

// Children are there once, whatever becomes of the answers from Redis.
func TestChildrenThroughAnOutage(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"AfterComplete": "", "AfterCall": ", after: call"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := queuetest.Start(t)
			proxy := queuetest.NewProxy(t, server)
			n := start(t, settings{
				server: server, proxy: proxy, guests: map[string][]byte{"breeding": breeding(t)},
				yaml: map[string]string{"breeding": fmt.Sprintf(breedingManifest, more)},
			})
			n.serving("breeding")
			proxy.CutReplies(1, "parent") // what says whose child it is
			if task := n.wait(n.enqueue("breeding", "c1born")); task.Status != queue.Complete || len(task.Result) != 36 {
				t.Errorf("%q: %+v", task.Result, task.Failure())
			}
			n.eventually("the reply is cut", func() bool { return proxy.Cuts() == 1 }) // the waiter may hear of the end first
			n.count("born", queue.Pending, 1)
		})
	}
}
