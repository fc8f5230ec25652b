package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// ShowTask asks for a task.
type ShowTask struct {
	InTask
	PayloadLimit int     `query:"payload_limit" minimum:"0" maximum:"16777216" default:"65536" doc:"Leave out parameters and result of more bytes; their own paths have them."`
	WaitSeconds  float64 `query:"wait_seconds" minimum:"0" maximum:"60" doc:"Wait this long for the task to finish before answering with what it is then."`
}

// Bytes is an answer with bytes that producers or handlers wrote.
type Bytes struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Body        []byte
}

// raw returns an answer with bytes of any kind, which a browser must neither show nor run.
func raw(value []byte) *Bytes {
	if value == nil {
		value = []byte{}
	}
	return &Bytes{ContentType: "application/octet-stream", Disposition: "attachment", Body: value}
}

// CancelTask asks to cancel a task.
type CancelTask struct {
	InTask
	Waiting bool `query:"waiting" doc:"Cancel it only if it waits; otherwise the answer is 409."`
}

// Cancelled reports what became of a cancelled task.
type Cancelled struct {
	Body struct {
		ID    string `json:"id"`
		Ended bool   `json:"ended" doc:"False: a host runs it and stops it now; ask for the task with wait_seconds."`
	}
}

func (s *service) describeTasks() {
	type search struct {
		InTenant
		admin.Filter
		Paging
	}
	add(s, looking("/tenants/{tenant}/tasks", "search-tasks",
		"List tasks that pass a filter, queue by queue, newest first. A search that would take long answers with partial: true; next goes on"),
		func(ctx context.Context, in *search) (*ListOf[admin.Task], error) {
			return s.list(ctx, in.Tenant, &in.Filter, in.Paging)
		})
	type listQueue struct {
		InQueue
		Status string `query:"status" enum:"scheduled,pending,reserved,started,complete,failed"`
		Paging
	}
	add(s, looking("/tenants/{tenant}/queues/{queue}/tasks", "list-tasks", "List the tasks of a queue, newest first"),
		func(ctx context.Context, in *listQueue) (*ListOf[admin.Task], error) {
			return s.list(ctx, in.Tenant, &admin.Filter{Queue: in.Queue, Status: in.Status}, in.Paging)
		})
	add(s, looking("/tenants/{tenant}/dead-letters", "list-dead-letters",
		"List dead letters: tasks that stand for one that failed, whose ID is live_id"),
		func(ctx context.Context, in *TenantPage) (*ListOf[admin.Task], error) {
			return s.list(ctx, in.Tenant, &admin.Filter{DeadLetters: true}, in.Paging)
		})
	type find struct {
		InTenant
		Prefix string `query:"prefix" required:"true" minLength:"8" maxLength:"128" doc:"How the IDs begin."`
	}
	add(s, looking("/tenants/{tenant}/task-ids", "find-task-ids", "List up to 10 IDs of tasks that begin with a text"),
		func(ctx context.Context, in *find) (*ListOf[string], error) {
			place, err := s.searches.enter(ctx)
			if err != nil {
				return nil, err
			}
			defer place.Give()
			ids, err := s.tenants[in.Tenant].FindTasks(ctx, in.Prefix, 10)
			return listed(append([]string{}, ids...), err)
		})
	add(s, looking("/tenants/{tenant}/tasks/{id}", "show-task", "Show everything about a task"), s.showTask)
	add(s, revealing("/tenants/{tenant}/tasks/{id}/parameters", "show-parameters", "The bytes of a task's parameters"),
		func(ctx context.Context, in *InTask) (*Bytes, error) {
			size, err := s.reservePayload(ctx, in, func(parameters, _ int64) int64 { return parameters })
			if err != nil {
				return nil, err
			}
			parameters, err := s.tenants[in.Tenant].Parameters(ctx, in.ID, size)
			return raw(parameters), err
		})
	add(s, revealing("/tenants/{tenant}/tasks/{id}/result", "show-result", "The bytes of a complete task's result"),
		func(ctx context.Context, in *InTask) (*Bytes, error) {
			t := s.tenants[in.Tenant]
			task, err := t.Client.Summary(ctx, in.ID)
			if err == nil && task.Status != queue.Complete {
				err = failed(http.StatusConflict, "task %s is %s: only a complete task has a result", in.ID, task.Status)
			}
			if err != nil {
				return nil, err
			}
			size, err := s.reservePayload(ctx, in, func(_, result int64) int64 { return result })
			if err != nil {
				return nil, err
			}
			result, err := t.Result(ctx, in.ID, size)
			if errors.Is(err, queue.ErrNoTask) { // the task was written by hand, or has been retried since
				return raw(nil), nil
			}
			return raw(result), err
		})
	add(s, revealing("/tenants/{tenant}/tasks/{id}/record", "show-record",
		"The record of a run of a task, for `quern task replay`: a task has one if record of it has a size"),
		func(ctx context.Context, in *InTask) (*Bytes, error) {
			task, err := s.tenants[in.Tenant].Client.Summary(ctx, in.ID)
			if err == nil {
				err = s.reserve(ctx, valueAnswer(task.RecordSize))
			}
			if err != nil {
				return nil, err
			}
			record, err := s.tenants[in.Tenant].Manager.Record(ctx, in.ID)
			return raw(record), err
		})
	type log struct {
		InTask
		After int64 `query:"after" minimum:"0" doc:"Only lines with higher numbers."`
	}
	add(s, revealing("/tenants/{tenant}/tasks/{id}/log", "show-log", "The last lines that a task's handler wrote"),
		func(ctx context.Context, in *log) (*ListOf[admin.LogLine], error) {
			return listed(s.tenants[in.Tenant].lines(ctx, in.ID, in.After))
		})
	add(s, looking("/tenants/{tenant}/tasks/{id}/history", "show-history",
		"The last runs of a task that have ended, oldest first"),
		func(ctx context.Context, in *InTask) (*ListOf[admin.Attempt], error) {
			out, err := s.showTask(ctx, &ShowTask{InTask: *in})
			if err != nil {
				return nil, err
			}
			return listed(append([]admin.Attempt{}, out.Body.History...), nil)
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/tasks/{id}/cancel", "cancel-task",
		"Cancel a waiting task, or stop a running one"),
		func(ctx context.Context, in *CancelTask) (*Cancelled, error) {
			t, out := s.tenants[in.Tenant], &Cancelled{}
			out.Body.ID, out.Body.Ended = in.ID, true
			if in.Waiting {
				task, err := t.Summary(ctx, in.ID)
				if err == nil {
					err = t.Queue(task.Queue).CancelWaiting(ctx, in.ID)
				}
				return out, err
			}
			one := t.Change(ctx, queue.ChangeCancel, in.ID)
			out.Body.Ended = !one.Stopping
			return out, one.Err
		})
	add(s, acting(Operator, http.MethodPost, "/tenants/{tenant}/tasks/{id}/retry", "retry-task",
		"Retry a failed task, or that of a dead letter, and show it: it waits like a new one, its attempts counted from 0"),
		func(ctx context.Context, in *InTask) (*Of[admin.Task], error) {
			one := s.tenants[in.Tenant].Change(ctx, queue.ChangeRetry, in.ID)
			if one.Err != nil {
				return nil, one.Err
			}
			return s.showTask(ctx, &ShowTask{InTask: InTask{in.InTenant, one.Task.ID}})
		})
	add(s, acting(Admin, http.MethodDelete, "/tenants/{tenant}/tasks/{id}", "delete-task",
		"Delete a finished task with its result, log and history"),
		func(ctx context.Context, in *InTask) (*struct{}, error) {
			return nil, s.tenants[in.Tenant].Change(ctx, queue.ChangeDelete, in.ID).Err
		})
}

