package api_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// ids are the IDs of all pages of a list.
func ids(t *testing.T, w *world, path string) (all []string) {
	t.Helper()
	for next := ""; ; {
		page := get[api.List[admin.Task]](t, w, path+next)
		for _, task := range page.Items {
			all = append(all, task.ID)
		}
		if page.Next == "" {
			return all
		}
		next = "&cursor=" + page.Next
	}
}

func TestSearch(t *testing.T) {
	w := setup(t)
	printer, disk := w.fail(t, "a", "Printer on FIRE"), w.fail(t, "b", "disk full")
	keyed := w.enqueue(t, "b", "x", queue.Options{Key: "k", Labels: map[string]string{"to": "ada"}})
	specs := make([]queue.Spec, 1200)
	for i := range specs {
		specs[i].ID = fmt.Sprintf("many-%04d", i)
	}
	_, err := w.Queue("many").EnqueueMany(w.ctx, specs)
	must(t, err)

	for filter, want := range map[string][]string{
		"status=failed":             {printer, disk},
		"status=failed&queue=b":     {disk},
		"error=printer%20on":        {printer},
		"reason=error&limit=1":      {printer, disk},
		"key=k":                     {keyed},
		"label=to%3Dada":            {keyed},
		"label=to%3Dada&label=x%3D": nil,
		"plugin=p":                  {printer, disk},
		"dead_letters=true":         nil,
		"until=1":                   nil,
	} {
		if got := ids(t, w, "/tasks?"+filter); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, want %v", filter, got, want)
		}
	}
	seen := map[string]bool{}
	all := ids(t, w, "/tasks?queue=many&limit=170")
	for _, id := range all {
		seen[id] = true
	}
	if len(all) != len(specs) || len(seen) != len(specs) {
		t.Errorf("pages have %d tasks, %d different ones; want %d", len(all), len(seen), len(specs))
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks?cursor=x"}), http.StatusBadRequest, "cursor")
	for _, number := range []string{"NaN", "inf", "-Infinity"} {
		refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks?since=" + number}), http.StatusUnprocessableEntity, "query.since")
	}
	must(t, w.rdb.Set(w.ctx, w.Tenant()+"_tasks_a", "damaged", 0).Err())
	if got := ids(t, w, "/tasks?label=to%3Dada"); len(got) != 1 || got[0] != keyed {
		t.Errorf("beside a damaged queue: %v", got)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks?label=x"}), http.StatusBadRequest, "NAME=VALUE")
}

// A search with few matches among many tasks answers when its budget is used up, says so, and goes on from there.
func TestSearchBudget(t *testing.T) {
	w := setup(t)
	const tasks = 30_000
	specs := make([]queue.Spec, tasks)
	_, err := w.Queue("many").EnqueueMany(w.ctx, specs)
	must(t, err)
	needle := w.enqueue(t, "z", "x", queue.Options{Labels: map[string]string{"needle": ""}})
	pages, found := 0, []string(nil)
	for next := ""; ; pages++ {
		page := get[api.List[admin.Task]](t, w, "/tasks?label=needle%3D"+next)
		for _, task := range page.Items {
			found = append(found, task.ID)
		}
		if page.Next == "" {
			break
		}
		if !page.Partial {
			t.Error("a search that did not see everything does not say so")
		}
		next = "&cursor=" + page.Next
	}
	if pages == 0 || len(found) != 1 || found[0] != needle {
		t.Errorf("found %v after %d partial answers", found, pages)
	}
}

func makeJob(t *testing.T, w *world, action string, filter map[string]any, start bool) admin.Job {
	t.Helper()
	return post[admin.Job](t, w, "/jobs", map[string]any{"action": action, "filter": filter, "start": start}, http.StatusOK)
}

// awaitJob waits until a job has a state.
func awaitJob(t *testing.T, w *world, id string, state manage.JobState) (job admin.Job) {
	t.Helper()
	eventually(t, "the job is "+string(state), func() bool {
		job = get[admin.Job](t, w, "/jobs/"+id)
		return job.State == state
	})
	return job
}

func TestBulk(t *testing.T) {
	w := setup(t)
	var failed []string
	for i := range 5 {
		failed = append(failed, w.fail(t, "mail", fmt.Sprintf("no %d", i)))
	}
	cancelled := w.enqueue(t, "mail", "", queue.Options{})
	if _, err := w.Queue("mail").Cancel(w.ctx, cancelled); err != nil {
		t.Fatal(err)
	}
	for _, filter := range []string{`{}`, `{"queue": ""}`, `{"label": [], "dead_letters": false}`} {
		a := w.do(t, request{method: http.MethodPost, path: "/jobs", body: []byte(`{"action": "retry", "filter": ` + filter + `}`)})
		refused(t, a, http.StatusBadRequest, "empty")
	}

	// It counts first, and changes nothing until it is started.
	job := makeJob(t, w, "retry", map[string]any{"queue": "mail"}, false)
	job = awaitJob(t, w, job.ID, manage.JobCounted)
	if job.Items != 5 || job.Ended != 0 || job.By != "local" || job.Filter.Queue != "mail" {
		t.Errorf("counted: %+v", job)
	}
	if task := get[admin.Task](t, w, "/tasks/"+failed[0]); task.Status != queue.Failed {
		t.Errorf("counting changed a task: %+v", task)
	}
	// What changes in between has its own end.
	must(t, w.Queue("mail").Delete(w.ctx, failed[1]))
	must(t, w.Queue("mail").Retry(w.ctx, failed[2]))
	post[admin.Job](t, w, "/jobs/"+job.ID+"/start", nil, http.StatusOK)
	job = awaitJob(t, w, job.ID, manage.JobDone)
	if job.Ended != 5 || job.Ends[manage.JobEndDone] != 3 || job.Ends[manage.JobEndGone] != 1 || job.Ends[manage.JobEndChanged] != 1 || job.Interrupted {
		t.Errorf("done: %+v", job)
	}
	items := get[api.List[admin.JobItem]](t, w, "/jobs/"+job.ID+"/items?offset=1&limit=2")
	if len(items.Items) != 2 {
		t.Fatalf("%+v", items)
	}
	ends := map[string]manage.JobEnd{}
	for _, item := range get[api.List[admin.JobItem]](t, w, "/jobs/"+job.ID+"/items").Items {
		ends[item.ID] = item.End
		if item.End == manage.JobEndChanged && !strings.Contains(item.Text, "is pending") {
			t.Errorf("changed without a reason: %+v", item)
		}
	}
	if ends[failed[0]] != manage.JobEndDone || ends[failed[1]] != manage.JobEndGone || ends[failed[2]] != manage.JobEndChanged {
		t.Errorf("ends %v", ends)
	}

	// A cancel takes what waits, a delete what is finished.
	job = makeJob(t, w, "cancel", map[string]any{"queue": "mail"}, true)
	if job = awaitJob(t, w, job.ID, manage.JobDone); job.Ends[manage.JobEndDone] != 4 {
		t.Errorf("cancelled: %+v", job)
	}
	job = makeJob(t, w, "delete", map[string]any{"reason": "cancelled"}, true)
	if job = awaitJob(t, w, job.ID, manage.JobDone); job.Ends[manage.JobEndDone] != 5 {
		t.Errorf("deleted: %+v", job)
	}
	if list := get[api.List[admin.Job]](t, w, "/jobs"); len(list.Items) != 3 || list.Items[0].ID != job.ID {
		t.Errorf("jobs %+v", list)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/jobs/00000000-0000-0000-0000-000000000000"}), http.StatusNotFound, "no job")
	for _, key := range w.rdb.Keys(w.ctx, w.Tenant()+"_job*").Val() {
		if ttl := w.rdb.TTL(w.ctx, key).Val(); ttl <= 0 {
			t.Errorf("%s lives for ever", key)
		}
	}
}

// A job leaves alone what does not pass its filter any more when its turn comes, and another task of the same ID.
func TestBulkOfChangedTasks(t *testing.T) {
	w := setup(t)
	counted := func(action string, filter map[string]any, items int64) string {
		job := awaitJob(t, w, makeJob(t, w, action, filter, false).ID, manage.JobCounted)
		if job.Items != items {
			t.Fatalf("%s: counted %d tasks, want %d", action, job.Items, items)
		}
		return job.ID
	}
	done, same := w.fail(t, "q", "1"), w.fail(t, "q", "2")
	deletes := counted("delete", map[string]any{"status": "failed"}, 2)
	old := w.enqueue(t, "q", "old", queue.Options{ID: "renewed"})
	cancels := counted("cancel", map[string]any{"queue": "q"}, 1)

	_, err := w.Queue("q").Cancel(w.ctx, old)
	must(t, err)
	must(t, w.Queue("q").Delete(w.ctx, old))
	must(t, w.Queue("q").Retry(w.ctx, done))
	w.settle(t, "q", listen.Settlement{Result: []byte("precious")})
	w.enqueue(t, "q", "new", queue.Options{ID: "renewed"})
	for id, want := range map[string]map[manage.JobEnd]int64{
		deletes: {manage.JobEndChanged: 1, manage.JobEndDone: 1}, cancels: {manage.JobEndChanged: 1},
	} {
		post[admin.Job](t, w, "/jobs/"+id+"/start", nil, http.StatusOK)
		if job := awaitJob(t, w, id, manage.JobDone); !maps.Equal(job.Ends, want) {
			t.Errorf("%s: %v, want %v", job.Action, job.Ends, want)
		}
	}
	if task := get[admin.Task](t, w, "/tasks/"+done); task.Status != queue.Complete {
		t.Errorf("%+v", task)
	}
	if task := get[admin.Task](t, w, "/tasks/renewed"); task.Status != queue.Pending {
		t.Errorf("%+v", task)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks/" + same}), http.StatusNotFound, "no")
}

// A retry in a queue of dead letters takes those that wait as well as those that failed.
func TestRetryOfWaitingLetters(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]map[string]any{
		"dead letters": {"queue": "letters", "dead_letters": true},
		"a queue":      {"queue": "letters"},
	} {
		t.Run(name, func(t *testing.T) {
			w := setup(t)
			const tasks = 3
			for range tasks {
				w.enqueue(t, "q", "p", queue.Options{Dead: "letters"})
				w.settle(t, "q", listen.Settlement{Failure: &queue.Failure{Reason: queue.ReasonError}})
			}
			w.settle(t, "letters", listen.Settlement{Failure: &queue.Failure{Reason: queue.ReasonError}})
			waiting := w.enqueue(t, "letters", "no letter", queue.Options{})
			job := awaitJob(t, w, makeJob(t, w, "retry", filter, true).ID, manage.JobDone)
			if job.Ends[manage.JobEndDone] != tasks || job.Items != tasks {
				t.Errorf("%+v, want %d done", job, tasks)
			}
			if pending := ids(t, w, "/tasks?queue=q&status=pending"); len(pending) != tasks {
				t.Errorf("%d tasks wait, want %d", len(pending), tasks)
			}
			if left := ids(t, w, "/tasks?queue=letters"); !slices.Equal(left, []string{waiting}) {
				t.Errorf("left are %v", left)
			}
		})
	}
}

// deleting deletes tasks when the first page of a queue's failed tasks was read.
type deleting struct {
	once sync.Once
	do   func()
}

func (d *deleting) DialHook(next redis.DialHook) redis.DialHook { return next }
func (d *deleting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *deleting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "lrange" && strings.Contains(fmt.Sprint(cmd.Args()...), "_failed_tasks_") {
			d.once.Do(d.do)
		}
		return err
	}
}

// Tasks that are deleted while a job counts move the others between the pages: it misses none of them.
func TestCountWhileTasksMove(t *testing.T) {
	w := setup(t)
	const tasks, gone = 700, 100
	specs := make([]queue.Spec, tasks)
	_, err := w.Queue("q").EnqueueMany(w.ctx, specs)
	must(t, err)
	node := listen.New(w.Client)
	must(t, node.Join(w.ctx))
	must(t, node.Register(w.ctx, "q"))
	var order []string
	for len(order) < tasks {
		reply := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: tasks, Start: true, Plugin: "p", Digest: "sha256:0"}})[0]
		must(t, reply.Err)
		var settlements []listen.Settlement
		for _, task := range reply.Tasks {
			order = append(order, task.ID)
			settlements = append(settlements, listen.Settlement{Claim: task.Claim(), Failure: &queue.Failure{Reason: queue.ReasonError}})
		}
		_, err := node.Settle(w.ctx, "q", settlements)
		must(t, err)
	}
	w.rdb.AddHook(&deleting{do: func() {
		for _, id := range order[tasks-gone:] { // the newest: the first page has them
			if err := w.Queue("q").Delete(w.ctx, id); err != nil {
				t.Error(err)
			}
		}
	}})
	job := makeJob(t, w, "retry", map[string]any{"queue": "q"}, true)
	if job = awaitJob(t, w, job.ID, manage.JobDone); job.Ends[manage.JobEndDone] != tasks-gone {
		t.Errorf("%+v, want %d done", job, tasks-gone)
	}
}

