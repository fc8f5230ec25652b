package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/manage"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// NewBulk is an action on all tasks that pass a filter.
type NewBulk struct {
	InTenant
	Body struct {
		Action queue.Change `json:"action" enum:"cancel,retry,delete"`
		Filter admin.Filter `json:"filter" doc:"Must say something. A retry takes failed tasks, without cancelled ones unless the reason is cancelled, and waiting dead letters; a cancel those that are not finished, a delete those that are."`
		Start  bool         `json:"start,omitempty" doc:"Begin when the tasks are counted; else the job waits to be started."`
	}
}

// Job is an action on many tasks, in the background. It is kept for a week.
type Job struct {
	ID          string                  `json:"id"`
	Tenant      string                  `json:"tenant"`
	Action      queue.Change            `json:"action"`
	Filter      admin.Filter            `json:"filter"`
	By          string                  `json:"by"`
	Created     float64                 `json:"created"`
	State       manage.JobState         `json:"state" enum:"counting,counted,running,stopped,done"`
	Interrupted bool                    `json:"interrupted,omitempty" doc:"The process that worked on it has ended: start it again to go on."`
	Stopping    bool                    `json:"stopping,omitempty"`
	More        bool                    `json:"more,omitempty" doc:"More tasks passed the filter than a job may have: make another one afterwards."`
	Error       string                  `json:"error,omitempty"`
	Items       int64                   `json:"items" doc:"Tasks; final once they are counted."`
	Ended       int64                   `json:"ended" doc:"Tasks that have their end."`
	Ends        map[manage.JobEnd]int64 `json:"ends" doc:"By end: done, changed (it did not pass the filter any more), refused (the text says why), gone, failed."`
}

// JobItem is a task of a job.
type JobItem struct {
	ID   string        `json:"id"`
	End  manage.JobEnd `json:"end,omitempty" enum:"done,changed,refused,gone,failed" doc:"Missing: it has none yet."`
	Text string        `json:"text,omitempty" doc:"Why."`
}

// JobOf is an answer with a job.
type JobOf struct {
	Location string `header:"Location" doc:"Of a new job, relative to this path."`
	Body     Job
}

// InJob is in every path below a job.
type InJob struct {
	InTenant
	Job string `path:"job" pattern:"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$" doc:"The job's ID, in small letters."`
}

// Redact takes out the text of an error that somebody else looks for.
func (j *Job) Redact(v admin.View) {
	if j.Filter.Error != "" && !v.Payloads {
		j.Filter.Error = "hidden"
	}
}

// jobShape shows a job.
func jobShape(tenant string, j *manage.Job) Job {
	busy := j.State == manage.JobCounting || j.State == manage.JobRunning || j.State == manage.JobCounted && j.Start && !j.Stop
	var filter admin.Filter
	_ = json.Unmarshal([]byte(j.Filter), &filter) // of another version: what is not known is not shown
	return Job{
		ID: j.ID, Tenant: tenant, Action: queue.Change(j.Action), Filter: filter, By: j.By, Created: admin.Seconds(j.Created),
		State: j.State, Interrupted: busy && !j.Claimed, Stopping: busy && j.Claimed && j.Stop, More: j.More, Error: j.Error,
		Items: j.Items, Ended: j.Ended, Ends: j.Ends,
	}
}

