package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// NewBulk asks for a job, which is an action on all tasks that pass a filter.
type NewBulk struct {
	InTenant
	Body struct {
		Action queue.Change `json:"action" enum:"cancel,retry,delete"`
		Filter admin.Filter `json:"filter" doc:"Must say something. A retry takes failed tasks, without cancelled ones unless the reason is cancelled, and waiting dead letters; a cancel those that are not finished, a delete those that are."`
		Start  bool         `json:"start,omitempty" doc:"Begin when the tasks are counted; else the job waits to be started."`
	}
}

// JobOf is an answer with a job.
type JobOf struct {
	Location string `header:"Location" doc:"Of a new job, relative to this path."`
	Body     admin.Job
}

// InJob has the path parameters of every operation on a job.
type InJob struct {
	InTenant
	Job string `path:"job" pattern:"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$" doc:"The job's ID, in small letters."`
}

func (s *service) describeBulk() {
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/jobs", "make-job",
		"Cancel, retry or delete all tasks that pass a filter, in the background. It counts them first; deleting needs the role admin"),
		s.makeJob)
	add(s, looking("/tenants/{tenant}/jobs", "list-jobs", "List the last 100 jobs, newest first"),
		func(ctx context.Context, in *InTenant) (*ListOf[admin.Job], error) {
			t := s.tenants[in.Tenant]
			jobs, err := t.Jobs.List(ctx)
			shapes := make([]admin.Job, len(jobs))
			for i, j := range jobs {
				shapes[i] = admin.NewJob(in.Tenant, j)
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
	add(s, looking("/tenants/{tenant}/jobs/{job}/items", "list-job-items",
		"List a job's tasks with their ends, in the order in which it takes them"),
		func(ctx context.Context, in *items) (*ListOf[admin.JobItem], error) {
			if _, err := s.showJob(ctx, in.InJob); err != nil {
				return nil, err
			}
			list, err := s.tenants[in.Tenant].Jobs.Items(ctx, in.Job, in.Offset, in.Limit)
			shapes := make([]admin.JobItem, len(list))
			for i, item := range list {
				shapes[i] = admin.JobItem{ID: item.ID, End: item.End, Text: item.Text}
			}
			return listed(shapes, err)
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/jobs/{job}/start", "start-job",
		"Start a job that is counted, or continue one that was stopped or interrupted"),
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
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/jobs/{job}/stop", "stop-job",
		"Stop a job after the tasks that it works on: up to 400"),
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

// mayAct returns an error if the principal lacks the role that the action on a single task needs.
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
	return &JobOf{Body: admin.NewJob(in.Tenant, job)}, nil
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

// work calls prepare, which makes or changes a job. Then it claims that job, and works on it in the background. If
// another process has the claim, that process continues the job, and work takes the job over only if that process ends.
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
			r := &admin.JobRunner{
				Tenant: t.Direct, Claim: claim, ID: id, Most: cmp.Or(s.config.jobItems, manage.MaxJobItems), Logged: s.logged,
				Reserve: func(ctx context.Context) *account.Share { return s.memory.Take(ctx, who, listCost) },
			}
			r.Run(ctx)
			// A request may have started the job after the count, and found the job claimed.
			claim = nil
			if job, err := t.Jobs.Get(ctx, id); err == nil && job.State == manage.JobCounted && job.Start && !job.Stop {
				claim, _ = t.Jobs.WorkOn(ctx, id)
			}
		}
	})
	return nil
}

// inherit waits until another process's claim on a job ends, and then claims the job. It returns nil if that process
// keeps the claim.
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
