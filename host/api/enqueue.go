package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/taskjson"
)

// RequestTrace is the trace of a request, in the headers of W3C Trace Context. The tasks and publications of the
// request join this trace unless they name their own.
type RequestTrace struct {
	TraceHeader string `header:"Traceparent" doc:"The trace of tasks that name none."`
	StateHeader string `header:"Tracestate"`
}

// pass makes a task without its own trace join the request's trace. It ignores a header in an invalid form, as W3C
// Trace Context requires.
func (t RequestTrace) pass(o *queue.Options) {
	if o.Traceparent == "" {
		o.Headers = queue.InheritTrace(map[string]string{
			queue.HeaderTraceparent: t.TraceHeader,
			queue.HeaderTracestate:  t.StateHeader,
		}, o.Headers)
	}
}

// publish makes a publication without its own trace join the request's trace.
func (t RequestTrace) publish(o *queue.PublishOptions) {
	if o.Traceparent == "" && trace.ID(t.TraceHeader) != "" {
		o.Traceparent, o.Tracestate = t.TraceHeader, t.StateHeader
	}
}

// EnqueueRaw asks to enqueue one task. The body, of any type, becomes the task's parameters.
type EnqueueRaw struct {
	InQueue
	taskjson.TaskOptions
	RequestTrace
	Priority       int      `query:"priority" minimum:"0" maximum:"100" default:"50" doc:"Higher ones first."`
	Label          []string `query:"label,explode" maxItems:"16" doc:"NAME=VALUE, to find the task by."`
	Header         []string `query:"header,explode" maxItems:"33" doc:"NAME=VALUE, which the handler gets with the parameters; names in lower case."`
	IdempotencyKey string   `header:"Idempotency-Key" maxLength:"255" doc:"Enqueues one task for each of your keys in a queue, for as long as the task exists and for 24 hours at least. A key that comes again with another body is refused with 422, unless the request before was refused."`
	RawBody        []byte   `contentType:"application/octet-stream"`
}

