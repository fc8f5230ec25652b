package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// JobRunner works on one job, which this process has claimed.
type JobRunner struct {
	Tenant *Direct
	Claim  *manage.JobWork
	ID     string
	Most   int // maximum number of tasks of a job
	// Logged logs an error that users are not shown. It returns the reference by which they find the error in the log.
	Logged func(message, operation string, err error) (reference string)
	// Reserve waits for the memory that one search, or one change of two pages, needs. It returns nil if ctx ends first.
	Reserve func(ctx context.Context) *account.Share

	counting bool // the tasks are being counted; after an error they must be counted again
}

// Run counts the tasks of the job unless they are counted, and applies the action to them if the job is started. After
// an error, the job's Error has the reference of the log entry. If this process ends, the job is reported as
// interrupted.
func (r *JobRunner) Run(ctx context.Context) {
	err := r.run(ctx)
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	if err != nil && ctx.Err() == nil && !errors.Is(err, manage.ErrClaimLost) {
		state := manage.JobStopped
		if r.counting {
			state = manage.JobCounting // to be counted again
		}
		reference := r.Logged("a job stopped", "job "+r.ID+" of "+r.Tenant.Tenant(), err)
		_ = r.Claim.Become(leaving, state, false, "it could not go on: the log of the process that worked on it says why, reference "+reference) // if this fails, the job is reported as interrupted
	}
	_ = r.Claim.Leave(leaving) // if this fails, the claim ends by itself
}

func (r *JobRunner) run(ctx context.Context) error {
	job, err := r.Tenant.Jobs.Get(ctx, r.ID)
	if err != nil {
		return err
	}
	if job.State == manage.JobCounting {
		r.counting = true
		if err := r.count(ctx, job); err != nil {
			return err
		}
		r.counting = false
		if job, err = r.Tenant.Jobs.Get(ctx, r.ID); err != nil {
			return err
		}
	}
	if !job.Start || job.Stop || job.State == manage.JobDone {
		return nil
	}
	if err := r.Claim.Become(ctx, manage.JobRunning, false, ""); err != nil {
		return err
	}
	return r.act(ctx, job)
}

// maxPasses is the maximum number of passes that a count makes over the lists of tasks.
const maxPasses = 5