func (s *service) describeBulk() {
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/jobs", "make-job", "Cancel, retry or delete all tasks that pass a filter, in the background. It counts them first; deleting needs the role admin"),
		s.makeJob)
	add(s, looking("/tenants/{tenant}/jobs", "list-jobs", "List the last 100 jobs, newest first"),
		func(ctx context.Context, in *InTenant) (*ListOf[Job], error) {
			t := s.tenants[in.Tenant]
			jobs, err := t.Jobs.List(ctx)
			shapes := make([]Job, len(jobs))
			for i, j := range jobs {
				shapes[i] = jobShape(in.Tenant, j)
			}
			return listed(shapes, err)
		})
	add(s, looking("/tenants/{tenant}/jobs/{job}", "show-job", "Show a job's progress"),
		func(ctx context.Context, in *InJob) (*JobOf, error) { return s.showJob(ctx, *in) })
	type items struct {
		InJob
		Offset int64 `query:"offset" minimum:"0"`
		Limit  int64 `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	}
	add(s, looking("/tenants/{tenant}/jobs/{job}/items", "list-job-items", "List a job's tasks with their ends, in the order in which it takes them"),
		func(ctx context.Context, in *items) (*ListOf[JobItem], error) {
			if _, err := s.showJob(ctx, in.InJob); err != nil {
				return nil, err
			}
			list, err := s.tenants[in.Tenant].Jobs.Items(ctx, in.Job, in.Offset, in.Limit)
			shapes := make([]JobItem, len(list))
			for i, item := range list {
				shapes[i] = JobItem{item.ID, item.End, item.Text}
			}
			return listed(shapes, err)
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/jobs/{job}/start", "start-job", "Start a job that is counted, or continue one that was stopped or interrupted"),
		func(ctx context.Context, in *InJob) (*JobOf, error) {
			job, err := s.showJob(ctx, *in)
			if err == nil {
				err = mayAct(ctx, job.Body.Action)
			}
			if err != nil {
				return nil, err
			}
			err = s.work(ctx, s.tenants[in.Tenant], func(t *tenant) (string, error) { return in.Job, t.Jobs.Start(ctx, in.Job) })
			if err != nil {
				return nil, err
			}
			return s.showJob(ctx, *in)
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/jobs/{job}/stop", "stop-job", "Stop a job after the tasks that it works on: up to 400"),
		func(ctx context.Context, in *InJob) (*JobOf, error) {
			if _, err := s.showJob(ctx, *in); err != nil {
				return nil, err
			}
			if err := s.tenants[in.Tenant].Jobs.Stop(ctx, in.Job); err != nil {
				return nil, err
			}
			return s.showJob(ctx, *in)
		})
}

// mayAct asks for the role that the action on a single task needs.
func mayAct(ctx context.Context, action queue.Change) error {
	if who := principal(ctx); action == queue.ChangeDelete && who.Role != Admin {
		return failed(http.StatusForbidden, "%s is a %s: deleting needs the role %s", who.Name, who.Role, Admin)
	}
	return nil
}

func (s *service) showJob(ctx context.Context, in InJob) (*JobOf, error) {
	t := s.tenants[in.Tenant]
	job, err := t.Jobs.Get(ctx, in.Job)
	if errors.Is(err, manage.ErrNoJob) {
		err = notFound("tenant %s has no job %s, or not any more", in.Tenant, in.Job)
	}
	if err != nil {
		return nil, err
	}
	return &JobOf{Body: jobShape(in.Tenant, job)}, nil
}

func (s *service) makeJob(ctx context.Context, in *NewBulk) (*JobOf, error) {
	err := mayAct(ctx, in.Body.Action)
	if err == nil {
		err = checkFilter(ctx, &in.Body.Filter)
	}
	if err != nil {
		return nil, err
	}
	if in.Body.Filter.Empty() {
		return nil, failed(http.StatusBadRequest, "the filter is empty, and would select every task: name a queue, a status or another property")
	}
	filter, err := json.Marshal(in.Body.Filter)
	if err != nil {
		return nil, err
	}
	var id string
	err = s.work(ctx, s.tenants[in.Tenant], func(t *tenant) (string, error) {
		job, err := t.Jobs.New(ctx, string(in.Body.Action), string(filter), principal(ctx).Name)
		if err != nil {
			return "", err
		}
		id = job.ID
		callerOf(ctx).detail = fmt.Sprintf("job %s: %s %s", id, in.Body.Action, filter)
		if in.Body.Start {
			err = t.Jobs.Start(ctx, id)
		}
		return id, err
	})
	if err != nil {
		return nil, err
	}
	out, err := s.showJob(ctx, InJob{in.InTenant, id})
	if err == nil {
		out.Location = "jobs/" + id
	}
	return out, err
}

// work claims the job that prepare makes or changes, and begins to work on it in the background; if another process has it that
// one goes on.
func (s *service) work(ctx context.Context, t *tenant, prepare func(*tenant) (id string, err error)) error {
	place, err := s.worked.enter(ctx)
	if err != nil {
		return err
	}
	id, err := prepare(t)
	var claim *manage.JobWork
	if err == nil {
		claim, err = t.Jobs.WorkOn(ctx, id)
	}
	if err != nil {
		place.Give()
		return err
	}
	who := principal(ctx).owner()
	if claim == nil { // a wait for the end of another process's claim takes no place
		place.Give()
	}
	s.jobs.Go(func() {
		defer func() { place.Give() }()
		ctx := s.living()
		if claim == nil {
			if claim = inherit(ctx, t, id); claim != nil {
				place = s.worked.Take(ctx, who, 1)
			}
		}
		for claim != nil && ctx.Err() == nil {
			r := &runner{t: t, claim: claim, id: id, most: cmp.Or(s.config.jobItems, manage.MaxJobItems), logged: s.logged, reserve: func(ctx context.Context) *account.Share { return s.memory.Take(ctx, who, listCost) }}
			s.leave(ctx, r, r.run(ctx))
			// Somebody may have started it since it was counted, and found it claimed.
			claim = nil
			if job, err := t.Jobs.Get(ctx, id); err == nil && job.State == manage.JobCounted && job.Start && !job.Stop {
				claim, _ = t.Jobs.WorkOn(ctx, id)
			}
		}
	})
	return nil
}

// inherit claims a job that another process has claimed, if that one is dead or ends its work; nil if it lives.
func inherit(ctx context.Context, t *tenant, id string) *manage.JobWork {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for until := time.Now().Add(manage.JobClaim + time.Second); time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if claim, err := t.Jobs.WorkOn(ctx, id); err == nil && claim != nil {
			return claim
		}
	}
	return nil
}

// leave gives up a job. One that could not go on says why; one whose process ends shows as interrupted.
func (s *service) leave(ctx context.Context, r *runner, err error) {
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	if err != nil && ctx.Err() == nil && !errors.Is(err, manage.ErrClaimLost) {
		state := manage.JobStopped
		if r.counting {
			state = manage.JobCounting // to be counted anew
		}
		reference := s.logged("a job stopped", "job "+r.id+" of "+r.t.Tenant(), err)
		_ = r.claim.Become(leaving, state, false, "it could not go on: the log of the process that worked on it says why, reference "+reference) // else it shows as interrupted
	}
	_ = r.claim.Leave(leaving) // else the claim ends by itself
}

// runner works on one job.
type runner struct {
	t        *tenant
	claim    *manage.JobWork
	id       string
	most     int // tasks of a job
	counting bool
	logged   func(message, operation string, err error) (reference string)
	reserve  func(ctx context.Context) *account.Share // waits for what a search takes; nil if ctx ends
}

func (r *runner) run(ctx context.Context) error {
	job, err := r.t.Jobs.Get(ctx, r.id)
	if err != nil {
		return err
	}
	if job.State == manage.JobCounting {
		r.counting = true
		if err := r.count(ctx, job); err != nil {
			return err
		}
		r.counting = false
		if job, err = r.t.Jobs.Get(ctx, r.id); err != nil {
			return err
		}
	}
	if !job.Start || job.Stop || job.State == manage.JobDone {
		return nil
	}
	if err := r.claim.Become(ctx, manage.JobRunning, false, ""); err != nil {
		return err
	}
	return r.act(ctx, job)
}

// mostPasses is how often a count goes through the tasks.
const mostPasses = 5

// count finds the tasks. The lists move meanwhile, so that their pages overlap or leave out tasks: it goes through them until
// it finds no new ones. It reads those that it has found once.
func (r *runner) count(ctx context.Context, job *manage.Job) error {
	f, err := jobFilter(job)
	if err != nil {
		return err
	}
	action := queue.Change(job.Action)
	if err := r.claim.Forget(ctx); err != nil { // of a count that was interrupted
		return err
	}
	c := &count{runner: r, action: action, seen: make(map[string]bool)}
	for range mostPasses {
		known := len(c.seen)
		if action == queue.ChangeRetry && f.Status == "" { // of waiting tasks only letters are read
			for _, status := range []queue.Status{queue.Failed, queue.Pending, queue.Scheduled} {
				of := *f
				of.Status = string(status)
				err = cmp.Or(err, c.pass(ctx, &of, status != queue.Failed))
			}
		} else {
			err = c.pass(ctx, f, false)
		}
		if err != nil {
			return err
		}
		if c.more || len(c.seen) == known {
			break
		}
	}
	return r.claim.Become(ctx, manage.JobCounted, c.more, "")
}

// count is what a count has found.
type count struct {
	*runner
	action queue.Change
	seen   map[string]bool
	more   bool // than a job may have
}

// pass goes through the tasks of a filter once, or through the dead letters among them.
func (c *count) pass(ctx context.Context, f *admin.Filter, letters bool) error {
	skip := func(id string) bool { return c.seen[id] || letters && !queue.IsLetter(id) }
	for from := (&admin.Place{}); from != nil && !c.more; {
		var found []manage.JobItem
		memory := c.reserve(ctx)
		if memory == nil {
			return ctx.Err()
		}
		next, _, err := c.t.Search(ctx, f, *from, skip, func(task *queue.Task) bool {
			if c.seen[task.ID] || !suits(c.action, f, task) {
				return true
			}
			if c.more = len(c.seen) == c.most; !c.more {
				c.seen[task.ID] = true
				found = append(found, manage.JobItem{ID: task.ID, Created: task.Created})
			}
			return !c.more
		})
		memory.Give()
		for page := range slices.Chunk(found, jobPage) {
			if err == nil {
				err = c.claim.Add(ctx, page)
			}
		}
		if err == nil {
			err = c.claim.Keep(ctx)
		}
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// jobFilter is the filter of a job.
func jobFilter(job *manage.Job) (*admin.Filter, error) {
	f := &admin.Filter{}
	err := json.Unmarshal([]byte(job.Filter), f)
	if err == nil {
		err = f.Check()
	}
	return f, err
}

// suits tells whether the status of a task allows the action.
func suits(action queue.Change, f *admin.Filter, task *queue.Task) bool {
	switch action {
	case queue.ChangeCancel:
		return !task.Status.Finished()
	case queue.ChangeRetry:
		if task.LiveID != "" && (task.Status == queue.Pending || task.Status == queue.Scheduled) {
			return true
		}
		return task.Status == queue.Failed && (f.Reason != "" || task.Failure().Reason != queue.ReasonCancelled)
	}
	return task.Status.Finished()
}

// jobPage is how many tasks a runner reads and changes at a time. It works on two pages at once, and writes their ends when both are
// done. If its process dies before, those tasks have no ends: the next process finds them changed, and calls them that.
const jobPage = 200

// act does the action to the tasks that have no end yet.
func (r *runner) act(ctx context.Context, job *manage.Job) error {
	f, err := jobFilter(job)
	if err != nil {
		return err
	}
	for from := job.Ended; ; {
		if stop, err := r.claim.Stopped(ctx); err != nil {
			return err
		} else if stop {
			return r.claim.Become(ctx, manage.JobStopped, false, "")
		}
		items, err := r.t.Jobs.Items(ctx, r.id, from, 2*jobPage)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return r.claim.Become(ctx, manage.JobDone, false, "")
		}
		memory := r.reserve(ctx)
		if memory == nil {
			return ctx.Err()
		}
		if err := r.claim.Keep(ctx); err != nil { // after the wait for memory
			memory.Give()
			return err
		}
		within, done := r.claim.Within(ctx)
		n, err := r.changeHalves(within, queue.Change(job.Action), f, items)
		done()
		memory.Give()
		if err := cmp.Or(r.claim.End(ctx, from, items[:n]), err); err != nil {
			return err
		}
		from += int64(n)
	}
}

// changeHalves is change for two pages at once: while Redis works on one, the other is looked at. It goes on until all have their ends,
// except after an error.
func (r *runner) changeHalves(ctx context.Context, action queue.Change, f *admin.Filter, items []manage.JobItem) (n int, err error) {
	halves := slices.Collect(slices.Chunk(items, jobPage))
	ended, errs := make([]int, len(halves)), make([]error, len(halves))
	var work sync.WaitGroup
	for i, half := range halves {
		work.Go(func() {
			for ended[i] < len(half) && errs[i] == nil {
				var more int
				more, errs[i] = r.change(ctx, action, f, half[ended[i]:], mostReads)
				ended[i] += more
			}
		})
	}
	work.Wait()
	for i := range halves {
		if n += ended[i]; errs[i] != nil {
			return n, errs[i]
		}
	}
	return n, nil
}

// mostReads is how often a task is read that changes between its read and the action.
const mostReads = 3

// change does the action to those of the tasks that still pass the filter, and gives all of them their ends: up to one that Redis could
// not be asked about, and no more tasks than can be read at a time. It returns how many have theirs.
func (r *runner) change(ctx context.Context, action queue.Change, f *admin.Filter, items []manage.JobItem, reads int) (n int, err error) {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.ID
	}
	tasks, n, _, err := r.t.Summaries(ctx, "", "", ids, pageBytes)
	if err != nil {
		return 0, err
	}
	read := make(map[string]*queue.Task, len(tasks))
	for _, task := range tasks {
		read[task.ID] = task
	}
	var changes []*queue.Task
	var of []int
	for i := range items[:n] {
		item := &items[i]
		switch task := read[item.ID]; {
		case task == nil:
			item.End = manage.JobItemGone
		case !item.Of(task):
			item.End, item.Text = manage.JobItemChanged, "another task has its ID"
		case !f.Passes(task) || !suits(action, f, task):
			item.End, item.Text = manage.JobItemChanged, fmt.Sprintf("it is %s, and does not pass the filter any more", task.Status)
		default:
			changes, of = append(changes, task), append(of, i)
		}
	}
	for k, changed := range r.t.ChangeAll(ctx, action, changes) {
		switch i := of[k]; {
		case queue.IsUnavailable(changed.Err), ctx.Err() != nil:
			return i, cmp.Or(changed.Err, ctx.Err()) // the ends from here on stay open
		case errors.Is(changed.Err, queue.ErrChanged) && reads > 1:
			if _, err := r.change(ctx, action, f, items[i:i+1], reads-1); err != nil {
				return i, err
			}
		default:
			items[i].End, items[i].Text = r.end(changed)
		}
	}
	return n, nil
}

// end is the end of a task that was to be changed.
func (r *runner) end(changed queue.Changed) (end manage.JobEnd, text string) {
	err := changed.Err
	switch {
	case err == nil && changed.Stopping:
		return manage.JobItemDone, "its host stops it"
	case err == nil:
		return manage.JobItemDone, ""
	case errors.Is(err, queue.ErrLetterStays):
		return manage.JobItemDone, err.Error()
	case errors.Is(err, queue.ErrNoTask):
		return manage.JobItemGone, ""
	case errors.Is(err, queue.ErrChanged):
		return manage.JobItemChanged, "it changed again and again"
	case errors.Is(err, queue.ErrStatus):
		return manage.JobItemRefused, err.Error()
	}
	return manage.JobItemFailed, "internal error: the log of the process that worked on it says why, reference " + r.logged("a task of a job failed", "job "+r.id, err)
}