// EnqueueBatch asks to enqueue several tasks.
type EnqueueBatch struct {
	InQueue
	RequestTrace
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"As for one task; the place of a task in the batch belongs to its key."`
	Body           struct {
		Tasks []taskjson.TaskLine `json:"tasks" minItems:"1" maxItems:"1000"`
	}
}

// Receipt reports whether a task was enqueued or existed before. `quern enqueue -o json` prints the same field names.
type Receipt struct {
	ID       string `json:"id"`
	Tenant   string `json:"tenant"`
	Queue    string `json:"queue"`
	Existed  bool   `json:"existed" doc:"It was enqueued before, and nothing is enqueued now."`
	Taken    bool   `json:"taken,omitempty" doc:"What existed is something else: a task of another queue or with other parameters. Missing for who may not see parameters."`
	Unserved bool   `json:"unserved,omitempty" doc:"No host serves the queue, and none is known to have done so. The header Quern-Warning has a remedy."`
}

// Redact hides Taken from a principal that may not see parameters, since Taken would confirm a guess of the parameters.
func (r *Receipt) Redact(v admin.View) { r.Taken = r.Taken && v.Payloads }

// Enqueued is an answer with one receipt.
type Enqueued struct {
	Location string `header:"Location" doc:"Of the task, relative to this path."`
	Warned
	Body Receipt
}

// EnqueuedBatch is an answer with the receipts of several tasks.
type EnqueuedBatch struct {
	Warned
	Body List[Receipt]
}

// Warned is the part of an answer that has a warning.
type Warned struct {
	Warning string `header:"Quern-Warning" doc:"What is probably wrong although the tasks are enqueued, with a remedy: no host serves the queue."`
}

// Events asks to enqueue CloudEvents in a queue.
type Events struct {
	InQueue
	SentEvents
}

// SentEvents is the part of a request that has a CloudEvent, or a batch of them, and the trace of the request.
type SentEvents struct {
	RequestTrace
	ContentType string `header:"Content-Type" doc:"application/cloudevents+json, application/cloudevents-batch+json, or that of the data of an event whose attributes are headers ce-NAME."`
	RawBody     []byte `contentType:"application/cloudevents+json"`
	header      http.Header
}

// Resolve stores the headers of the request: in binary mode they have the attributes of the event.
func (e *SentEvents) Resolve(ctx huma.Context) []error {
	e.header = make(http.Header)
	ctx.EachHeader(func(name, value string) { e.header.Add(name, value) })
	return nil
}

func enqueueing(path, name, summary string) operation {
	o := acting(Operator, http.MethodPost, path, name, summary)
	o.maxBody, o.traffic = maxParameters, true
	return o
}

func (s *service) describeEnqueue() {
	add(s, enqueueing("/tenants/{tenant}/queues/{queue}/tasks", "enqueue-task",
		"Enqueue one task: the body is its parameters, whatever its type. With an id or an Idempotency-Key the request may be repeated"),
		func(ctx context.Context, in *EnqueueRaw) (*Enqueued, error) {
			labels, err := admin.Pairs("label", in.Label)
			if err != nil {
				return nil, err
			}
			options, err := in.Options(labels, &in.Priority)
			if err == nil {
				options.Headers, err = admin.Pairs("header", in.Header)
			}
			if err != nil {
				return nil, err
			}
			in.pass(&options)
			receipts, err := s.enqueue(ctx, in.InQueue, in.IdempotencyKey,
				[]queue.Spec{{Parameters: in.RawBody, Options: options}})
			if err != nil {
				return nil, err
			}
			warned := s.warn(ctx, in.InQueue, receipts)
			return &Enqueued{"../../tasks/" + url.PathEscape(receipts[0].ID), warned, receipts[0]}, nil
		})
	add(s, enqueueing("/tenants/{tenant}/queues/{queue}/tasks/batch", "enqueue-batch",
		"Enqueue up to 1,000 tasks in their order, with a receipt for each. Blocks of 48 tasks or 4 MiB are enqueued together or not at all; "+
			"after an error a batch whose tasks have IDs, or an Idempotency-Key, may be repeated"),
		func(ctx context.Context, in *EnqueueBatch) (*EnqueuedBatch, error) {
			specs := make([]queue.Spec, len(in.Body.Tasks))
			for i := range in.Body.Tasks {
				var err error
				if specs[i], err = in.Body.Tasks[i].Spec(); err != nil {
					return nil, failed(http.StatusBadRequest, "task %d: %v", i, err)
				}
				in.pass(&specs[i].Options)
			}
			receipts, err := s.enqueue(ctx, in.InQueue, in.IdempotencyKey, specs)
			return s.enqueued(ctx, in.InQueue, receipts, err)
		})
	add(s, enqueueing("/tenants/{tenant}/queues/{queue}/events", "enqueue-events",
		"Enqueue CloudEvents 1.0, structured, binary or batched: one task for each source and id in a queue, for 24 hours at least. "+
			"The task's parameters are the event in CloudEvents' JSON format"),
		func(ctx context.Context, in *Events) (*EnqueuedBatch, error) {
			events, err := parseEvents(in.ContentType, in.header, in.RawBody)
			if err != nil {
				return nil, failed(http.StatusBadRequest, "%v", err)
			}
			t := s.tenants[in.Tenant]
			q := t.Queue(in.Queue)
			specs := make([]queue.Spec, len(events))
			for i, e := range events {
				specs[i] = queue.Spec{Parameters: e.json, Options: queue.Options{
					ID: q.OnceID("event", e.Source, e.ID), Once: eventLife, Key: e.Subject, Traceparent: e.Traceparent,
					Headers: e.headers,
					Labels:  map[string]string{"ce-type": e.Type, "ce-source": e.Source},
				}}
				in.pass(&specs[i].Options)
			}
			receipts, err := q.EnqueueMany(ctx, specs)
			return s.enqueued(ctx, in.InQueue, receiptShapes(t, q, receipts), err)
		})
}

// eventLife is how long the source and ID of an event are remembered, even if the event's task is deleted earlier.
const eventLife = 24 * time.Hour

// enqueued returns the answer to a request that enqueued several tasks, or err.
func (s *service) enqueued(ctx context.Context, in InQueue, receipts []Receipt, err error) (*EnqueuedBatch, error) {
	if err != nil {
		return nil, err
	}
	return &EnqueuedBatch{s.warn(ctx, in, receipts), List[Receipt]{Items: receipts}}, nil
}

// warn marks the receipts if no host serves their queue, and returns the warning.
func (s *service) warn(ctx context.Context, in InQueue, receipts []Receipt) Warned {
	t := s.tenants[in.Tenant]
	warning, known := t.unserved.warning(in.Queue, time.Now())
	if !known {
		var err error
		if warning, err = admin.UnservedQueue(ctx, t.Direct, in.Queue); err != nil {
			return Warned{} // the tasks are enqueued; whether somebody serves them will be asked again
		}
		t.unserved.note(in.Queue, warning, time.Now())
	}
	for i := range receipts {
		receipts[i].Unserved = warning != ""
	}
	return Warned{warning}
}

// unservedQueues remembers whether a host serves the queues in which tasks were enqueued, so that not every request
// asks Redis. A queue that was served once is so for ever.
type unservedQueues struct {
	mu     sync.Mutex
	queues map[string]unservedQueue
}

type unservedQueue struct {
	warning string // "" if the queue is served, or was
	asked   time.Time
}

const (
	maxUnservedQueues = 10_000          // names that are remembered
	unservedAge       = 3 * time.Second // after which a warning is asked for again
)

// warning returns what is known of a queue.
func (u *unservedQueues) warning(name string, now time.Time) (warning string, known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	q, known := u.queues[name]
	return q.warning, known && (q.warning == "" || now.Sub(q.asked) < unservedAge)
}

// note remembers the warning of a queue, "" for none.
func (u *unservedQueues) note(name, warning string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queues == nil || len(u.queues) >= maxUnservedQueues {
		u.queues = make(map[string]unservedQueue)
	}
	u.queues[name] = unservedQueue{warning, now}
}

// enqueue enqueues tasks. A repeated request with the same idempotency key enqueues nothing.
func (s *service) enqueue(ctx context.Context, in InQueue, key string, specs []queue.Spec) ([]Receipt, error) {
	t, who := s.tenants[in.Tenant], principal(ctx)
	q := t.Queue(in.Queue)
	for i := range specs {
		if u := specs[i].Unique; u != nil && u.Key == "" && !who.reads() {
			return nil, failed(http.StatusForbidden, "unique without unique_key compares parameters, which %s may not see (payloads: false): add unique_key", who.Name)
		}
	}
	if key != "" {
		id := func(of string) string {
			if who == everyone {
				return q.OnceID("idempotency", key, of)
			}
			return q.OnceID("idempotency", key, of, who.Name) // principals that choose the same key get different tasks
		}
		for i := range specs {
			if specs[i].ID != "" {
				return nil, failed(http.StatusBadRequest, "both an Idempotency-Key and the id %q: an id makes a task unique by itself, leave one of them out", specs[i].ID)
			}
		}
		content := contentOf(specs)
		for i := range specs {
			specs[i].ID = id(fmt.Sprint(i))
		}
		receipts, same, err := q.EnqueueRequest(ctx, id("all"), content, specs)
		if err == nil && !same {
			err = typed("idempotency-key", failed(http.StatusUnprocessableEntity,
				"the Idempotency-Key came before with another body or other options: send the same again, or another key"))
		}
		return receiptShapes(t, q, receipts), err
	}
	receipts, err := q.EnqueueMany(ctx, specs)
	return receiptShapes(t, q, receipts), err
}

// contentOf returns a digest of the tasks of a request. It is the same when the request is repeated.
func contentOf(specs []queue.Spec) []byte {
	sum := sha256.New()
	for _, spec := range specs {
		spec.Traceparent, spec.Headers = "", untraced(spec.Headers)
		_ = json.NewEncoder(sum).Encode(spec) // neither writing to a hash nor encoding a spec fails
	}
	return sum.Sum(nil)
}

// untraced returns the headers without those of the trace, which differ when the request is repeated.
func untraced(headers map[string]string) map[string]string {
	headers = maps.Clone(headers)
	delete(headers, queue.HeaderTraceparent)
	delete(headers, queue.HeaderTracestate)
	return headers
}

// receiptShapes converts receipts to the form that the API sends.
func receiptShapes(t *tenant, q *queue.Queue, receipts []queue.Receipt) []Receipt {
	shapes := make([]Receipt, len(receipts))
	for i, r := range receipts {
		shapes[i] = Receipt{ID: r.ID, Tenant: t.Tenant(), Queue: q.Name(), Existed: r.Existed, Taken: r.Taken}
	}
	return shapes
}