// A job whose process died says so; another process goes on where it ended.
func TestInterruptedBulk(t *testing.T) {
	w := setup(t)
	a, b := w.fail(t, "q", "1"), w.fail(t, "q", "2")
	job, err := manage.NewJobs(w.Client).New(w.ctx, "retry", `{"queue":"q"}`, "ada")
	must(t, err)
	must(t, manage.NewJobs(w.Client).Start(w.ctx, job.ID))
	claim, err := manage.NewJobs(w.Client).WorkOn(w.ctx, job.ID)
	must(t, err)
	must(t, claim.Add(w.ctx, []manage.JobItem{{ID: a}, {ID: b}}))
	must(t, claim.Become(w.ctx, manage.JobRunning, false, ""))
	must(t, w.Queue("q").Retry(w.ctx, a))
	must(t, claim.End(w.ctx, 0, []manage.JobItem{{End: manage.JobEndDone}}))
	if got := get[admin.Job](t, w, "/jobs/"+job.ID); got.Interrupted || got.Ended != 1 {
		t.Errorf("while it runs: %+v", got)
	}
	if other, err := manage.NewJobs(w.Client).WorkOn(w.ctx, job.ID); other != nil || err != nil {
		t.Errorf("a second process may work on it: %v", err)
	}
	upper := w.do(t, request{method: http.MethodGet, path: "/jobs/" + strings.ToUpper(job.ID)})
	refused(t, upper, http.StatusUnprocessableEntity, "path.job") // or each spelling would be a job
	must(t, claim.Become(w.ctx, manage.JobCounted, false, ""))
	if got := get[admin.Job](t, w, "/jobs/"+job.ID); got.Interrupted {
		t.Errorf("while it begins: %+v", got)
	}
	must(t, claim.Leave(w.ctx)) // as if its claim had ended
	if got := get[admin.Job](t, w, "/jobs/"+job.ID); !got.Interrupted {
		t.Errorf("when the process is gone before it began: %+v", got)
	}
	claim, err = manage.NewJobs(w.Client).WorkOn(w.ctx, job.ID)
	must(t, err)
	must(t, claim.Become(w.ctx, manage.JobRunning, false, ""))
	must(t, claim.Leave(w.ctx))
	if got := get[admin.Job](t, w, "/jobs/"+job.ID); !got.Interrupted {
		t.Errorf("when the process is gone: %+v", got)
	}
	post[admin.Job](t, w, "/jobs/"+job.ID+"/start", nil, http.StatusOK)
	if got := awaitJob(t, w, job.ID, manage.JobDone); got.Ended != 2 || got.Ends[manage.JobEndDone] != 2 {
		t.Errorf("continued: %+v", got)
	}
}

