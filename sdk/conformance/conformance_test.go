package conformance_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// build builds a language's guest by the script in its folder. One that needs an interpreter is skipped without.
func build(t *testing.T, language, engine string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), language+".wasm")
	cmd := exec.CommandContext(t.Context(), "sh", "./build")
	cmd.Dir, cmd.Env = language, append(os.Environ(), "OUT="+out)
	if engine != "" {
		cmd.Env = append(cmd.Env, "ENGINE="+runtimetest.Engine(t, engine))
	}
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest in %s: %v\n%s", language, err, said)
	}
	guest, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return guest
}

func TestConformance(t *testing.T) {
	t.Parallel()
	all := read(t)
	for _, language := range folders(t) {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			n := start(t, folder(t, build(t, language, all.Languages[language].Engine)))
			t.Run("behaviors", func(t *testing.T) {
				for _, b := range all.Behaviors {
					t.Run(b.Name, func(t *testing.T) {
						t.Parallel()
						if why := all.lacks(language, b); why != "" {
							t.Skipf("not in %s: %s", language, why)
						}
						n := n.bounded(t)
						if b.Plugin == "databases" {
							n.withDatabase(t)
						}
						n.behave(t, b)
					})
				}
			})
			t.Run("cancelled", func(t *testing.T) { n.bounded(t).endsWithHost(t) })
		})
	}
}

// behave runs a behavior's task, and compares what becomes of it.
func (n *node) behave(t *testing.T, b behavior) {
	t.Helper()
	if b.Held > 0 {
		n.holds(t, b)
		return
	}
	first := n.run(t, b, b.Name)
	n.compare(t, b, first)
	if !b.Again {
		return
	}
	second := n.run(t, b, b.Name+".again")
	if b.Differs && string(first.Result) == string(second.Result) {
		t.Errorf("twice the result %q", first.Result)
	}
	n.compare(t, b, second)
}

// holds checks that a task, and one that is enqueued with its key after its first run, wait equally long.
func (n *node) holds(t *testing.T, b behavior) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	waits := func(id string) *queue.Task {
		n.enqueue(t, b, id)
		for range ticker.C {
			task, err := n.client.Task(n.ctx, id)
			if err != nil || task.Status.Finished() {
				t.Fatalf("%+v, %v", task, err)
			}
			if task.Status == queue.Scheduled {
				return task
			}
		}
		return nil
	}
	first, second := waits(b.Name), waits(b.Name+".next")
	if first.Reschedules != b.Reschedules || first.ETA.Sub(first.Updated) != b.Held || first.Held {
		t.Errorf("put off %d times, by %s, held %t", first.Reschedules, first.ETA.Sub(first.Updated), first.Held)
	}
	if second.Run != 0 || !second.Held || second.ETA.Sub(first.ETA).Abs() > time.Millisecond {
		t.Errorf("the next one had %d runs, is held %t, until %s; the first one waits until %s", second.Run, second.Held, second.ETA, first.ETA)
	}
}

