package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"

	"github.com/quern-project/quern/host/admin"
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
	// mostBody is what the API takes in a request. Batches have mostBatch tasks of mostBatchBytes, which JSON may make six times as
	// long.
	mostBody       = 16 << 20
	mostBatch      = 1000
	mostBatchBytes = 2 << 20
	// mostQuery bounds the query of a task with larger parameters: many proxies take 8 KiB of a request's head.
	mostQuery = 7 << 10
)

func (c *Client) show(ctx context.Context, id string, query url.Values, wait time.Duration) (*admin.Task, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	task := &admin.Task{}
	what := get(task, "tasks", id)
	what.query, what.wait = query, wait
	if err := c.do(ctx, what); err != nil {
		return nil, err
	}
	return task, nil
}

// complete reads those payloads of a task that the answer left out. Those that the token's holder may not see are missing, unless they
// are needed.
func (c *Client) complete(ctx context.Context, task *admin.Task, needed bool) error {
	for _, part := range []struct {
		name string
		size *int
		text **string
		data *[]byte
	}{{"parameters", &task.ParametersSize, &task.Parameters, &task.ParametersBase64}, {"result", &task.ResultSize, &task.Result, &task.ResultBase64}} {
		if *part.size == 0 || *part.text != nil || *part.data != nil {
			continue
		}
		var value []byte
		if err := c.do(ctx, get(&value, "tasks", task.ID, part.name)); errors.Is(err, admin.ErrForbidden) && (!needed || part.name == "parameters") {
			value = nil
		} else if err != nil {
			return err
		}
		*part.size = len(value)
		*part.text, *part.data = admin.Payload(value)
	}
	unmarked(task)
	return nil
}

// unmarked leaves out of a task that something is withheld: -o json does not show that.
func unmarked(task *admin.Task) { task.Withheld = false }

var shown = fmt.Sprint(mostShown)

// Task reads a task: queue.ErrNoTask if there is none.
func (c *Client) Task(ctx context.Context, id string) (*admin.Task, error) {
	task, err := c.show(ctx, id, url.Values{"payload_limit": {shown}}, 0)
	if err != nil {
		return nil, err
	}
	if task.Withheld && c.Withheld != nil {
		c.Withheld(task)
	}
	return task, c.complete(ctx, task, false)
}

// Summary reads a task without its parameters and result.
func (c *Client) Summary(ctx context.Context, id string) (*admin.Task, error) {
	return c.show(ctx, id, url.Values{"payload_limit": {"0"}}, 0)
}

// Wait blocks until the task is finished and returns it; queue.ErrNoTask if it does not exist or is deleted meanwhile. While the
// server is away it goes on trying until ctx ends.
func (c *Client) Wait(ctx context.Context, id string) (*admin.Task, error) {
	for {
		query := url.Values{"payload_limit": {shown}, "wait_seconds": {fmt.Sprint(waitAtOnce.Seconds())}}
		task, err := c.show(ctx, id, query, waitAtOnce)
		ended := err == nil && task.Status.Finished()
		if ended {
			err = c.complete(ctx, task, true)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case queue.IsUnavailable(err):
			if !periodic.Sleep(ctx, pauseOf(err)) {
				return nil, ctx.Err()
			}
		case err != nil || ended:
			return task, err
		}
	}
}

// pauseOf is for how long to leave the server alone after an error.
func pauseOf(err error) time.Duration {
	later, _ := errors.AsType[laterError](err)
	return min(max(waitPause, later.after), waitAtOnce)
}

// Log reads the stored lines of a task's log with numbers above after.
func (c *Client) Log(ctx context.Context, id string, after int64) ([]admin.LogLine, error) {
	var page api.List[admin.LogLine]
	what := get(&page, "tasks", id, "log")
	what.query = url.Values{"after": {fmt.Sprint(after)}}
	err := c.do(ctx, what)
	return page.Items, err
}

// FindTasks lists the IDs of tasks that begin with a text, up to most, which the API bounds to 10.
func (c *Client) FindTasks(ctx context.Context, prefix string, most int) ([]string, error) {
	var page api.List[string]
	what := get(&page, "task-ids")
	what.query = url.Values{"prefix": {prefix}}
	err := c.do(ctx, what)
	return page.Items[:min(most, len(page.Items))], err
}