// checkFilter returns an error if the filter is invalid, or if it searches texts that the principal may not read.
func checkFilter(ctx context.Context, f *admin.Filter) error {
	if who := principal(ctx); f.Error != "" && !who.reads() {
		return failed(http.StatusForbidden, "%s may not search the errors of handlers, because it may not see them (payloads: false): leave error out", who.Name)
	}
	return f.Check()
}

// list returns a page of the tasks that pass a filter.
func (s *service) list(ctx context.Context, name string, f *admin.Filter, p Paging) (*ListOf[admin.Task], error) {
	t := s.tenants[name]
	from, err := admin.ParsePlace(p.Cursor)
	if err == nil {
		err = checkFilter(ctx, f)
	}
	if err == nil && f.Queue != "" {
		err = t.known(ctx, f.Queue)
	}
	if err != nil {
		return nil, err
	}
	place, err := s.searches.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer place.Give()
	out := &ListOf[admin.Task]{List[admin.Task]{Items: []admin.Task{}}}
	size := int64(0)
	next, full, err := t.Search(ctx, f, from, nil, func(task *queue.Task) bool {
		out.Body.Items = append(out.Body.Items, *admin.NewTask(name, task, nil))
		size += taskSize(task)
		return len(out.Body.Items) < p.Limit && size < pageBytes
	})
	if next != nil {
		out.Body.Next, out.Body.Partial = next.Cursor(), !full
	}
	return out, err
}

