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

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/taskjson"
)

const (
	// maxShown is the maximum size of a payload that an answer has as a part of its task, in bytes. Larger payloads are
	// read by their own paths.
	maxShown = 1 << 20
	// waitAtOnce is how long one call asks the server to wait for a task.
	waitAtOnce = 30 * time.Second
	// waitPause is the shortest pause between two attempts to wait, while the server is away.
	waitPause = time.Second
	// maxBody is the maximum size of a body that the API takes, in bytes. A batch has at most maxBatch tasks, which
	// have maxBatchBytes together. Their JSON may be six times as long.
	maxBody       = 16 << 20
	maxBatch      = 1000
	maxBatchBytes = 2 << 20
	// maxQuery is the maximum length of the query with which a large task is sent, in bytes, because many proxies take
	// only 8 KiB for the head of a request.
	maxQuery = 7 << 10
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

// complete reads those payloads of a task that the answer with the task left out. A payload that the token's holder may
// not see stays missing; but if needed is true, a missing result is an error.
func (c *Client) complete(ctx context.Context, task *admin.Task, needed bool) error {
	for _, part := range []struct {
		name string
		size *int
		text **string
		data *[]byte
	}{
		{"parameters", &task.ParametersSize, &task.Parameters, &task.ParametersBase64},
		{"result", &task.ResultSize, &task.Result, &task.ResultBase64},
	} {
		if *part.size == 0 || *part.text != nil || *part.data != nil {
			continue
		}
		var value []byte
		if err := c.do(ctx, get(&value, "tasks", task.ID, part.name)); errors.Is(err, admin.ErrForbidden) &&
			(!needed || part.name == "parameters") {
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

// unmarked clears the mark that payloads of a task are withheld, which -o json does not show.
func unmarked(task *admin.Task) { task.Withheld = false }

var shown = fmt.Sprint(maxShown)

// Task reads a task. The error is queue.ErrNoTask if there is none with that ID.
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

// Wait blocks until the task is finished, and returns it. The error is queue.ErrNoTask if the task does not exist or is
// deleted meanwhile. While the server is away, Wait tries again until ctx ends.
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

// pauseOf returns how long to wait after an error before the next request.
func pauseOf(err error) time.Duration {
	later, _ := errors.AsType[laterError](err)
	return min(max(waitPause, later.after), waitAtOnce)
}

// Log reads the stored lines of a task's log whose numbers are greater than after.
func (c *Client) Log(ctx context.Context, id string, after int64) ([]admin.LogLine, error) {
	var page api.List[admin.LogLine]
	what := get(&page, "tasks", id, "log")
	what.query = url.Values{"after": {fmt.Sprint(after)}}
	err := c.do(ctx, what)
	return page.Items, err
}

// Record reads the record of a run of a task. The error is manage.ErrNoRecord if there is none.
func (c *Client) Record(ctx context.Context, id string) (record []byte, err error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	err = c.do(ctx, get(&record, "tasks", id, "record"))
	return record, err
}

// FindTasks lists at most limit IDs of tasks that begin with prefix. The API returns at most 10.
func (c *Client) FindTasks(ctx context.Context, prefix string, limit int) ([]string, error) {
	var page api.List[string]
	what := get(&page, "task-ids")
	what.query = url.Values{"prefix": {prefix}}
	err := c.do(ctx, what)
	return page.Items[:min(limit, len(page.Items))], err
}

// Retry retries a failed task, or the failed task behind a dead letter, and returns the retried task. The error is
// queue.ErrStatus if the task has not failed.
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

// List reads the tasks that pass the filter, without parameters and results. The newest task comes first; of scheduled
// tasks, the one that is due next. List skips the first offset tasks and returns at most limit tasks, or all if limit
// is 0.
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

// queryOf returns the query parameters for a struct of the API: the fields that have the tag query and are not zero.
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

// EnqueueMany enqueues tasks in the order of specs, like queue.Queue.EnqueueMany. If the server fails, the receipts
// have the IDs of all tasks. The caller can then enqueue the same specs with these IDs again, and no task is
// duplicated.
func (q *queueHandle) EnqueueMany(ctx context.Context, specs []queue.Spec) ([]queue.Receipt, error) {
	receipts := make([]queue.Receipt, len(specs))
	for i, spec := range specs {
		spec.ID = cmp.Or(spec.ID, queue.NewID())
		receipts[i].ID = spec.ID
		if err := (&listen.Child{Queue: q.name, Spec: spec}).Validate(); err != nil {
			return nil, err
		}
		if len(spec.Parameters) > maxBody {
			return nil, fmt.Errorf("%w: parameters of %d bytes: the API takes at most %d MiB: enqueue the task through Redis instead", queue.ErrInvalid, len(spec.Parameters), maxBody>>20)
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
		// the API's error may begin with what
		if what := fmt.Sprintf("enqueue in %q: ", q.name); err != nil && !strings.HasPrefix(err.Error(), what) {
			err = fmt.Errorf("%s%w", what, err)
		}
		if err != nil {
			return receipts, err
		}
		from += n
	}
	return receipts, nil
}

// batch returns how many tasks of specs, from the first on, fit into one batch. It returns 0 if the first task is too
// large for a batch.
func batch(specs []queue.Spec) (n int) {
	for size := 0; n < len(specs) && n < maxBatch; n++ {
		if size += (&listen.Child{Spec: specs[n]}).Size(); size > maxBatchBytes {
			break
		}
	}
	return n
}

// enqueueLarge sends one task, with its parameters as the body of the request.
func (q *queueHandle) enqueueLarge(ctx context.Context, spec queue.Spec, receipt *queue.Receipt) error {
	var got api.Receipt
	what := post(&got, "queues", q.name, "tasks")
	options := taskjson.OptionsOf(&spec.Options)
	options.ID = receipt.ID
	what.query, what.body = queryOf(options), spec.Parameters
	for name, value := range spec.Labels {
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("%w: label %q: with parameters as large as these (%d bytes), the API needs labels whose names are not empty and have no =",
				queue.ErrInvalid, name, len(spec.Parameters))
		}
		what.query.Add("label", name+"="+value)
	}
	for name, value := range spec.Headers {
		what.query.Add("header", name+"="+value)
	}
	if spec.Priority != nil {
		what.query.Set("priority", fmt.Sprint(*spec.Priority))
	}
	if size := len(what.query.Encode()); size > maxQuery {
		return fmt.Errorf("%w: key, labels and headers of %d bytes beside parameters of %d bytes: the API takes at most %d: enqueue the task through Redis instead", queue.ErrInvalid, size, len(spec.Parameters), maxQuery)
	}
	if err := q.client.enqueue(ctx, q.name, what); err != nil {
		return err
	}
	return q.client.receive(receipt, got)
}

// receive stores the receipt that the API sent in receipt. It returns an error if the API's receipt is for another
// task.
func (c *Client) receive(receipt *queue.Receipt, got api.Receipt) error {
	if got.ID == "" || got.ID != receipt.ID && !got.Existed {
		return c.failed(fmt.Errorf("the answer is not from Quern's API: it has no receipt of task %s", receipt.ID))
	}
	*receipt = queue.Receipt{ID: got.ID, Existed: got.Existed, Taken: got.Taken}
	return nil
}

// enqueue sends tasks as one batch. receipts has the IDs of the tasks.
func (q *queueHandle) enqueue(ctx context.Context, specs []queue.Spec, receipts []queue.Receipt) error {
	var body struct {
		Tasks []taskjson.TaskLine `json:"tasks"`
	}
	for i, spec := range specs {
		line := taskjson.LineOf(&spec)
		line.ID = receipts[i].ID
		body.Tasks = append(body.Tasks, line)
	}
	var got api.List[api.Receipt]
	what := post(&got, "queues", q.name, "tasks", "batch")
	what.body = body
	if err := q.client.enqueue(ctx, q.name, what); err != nil {
		return err
	}
	got.Items = append(got.Items, make([]api.Receipt, len(specs))...) // receive refuses the empty receipts
	for i := range receipts {
		if err := q.client.receive(&receipts[i], got.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