// Retry retries a failed task, or that of a dead letter, and returns it as it is then: queue.ErrStatus if it has not failed.
func (c *Client) Retry(ctx context.Context, id string) (*admin.Task, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	task := &admin.Task{}
	if err := c.do(ctx, post(task, "tasks", id, "retry")); err != nil {
		return nil, err
	}
	return task, nil
}

// List reads the tasks of the filter's queue that pass it, newest first (scheduled: next due first), without their parameters and
// results: limit of them from an offset, 0 for all.
func (c *Client) List(ctx context.Context, f *admin.Filter, offset, limit int) (tasks []admin.Task, err error) {
	what := get(nil, "tasks")
	what.query = queryOf(*f)
	if limit > 0 {
		what.query.Set("limit", fmt.Sprint(min(offset+limit, pageSize)))
	}
	err = pages(ctx, c, what, func(page []admin.Task) bool {
		for i := range page {
			unmarked(&page[i])
		}
		tasks = append(tasks, page...)
		return limit == 0 || len(tasks) < offset+limit
	})
	if errors.Is(err, admin.ErrNoQueue) {
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
func (q *queueHandle) EnqueueMany(ctx context.Context, specs []queue.Spec) ([]queue.Receipt, error) {
	receipts := make([]queue.Receipt, len(specs))
	for i, spec := range specs {
		spec.ID = cmp.Or(spec.ID, queue.NewID())
		receipts[i].ID = spec.ID
		if err := (&listen.Child{Queue: q.name, Spec: spec}).Validate(); err != nil {
			return nil, err
		}
		if len(spec.Parameters) > mostBody {
			return nil, fmt.Errorf("%w: parameters of %d bytes: the API takes %d MiB: enqueue it by Redis", queue.ErrInvalid, len(spec.Parameters), mostBody>>20)
		}
	}
	for from := 0; from < len(specs); {
		n := batch(specs[from:])
		var err error
		if n > 0 {
			err = q.enqueue(ctx, specs[from:from+n], receipts[from:from+n])
		} else {
			n, err = 1, q.enqueueLarge(ctx, specs[from], &receipts[from])
		}
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

// batch is how many of the first tasks go together; 0 if the first one is too large for a batch.
func batch(specs []queue.Spec) (n int) {
	for size := 0; n < len(specs) && n < mostBatch; n++ {
		if size += (&listen.Child{Spec: specs[n]}).Size(); size > mostBatchBytes {
			break
		}
	}
	return n
}

// enqueueLarge sends a task whose parameters are a body of their own.
func (q *queueHandle) enqueueLarge(ctx context.Context, spec queue.Spec, receipt *queue.Receipt) error {
	var got api.Receipt
	what := post(&got, "queues", q.name, "tasks")
	options := api.OptionsOf(&spec.Options)
	options.ID = receipt.ID
	what.query, what.body = queryOf(options), spec.Parameters
	for name, value := range spec.Labels {
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("%w: label %q beside parameters of %d bytes: use a name without =", queue.ErrInvalid, name, len(spec.Parameters))
		}
		what.query.Add("label", name+"="+value)
	}
	for name, value := range spec.Headers {
		what.query.Add("header", name+"="+value)
	}
	if spec.Priority != nil {
		what.query.Set("priority", fmt.Sprint(*spec.Priority))
	}
	if size := len(what.query.Encode()); size > mostQuery {
		return fmt.Errorf("%w: key, labels and headers of %d bytes beside parameters of %d: the API takes %d: enqueue it by Redis", queue.ErrInvalid, size, len(spec.Parameters), mostQuery)
	}
	if err := q.client.do(ctx, what); err != nil {
		return err
	}
	return q.client.receive(receipt, got)
}

// receive takes the receipt of a task, which it must be.
func (c *Client) receive(receipt *queue.Receipt, got api.Receipt) error {
	if got.ID == "" || got.ID != receipt.ID && !got.Existed {
		return c.failed(fmt.Errorf("the answer is none of the API: it has no receipt of task %s", receipt.ID))
	}
	*receipt = queue.Receipt{ID: got.ID, Existed: got.Existed, Taken: got.Taken}
	return nil
}

// enqueue sends some tasks, whose receipts have their IDs.
func (q *queueHandle) enqueue(ctx context.Context, specs []queue.Spec, receipts []queue.Receipt) error {
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
	got.Items = append(got.Items, make([]api.Receipt, len(specs))...) // those that are missing
	for i := range receipts {
		if err := q.client.receive(&receipts[i], got.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