func (s *service) showTask(ctx context.Context, in *ShowTask) (*Of[admin.Task], error) {
	t := s.tenants[in.Tenant]
	if in.WaitSeconds > 0 {
		place, err := s.waits.enter(ctx)
		if err != nil {
			return nil, err
		}
		defer place.Give()
		waiting, stop := context.WithTimeout(ctx, admin.Period(in.WaitSeconds))
		defer stop()
		c := callerOf(ctx)
		c.place.Give()
		if _, err := t.WaitSummary(waiting, in.ID); err != nil && waiting.Err() == nil {
			return nil, err
		}
		if c.place, err = s.requests.enter(ctx); err != nil {
			return nil, err
		}
	}
	task, parameters, result, err := s.read(ctx, in)
	if err != nil {
		return nil, err
	}
	shape, err := admin.ReadTask(ctx, t.Manager, in.Tenant, task)
	if err != nil {
		return nil, err
	}
	shape.ParametersSize, shape.ResultSize = int(parameters), int(result)
	t.Explain(ctx, shape)
	return &Of[admin.Task]{*shape}, nil
}

// reservePayload reserves the memory for a payload of a task before the payload is read. wanted chooses the payload by
// the sizes of both. A payload that is longer than the API sends is refused. The caller may read at most size bytes,
// because the payload may change meanwhile.
func (s *service) reservePayload(ctx context.Context, in *InTask,
	wanted func(parameters, result int64) int64,
) (size int64, err error) {
	parameters, result, err := s.tenants[in.Tenant].PayloadSizes(ctx, in.ID)
	if err != nil {
		return 0, err
	}
	if size = wanted(parameters, result); size > maxParameters {
		return 0, failed(http.StatusConflict, "the payload has %d bytes, and the API sends at most %d: read it from Redis with `quern task show %s`", size, maxParameters, in.ID)
	}
	return size, s.reserve(ctx, valueAnswer(size))
}

// maxShown bounds the JSON of parameters and result together, in bytes, if they are shown as a part of their task.
const maxShown = 6 << 20

// read reads a task, and its parameters and result as far as they are to be shown. It also returns the sizes of both
// payloads.
func (s *service) read(ctx context.Context, in *ShowTask) (task *queue.Task, parameters, result int64, err error) {
	t := s.tenants[in.Tenant]
	if parameters, result, err = t.PayloadSizes(ctx, in.ID); err != nil {
		return nil, 0, 0, err
	}
	shown := func(size int64) int64 {
		if size > int64(in.PayloadLimit) || size > maxShown || !principal(ctx).reads() {
			return 0
		}
		return size
	}
	size := shown(parameters) + shown(result)
	const failures = 4 << 20 // memory for 22 failures of 17 KiB: read, decoded, and their JSON
	if err = s.reserve(ctx, failures+jsonAnswer(size, min(6*size, maxShown))); err != nil {
		return nil, 0, 0, err
	}
	task, err = t.Client.Summary(ctx, in.ID)
	if err == nil && shown(parameters) == parameters {
		task.Parameters, err = t.Parameters(ctx, in.ID, parameters)
	}
	if err == nil && shown(result) == result && task.Status == queue.Complete {
		task.Result, err = t.Result(ctx, in.ID, result)
		switch {
		case errors.Is(err, queue.ErrNoTask): // it was retried meanwhile
			err = nil
		case errors.Is(err, queue.ErrTooLarge) && result == 0: // it has completed since its sizes were read
			return s.read(ctx, in)
		}
	}
	if err != nil {
		return nil, 0, 0, err
	}
	// A payload whose JSON is too long is left out; the path of the payload itself sends its bytes.
	left := int64(maxShown)
	for _, value := range []*[]byte{&task.Parameters, &task.Result} {
		if text := escaped(*value); text <= left {
			left -= text
		} else {
			*value = nil
		}
	}
	callerOf(ctx).memory.Shrink(failures + jsonAnswer(size, maxShown-left))
	return task, parameters, result, nil
}

// taskSize estimates the bytes of a task's JSON in a list.
func taskSize(t *queue.Task) int64 {
	size := 1024 + escaped(t.Error, t.LastError, t.Message, t.Key, t.Parent, t.DeadError)
	for _, texts := range []map[string]string{t.Labels, t.Headers} {
		for name, value := range texts {
			size += escaped(name, value)
		}
	}
	return size
}

// lines returns the lines of a task's log whose numbers are greater than after. If there are none, it checks that the
// task exists.
func (t *tenant) lines(ctx context.Context, id string, after int64) ([]admin.LogLine, error) {
	lines, err := t.Log(ctx, id, after)
	if err == nil && len(lines) == 0 {
		_, err = t.Client.Summary(ctx, id)
	}
	return lines, err
}