// count finds the tasks of the job. Other clients change the lists of tasks meanwhile, so pages can overlap or leave
// out tasks. So count repeats its pass over the lists until a pass finds no new task, at most maxPasses times. It
// reads each task that it finds once.
func (r *JobRunner) count(ctx context.Context, job *manage.Job) error {
	f, err := jobFilter(job)
	if err != nil {
		return err
	}
	action := queue.Change(job.Action)
	if err := r.Claim.Forget(ctx); err != nil { // drop the tasks of an interrupted count
		return err
	}
	c := &count{JobRunner: r, action: action, seen: make(map[string]bool)}
	for range maxPasses {
		known := len(c.seen)
		if action == queue.ChangeRetry && f.Status == "" { // among waiting tasks, only dead letters can be retried
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
	return r.Claim.Become(ctx, manage.JobCounted, c.more, "")
}

// count is the state of JobRunner.count.
type count struct {
	*JobRunner
	action queue.Change
	seen   map[string]bool // IDs of the job's tasks
	more   bool            // more tasks match than a job may have
}

// pass visits each task that matches the filter once, and adds new ones to the job. If letters is true, it visits only
// dead letters.
func (c *count) pass(ctx context.Context, f *Filter, letters bool) error {
	skip := func(id string) bool { return c.seen[id] || letters && !queue.IsLetter(id) }
	for from := (&Place{}); from != nil && !c.more; {
		var found []manage.JobItem
		memory := c.Reserve(ctx)
		if memory == nil {
			return ctx.Err()
		}
		next, _, err := c.Tenant.Search(ctx, f, *from, skip, func(task *queue.Task) bool {
			if c.seen[task.ID] || !suits(c.action, f, task) {
				return true
			}
			if c.more = len(c.seen) == c.Most; !c.more {
				c.seen[task.ID] = true
				found = append(found, manage.JobItem{ID: task.ID, Created: task.Created})
			}
			return !c.more
		})
		memory.Give()
		for page := range slices.Chunk(found, jobPage) {
			if err == nil {
				err = c.Claim.Add(ctx, page)
			}
		}
		if err == nil {
			err = c.Claim.Keep(ctx)
		}
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// jobFilter decodes and checks the filter of a job.
func jobFilter(job *manage.Job) (*Filter, error) {
	f := &Filter{}
	err := json.Unmarshal([]byte(job.Filter), f)
	if err == nil {
		err = f.Check()
	}
	return f, err
}

// suits reports whether the status of a task allows the action. A retry passes over cancelled tasks unless the filter
// names a reason.
func suits(action queue.Change, f *Filter, task *queue.Task) bool {
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

// jobPage is how many tasks a runner reads and changes at a time. It works on two pages at once, and records the
// results of their tasks when both pages are done. If its process dies before that, the tasks have no results. The next
// process then finds these tasks changed, and records the result "changed".
const jobPage = 200

// act applies the action to the tasks that have no result yet, until the job is done or stopped.
func (r *JobRunner) act(ctx context.Context, job *manage.Job) error {
	f, err := jobFilter(job)
	if err != nil {
		return err
	}
	for from := job.Ended; ; {
		if stop, err := r.Claim.Stopped(ctx); err != nil {
			return err
		} else if stop {
			return r.Claim.Become(ctx, manage.JobStopped, false, "")
		}
		items, err := r.Tenant.Jobs.Items(ctx, r.ID, from, 2*jobPage)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			return r.Claim.Become(ctx, manage.JobDone, false, "")
		}
		memory := r.Reserve(ctx)
		if memory == nil {
			return ctx.Err()
		}
		if err := r.Claim.Keep(ctx); err != nil { // the wait for memory may have been long
			memory.Give()
			return err
		}
		within, done := r.Claim.Within(ctx)
		n, err := r.changeHalves(within, queue.Change(job.Action), f, items)
		done()
		memory.Give()
		if err := cmp.Or(r.Claim.End(ctx, from, items[:n]), err); err != nil {
			return err
		}
		from += int64(n)
	}
}

// changeHalves calls change for both pages of items at once: while Redis works on one page, the results of the other
// are checked. It continues until all tasks have results, or an error occurs. The first n items have results.
func (r *JobRunner) changeHalves(ctx context.Context, action queue.Change, f *Filter,
	items []manage.JobItem,
) (n int, err error) {
	halves := slices.Collect(slices.Chunk(items, jobPage))
	ended, errs := make([]int, len(halves)), make([]error, len(halves))
	var work sync.WaitGroup
	for i, half := range halves {
		work.Go(func() {
			for ended[i] < len(half) && errs[i] == nil {
				var more int
				more, errs[i] = r.change(ctx, action, f, half[ended[i]:], maxReads)
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

// maxReads is the maximum number of times that a task is read. It is read again if it changed between the read and the
// action.
const maxReads = 3

// change applies the action to the tasks that still pass the filter, and sets the result of each item. It stops early
// at a task for which Redis is not available, and when pageBytes are read. The first n items have results. reads is how
// many times a task is read at most.
func (r *JobRunner) change(ctx context.Context, action queue.Change, f *Filter, items []manage.JobItem,
	reads int,
) (n int, err error) {
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.ID
	}
	tasks, n, _, err := r.Tenant.Summaries(ctx, "", "", ids, pageBytes)
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
			item.End = manage.JobEndGone
		case !item.Of(task):
			item.End, item.Text = manage.JobEndChanged, "another task has its ID"
		case !f.Passes(task) || !suits(action, f, task):
			item.End, item.Text = manage.JobEndChanged, fmt.Sprintf("it is %s, and does not pass the filter any more",
				task.Status)
		default:
			changes, of = append(changes, task), append(of, i)
		}
	}
	for k, changed := range r.Tenant.ChangeAll(ctx, action, changes) {
		switch i := of[k]; {
		case queue.IsUnavailable(changed.Err), ctx.Err() != nil:
			return i, cmp.Or(changed.Err, ctx.Err()) // the items from here on get no result yet
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

// end converts the outcome of a change to the result of a job's task, with a text that explains it.
func (r *JobRunner) end(changed queue.Changed) (end manage.JobEnd, text string) {
	err := changed.Err
	switch {
	case err == nil && changed.Stopping:
		return manage.JobEndDone, "its host stops it"
	case err == nil:
		return manage.JobEndDone, ""
	case errors.Is(err, queue.ErrLetterStays):
		return manage.JobEndDone, err.Error()
	case errors.Is(err, queue.ErrNoTask):
		return manage.JobEndGone, ""
	case errors.Is(err, queue.ErrChanged):
		return manage.JobEndChanged, "it changed again and again"
	case errors.Is(err, queue.ErrStatus):
		return manage.JobEndRefused, err.Error()
	}
	return manage.JobEndFailed, "internal error: the log of the process that worked on it says why, reference " +
		r.Logged("a task of a job failed", "job "+r.ID, err)
}