// run enqueues a task and waits for its end.
func (n *node) run(t *testing.T, b behavior, id string) *queue.Task {
	t.Helper()
	n.enqueue(t, b, id)
	task, err := n.client.Wait(n.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (n *node) enqueue(t *testing.T, b behavior, id string) {
	t.Helper()
	input := strings.Repeat(addressed(b.Input), max(b.Times, 1))
	if b.Pad > 0 {
		input += "#" + strings.Repeat("x", b.Pad-len(input)-1)
	}
	var after []string
	for _, one := range b.Task.After {
		after = append(after, one[0])
		if _, err := n.client.Queue(cmp.Or(b.Plugin, "kit")).Enqueue(n.ctx, []byte(one[1]), queue.Options{ID: one[0]}); err != nil {
			t.Fatal(err)
		}
	}
	when := queue.When("")
	if after != nil {
		when = queue.WhenEnded
	}
	var deadline time.Time
	if b.Task.Deadline > 0 {
		deadline = time.Now().Add(b.Task.Deadline).Truncate(time.Minute) // guests write it in whole minutes
	}
	_, err := n.client.Queue(cmp.Or(b.Plugin, "kit")).Enqueue(n.ctx, []byte(input), queue.Options{
		ID: id, Key: b.Task.Key, Parent: b.Task.Parent, Depth: b.Task.Depth, Traceparent: b.Task.Traceparent, Headers: b.Task.Headers, Deadline: deadline,
		After: after, When: when,
		Retry: queue.Retry{MaxAttempts: b.Task.Attempts, Base: 10 * time.Millisecond, Min: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// compare compares a task with what was to become of it.
func (n *node) compare(t *testing.T, b behavior, task *queue.Task) {
	t.Helper()
	var got queue.Failure
	if task.Status == queue.Failed {
		got = task.Failure()
	}
	exit := 0
	if got.ExitCode != nil {
		exit = *got.ExitCode
	}
	want := strings.NewReplacer("{id}", task.ID, "{tenant}", n.tenant, "{plugin}", task.Plugin, "{deadline}", fmt.Sprint(task.Deadline.Unix()/60)).Replace(b.result())
	pattern := strings.NewReplacer(`\{hex\}`, "[0-9a-f]{16}", `\{uuid\}`, "[0-9a-f-]{36}").Replace(regexp.QuoteMeta(want))
	if !regexp.MustCompile("^" + pattern + "$").Match(task.Result) {
		t.Errorf("result\n%swant\n%s%+v", task.Result, want, got)
	}
	if string(got.Reason) != b.Reason || !like(got.Message, b.Error) || exit != b.Exit {
		t.Errorf("failed for the reason %q with %q, exit %d; want %q with %q, exit %d",
			got.Reason, got.Message, exit, b.Reason, b.Error, b.Exit)
	}
	if task.Attempts != max(b.Attempts, 1) || task.Reschedules != b.Reschedules {
		t.Errorf("%d attempts and %d reschedules, want %d and %d", task.Attempts, task.Reschedules, max(b.Attempts, 1), b.Reschedules)
	}
	if took := task.FinishedAt.Sub(task.Created); took < b.Takes {
		t.Errorf("it took %v, want at least %v", took, b.Takes)
	}
	if task.Progress != b.Progress || task.Message != b.Message {
		t.Errorf("progress %v %q, want %v %q", task.Progress, task.Message, b.Progress, b.Message)
	}
	n.compareLog(t, b, task.ID)
	n.comparePublications(t, b)
	n.compareChildren(t, b, task)
}

func (n *node) compareLog(t *testing.T, b behavior, id string) {
	t.Helper()
	lines, err := manage.New(n.client).Log(n.ctx, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range lines {
		got = append(got, line.Text)
	}
	if slices.Equal(b.Log, []string{"…"}) {
		return
	}
	if !slices.EqualFunc(got, b.Log, func(got, want string) bool { return likeLine(got, addressed(want)) }) {
		t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(b.Log, "\n"))
	}
}

// like compares a text, or its beginning if what is wanted goes on with …, or its end if that is before it.
func like(got, want string) bool {
	beginning, begins := strings.CutSuffix(want, "…")
	end, ends := strings.CutPrefix(want, "…")
	return got == want || begins && strings.HasPrefix(got, beginning) || ends && strings.HasSuffix(got, end)
}

// likeLine compares lines of a log, and their fields as the JSON that they are: languages write it in several ways.
func likeLine(got, want string) bool {
	text, fields, _ := strings.Cut(got, " {")
	wantText, wantFields, _ := strings.Cut(want, " {")
	var values, wantValues map[string]any
	if json.Unmarshal([]byte("{"+fields), &values) != nil || json.Unmarshal([]byte("{"+wantFields), &wantValues) != nil {
		return like(got, want)
	}
	return text == wantText && reflect.DeepEqual(values, wantValues)
}

// result is what the task's is to be.
func (b behavior) result() string {
	first, _, _ := strings.Cut(b.Result, "\n")
	return strings.Repeat(first+"\n", max(b.Repeated-1, 0)) + b.Result
}

// children is how many tasks there are that a task has enqueued.
func (n *node) children(t *testing.T, parent string) (count int) {
	t.Helper()
	const most = 1000
	for _, name := range []string{"children", "mail.a", "mail.full"} { // of those that manifest.yaml grants
		for _, status := range []queue.Status{queue.Pending, queue.Scheduled, queue.Failed} {
			tasks, err := manage.New(n.client).Queue(name).List(n.ctx, manage.ListOptions{Status: status, Limit: most})
			if err != nil || len(tasks) == most {
				t.Fatalf("%d tasks of %s, %v", len(tasks), name, err)
			}
			for _, task := range tasks {
				if task.Parent == parent {
					count++
				}
			}
		}
	}
	return count
}

// comparePublications waits until all that a task has published has its tasks, and compares how many those are.
func (n *node) comparePublications(t *testing.T, b behavior) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for id, want := range b.Publications {
		for {
			p, err := n.client.Publication(n.ctx, id)
			if err == nil && (p.State == queue.PublicationDone || p.State == queue.PublicationDropped) {
				if p.Tasks != want {
					t.Errorf("publication %+v, want %d tasks", p, want)
				}
				break
			}
			if want < 0 && errors.Is(err, queue.ErrNoPublication) {
				break
			}
			select {
			case <-ticker.C:
			case <-n.ctx.Done():
				t.Fatalf("publication %s: %+v, %v", id, p, err)
			}
		}
	}
}

// compareChildren compares what a task has enqueued. Nobody serves those queues.
func (n *node) compareChildren(t *testing.T, b behavior, parent *queue.Task) {
	t.Helper()
	total := b.More
	for _, want := range b.Children {
		if want.Status != "" {
			total++
		}
	}
	if got := n.children(t, parent.ID); got != total {
		t.Errorf("%d children, want %d", got, total)
	}
	for _, want := range b.Children {
		if publication, ok := strings.CutPrefix(want.ID, "task of "); ok {
			tasks, err := manage.New(n.client).PublicationTasks(n.ctx, publication, 0, 1)
			if err != nil || len(tasks) == 0 {
				t.Errorf("publication %s has %v, %v", publication, tasks, err)
				continue
			}
			want.ID = tasks[0].ID
		}
		task, err := n.client.Task(n.ctx, want.ID)
		switch {
		case want.Status == "" && errors.Is(err, queue.ErrNoTask):
			continue
		case want.Status == "":
			t.Errorf("there is a child %s: %+v, %v", want.ID, task, err)
			continue
		case err != nil:
			t.Errorf("child: %v", err)
			continue
		}
		got := child{
			ID: task.ID, Queue: task.Queue, Status: string(task.Status), Body: string(task.Parameters),
			Key: task.Key, Label: task.Labels["kit"], Header: cmp.Or(task.Headers["kit"], task.Headers["ce-kit"]), Priority: task.Priority, Attempts: task.MaxAttempts, Timeout: task.Timeout,
			Fair: numbered(task.FairWeight, task.FairKey), Lane: numbered(task.MaxConcurrent, task.ConcurrencyKey),
		}
		if a := task.After; a != nil {
			state := "released"
			if a.Blocked {
				state = "blocked"
			}
			got.After = fmt.Sprint(state, " ", a.When, " ", a.Of, a.Ended, a.Failed)
		}
		if want.Size > 0 {
			got.Size, got.Body = len(got.Body), ""
		}
		if want.Priority = cmp.Or(want.Priority, queue.DefaultPriority); got != want {
			t.Errorf("child\n%+v, want\n%+v", got, want)
		}
		if task.Parent != parent.ID || task.Depth != parent.Depth+1 || task.Traceparent != parent.Traceparent {
			t.Errorf("child %s has the parent %q, depth %d and trace %q", task.ID, task.Parent, task.Depth, task.Traceparent)
		}
	}
}

// endsWithHost: a guest whose host is about to end is told so, and comes to its end. The host ends.
func (n *node) endsWithHost(t *testing.T) {
	id, err := n.client.Queue("kit").Enqueue(n.ctx, []byte("cancelled\nawait\n"), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for waiting := false; !waiting; {
		task, err := n.client.Task(n.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		waiting = task.Message == "waiting"
		select {
		case <-ticker.C:
		case <-n.ctx.Done():
			t.Fatal("the task never waited")
		}
	}
	n.terminate()
	task, err := n.client.Wait(n.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if want := "cancelled ok 0\nawait ok\n"; string(task.Result) != want {
		t.Errorf("result %q, want %q: %+v", task.Result, want, task.Failure())
	}
}

// numbered is a key with its number; "" if there is none.
func numbered(n int, key string) string {
	if key == "" {
		return ""
	}
	return fmt.Sprint(n, " ", key)
}
