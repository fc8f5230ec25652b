package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// mostShown is up to how many bytes a payload is a part of its task; larger ones have paths of their own.
	mostShown = 1 << 20
	// waitAtOnce is for how long the server is asked to wait at a time.
	waitAtOnce = 30 * time.Second
	// waitPause is between two attempts to wait, while the server is away.
	waitPause = time.Second
	// mostBody is what the API takes of parameters. Batches have mostBatch tasks, and parameters of about mostBatchBytes.
	mostBody       = 16 << 20
	mostBatch      = 1000
	mostBatchBytes = 4 << 20
)

func (c *Client) show(ctx context.Context, id string, query url.Values, wait time.Duration) (*api.Task, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	var shape api.Task
	what := get(&shape, "tasks", id)
	what.query, what.wait = query, wait
	return &shape, c.do(ctx, what)
}

// whole reads a task with its payloads. Those that the token's holder may not see are missing, unless they are needed.
func (c *Client) whole(ctx context.Context, shape *api.Task, needed bool) (*queue.Task, error) {
	task := shape.Task()
	for _, part := range []struct {
		name  string
		size  int
		value *[]byte
	}{{"parameters", shape.ParametersSize, &task.Parameters}, {"result", shape.ResultSize, &task.Result}} {
		if part.size == 0 || *part.value != nil {
			continue
		}
		err := c.do(ctx, get(part.value, "tasks", task.ID, part.name))
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Status == http.StatusForbidden && (!needed || part.name == "parameters") {
			*part.value, err = nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return task, nil
}

var shown = fmt.Sprint(mostShown)

// Task reads a task: queue.ErrNoTask if there is none.
func (c *Client) Task(ctx context.Context, id string) (*queue.Task, error) {
	shape, err := c.show(ctx, id, url.Values{"payload_limit": {shown}}, 0)
	if err != nil {
		return nil, err
	}
	return c.whole(ctx, shape, false)
}

// Summary reads a task without its parameters and result.
func (c *Client) Summary(ctx context.Context, id string) (*queue.Task, error) {
	shape, err := c.show(ctx, id, url.Values{"payload_limit": {"0"}}, 0)
	if err != nil {
		return nil, err
	}
	return shape.Task(), nil
}

// Wait blocks until the task is finished and returns it; queue.ErrNoTask if it does not exist or is deleted meanwhile. While the
// server is away it goes on trying until ctx ends.
func (c *Client) Wait(ctx context.Context, id string) (*queue.Task, error) {
	for {
		query := url.Values{"payload_limit": {shown}, "wait_seconds": {fmt.Sprint(waitAtOnce.Seconds())}}
		shape, err := c.show(ctx, id, query, waitAtOnce)
		var task *queue.Task
		if err == nil && shape.Status.Finished() {
			task, err = c.whole(ctx, shape, true)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case queue.IsUnavailable(err):
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(waitPause):
			}
		case err != nil || task != nil:
			return task, err
		}
	}
}

// History reads the last runs of a task that have ended, oldest first.
func (c *Client) History(ctx context.Context, task *queue.Task) ([]queue.Attempt, error) {
	var page api.List[api.Attempt]
	err := c.do(ctx, get(&page, "tasks", task.ID, "history"))
	var attempts []queue.Attempt
	for _, a := range page.Items {
		attempts = append(attempts, a.Attempt())
	}
	return attempts, err
}

// Log reads the stored lines of a task's log with numbers above after.
func (c *Client) Log(ctx context.Context, id string, after int64) ([]queue.LogLine, error) {
	var page api.List[api.LogLine]
	what := get(&page, "tasks", id, "log")
	what.query = url.Values{"after": {fmt.Sprint(after)}}
	err := c.do(ctx, what)
	lines := make([]queue.LogLine, len(page.Items))
	for i, l := range page.Items {
		lines[i] = queue.LogLine{Number: l.Number, Time: api.Moment(l.Time), Text: l.Text}
	}
	return lines, err
}

// FindTasks lists the IDs of tasks that begin with a text, up to most, which the API bounds to 10.
func (c *Client) FindTasks(ctx context.Context, prefix string, most int) ([]string, error) {
	var page api.List[string]
	what := get(&page, "task-ids")
	what.query = url.Values{"prefix": {prefix}}
	err := c.do(ctx, what)
	return page.Items[:min(most, len(page.Items))], err
}

// Retry retries a failed task, or that of a dead letter, and returns it as it was before: queue.ErrStatus if it has not failed.
func (c *Client) Retry(ctx context.Context, id string) (*queue.Task, error) {
	task, err := c.Summary(ctx, id)
	if err == nil && task.LiveID != "" {
		origin, gone := c.Summary(ctx, task.LiveID)
		if !errors.Is(gone, queue.ErrNoTask) {
			task, err = origin, gone
		}
	}
	if err != nil {
		return nil, err
	}
	return task, c.do(ctx, post(nil, "tasks", id, "retry"))
}

// List reads the tasks of the filter's queue that pass it, newest first (scheduled: next due first), without their parameters and
// results: limit of them from an offset, 0 for all.
func (c *Client) List(ctx context.Context, f *api.Filter, offset, limit int) ([]*queue.Task, error) {
	what := get(nil, "tasks")
	what.query = queryOf(*f)
	if limit > 0 {
		what.query.Set("limit", fmt.Sprint(min(offset+limit, pageSize)))
	}
	var tasks []*queue.Task
	err := pages(ctx, c, what, func(page []api.Task) bool {
		for _, shape := range page {
			tasks = append(tasks, shape.Task())
		}
		return limit == 0 || len(tasks) < offset+limit
	})
	if errors.Is(err, api.ErrNoQueue) {
		return nil, nil
	}
	tasks = tasks[min(offset, len(tasks)):]
	if limit > 0 {
		tasks = tasks[:min(limit, len(tasks))]
	}
	return tasks, err
}

// queryOf are the parameters of a query that say what a shape of the API does, which has tags for both.
func queryOf(shape any) url.Values {
	query := url.Values{}
	v := reflect.ValueOf(shape)
	for _, field := range reflect.VisibleFields(v.Type()) {
		name, value := field.Tag.Get("query"), v.FieldByIndex(field.Index)
		if name == "" || value.IsZero() {
			continue
		}
		name, _, list := strings.Cut(name, ",explode")
		if list {
			for i := range value.Len() {
				query.Add(name, fmt.Sprint(value.Index(i)))
			}
		} else if text, err := json.Marshal(value.Interface()); err == nil && value.Kind() != reflect.String {
			query.Set(name, string(text))
		} else {
			query.Set(name, value.String())
		}
	}
	return query
}

// EnqueueMany enqueues tasks in the order given, as queue.Queue's does: after an error the receipts have every ID, so that
// enqueueing the same specs with these IDs again doubles none.
func (q *Queue) EnqueueMany(ctx context.Context, specs []queue.Spec) ([]queue.Receipt, error) {
	receipts := make([]queue.Receipt, len(specs))
	for i, spec := range specs {
		spec.ID = cmp.Or(spec.ID, queue.NewID())
		receipts[i].ID = spec.ID
		if err := (&queue.Child{Queue: q.name, Spec: spec}).Validate(); err != nil {
			return nil, err
		}
		if len(spec.Parameters) > mostBody {
			return nil, fmt.Errorf("%w: parameters of %d bytes: the API takes %d MiB: enqueue it by Redis", queue.ErrInvalid, len(spec.Parameters), mostBody>>20)
		}
	}
	for from := 0; from < len(specs); {
		n := batch(specs[from:])
		err := q.enqueue(ctx, specs[from:from+n], receipts[from:from+n])
		if what := fmt.Sprintf("enqueue in %q: ", q.name); err != nil && !strings.HasPrefix(err.Error(), what) { // the API may say so itself
			err = fmt.Errorf("%s%w", what, err)
		}
		if err != nil {
			return receipts, err
		}
		from += n
	}
	return receipts, nil
}

// batch is how many of the first tasks go together.
func batch(specs []queue.Spec) (n int) {
	for size := 0; n < len(specs) && n < mostBatch; n++ {
		if size += len(specs[n].Parameters); size > mostBatchBytes {
			break
		}
	}
	return max(n, 1)
}

// enqueue sends some tasks, whose receipts have their IDs.
func (q *Queue) enqueue(ctx context.Context, specs []queue.Spec, receipts []queue.Receipt) error {
	if len(specs) == 1 && len(specs[0].After) == 0 { // of any bytes and size
		var got api.Receipt
		what := post(&got, "queues", q.name, "tasks")
		options := api.OptionsOf(&specs[0].Options)
		options.ID = receipts[0].ID
		what.query, what.body = queryOf(options), append([]byte{}, specs[0].Parameters...)
		for name, value := range specs[0].Labels {
			what.query.Add("label", name+"="+value)
		}
		for name, value := range specs[0].Headers {
			what.query.Add("header", name+"="+value)
		}
		if specs[0].Priority != nil {
			what.query.Set("priority", fmt.Sprint(*specs[0].Priority))
		}
		err := q.client.do(ctx, what)
		if err == nil {
			receipts[0] = queue.Receipt{ID: got.ID, Existed: got.Existed}
		}
		return err
	}
	var body struct {
		Tasks []api.TaskLine `json:"tasks"`
	}
	for i, spec := range specs {
		line := api.TaskLine{TaskOptions: api.OptionsOf(&spec.Options), Priority: spec.Priority, Labels: spec.Labels, Headers: spec.Headers}
		line.ID = receipts[i].ID
		if utf8.Valid(spec.Parameters) {
			line.Parameters, _ = json.Marshal(string(spec.Parameters)) // always can be
		} else {
			line.ParametersBase64 = spec.Parameters
		}
		body.Tasks = append(body.Tasks, line)
	}
	var got api.List[api.Receipt]
	what := post(&got, "queues", q.name, "tasks", "batch")
	what.body = body
	if err := q.client.do(ctx, what); err != nil {
		return err
	}
	for i, r := range got.Items[:min(len(got.Items), len(receipts))] {
		receipts[i] = queue.Receipt{ID: r.ID, Existed: r.Existed}
	}
	return nil
}