// A job that is started while the claim of a dead process lasts is worked on when that ends.
func TestStartOfAJobOfTheDead(t *testing.T) {
	w := setup(t)
	id := w.fail(t, "q", "1")
	job := makeJob(t, w, "retry", map[string]any{"queue": "q"}, false)
	job = awaitJob(t, w, job.ID, manage.JobCounted)
	eventually(t, "the process that counted leaves the job", func() bool {
		claim, err := manage.NewJobs(w.Client).WorkOn(w.ctx, job.ID)
		return err == nil && claim != nil
	})
	post[admin.Job](t, w, "/jobs/"+job.ID+"/start", nil, http.StatusOK)
	must(t, w.rdb.PExpire(w.ctx, w.Tenant()+"_duty_job_"+job.ID, time.Millisecond).Err())
	if got := awaitJob(t, w, job.ID, manage.JobDone); got.Ends[manage.JobEndDone] != 1 {
		t.Errorf("%+v", got)
	}
	if task, err := w.Task(w.ctx, id); err != nil || task.Status != queue.Pending {
		t.Errorf("%+v, %v", task, err)
	}
}

// A job says that there are more tasks only if there are more than it may have.
func TestLargestJob(t *testing.T) {
	const most = 1000
	w := setup(t, func(c *api.Config) { c.JobItems(most) })
	_, err := w.Queue("q").EnqueueMany(w.ctx, make([]queue.Spec, most))
	must(t, err)
	for _, more := range []bool{false, true} {
		job := makeJob(t, w, "cancel", map[string]any{"queue": "q"}, false)
		if job = awaitJob(t, w, job.ID, manage.JobCounted); job.Items != most || job.More != more {
			t.Errorf("%d tasks, more: %v, want %v", job.Items, job.More, more)
		}
		w.enqueue(t, "q", "x", queue.Options{})
	}
}

// sent is an event of a stream.
type sent struct{ name, id, data string }

// follow opens a stream; its events end with the test or the stream.
func follow(t *testing.T, w *world, path string) <-chan sent {
	t.Helper()
	q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.base+"/v1/tenants/"+w.Tenant()+path, nil)
	must(t, err)
	if w.token != "" {
		q.Header.Set("Authorization", "Bearer "+w.token)
	}
	response, err := http.DefaultClient.Do(q)
	must(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", response.StatusCode, response.Header)
	}
	events := make(chan sent, 100)
	go func() {
		defer close(events)
		var e sent
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				if e.name != "ping" {
					events <- e
				}
				e = sent{}
			}
		}
	}()
	return events
}

func await(t *testing.T, w *world, events <-chan sent, name, words string) sent {
	t.Helper()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the stream ended before an event %s with %q", name, words)
			}
			if e.name == name && strings.Contains(e.data, words) {
				return e
			}
		case <-w.ctx.Done():
			t.Fatalf("no event %s with %q", name, words)
		}
	}
}

func TestChanges(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "first", "", queue.Options{})
	one, two := follow(t, w, "/changes"), follow(t, w, "/changes")
	await(t, w, one, "queue", `"queue":"first"`)
	await(t, w, two, "queue", `"queue":"first"`)
	await(t, w, two, "nodes", `"alive":0`)
	w.enqueue(t, "second", "", queue.Options{})
	await(t, w, one, "queue", `"queue":"second"`)
	await(t, w, two, "queue", `"queue":"second"`)
	must(t, w.Queue("first").Pause(w.ctx))
	await(t, w, one, "queue", `"paused":true`)
	node := listen.New(w.Client)
	must(t, node.Join(w.ctx))
	await(t, w, two, "nodes", `"alive":1`)
	must(t, node.Leave(w.ctx))
	await(t, w, two, "nodes", `"alive":0`)
}

func TestFollowLog(t *testing.T) {
	w := setup(t)
	id := w.enqueue(t, "q", "", queue.Options{})
	events := follow(t, w, "/tasks/"+id+"/log/stream")
	node, task := w.start(t, "q")
	must(t, node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: task.Claim(), Lines: []string{"one", "<two>"}}})[0])
	if e := await(t, w, events, "line", "two"); e.id != "2" {
		t.Errorf("%+v", e)
	}
	_, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: task.Claim()}})
	must(t, err)
	await(t, w, events, "end", `"complete"`)
	if _, more := <-events; more {
		t.Error("the stream goes on after its end")
	}
	lines := get[api.List[admin.LogLine]](t, w, "/tasks/"+id+"/log?after=1")
	if len(lines.Items) != 1 || lines.Items[0].Number != 2 || lines.Items[0].Text != "<two>" {
		t.Errorf("%+v", lines)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks/none/log/stream"}), http.StatusNotFound, "no such task")
}
