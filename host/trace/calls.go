package trace

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// maxCalls is the maximum number of calls in one run that have spans. Otherwise a guest that makes a million calls
// would crowd out all other spans.
const maxCalls = 128

// Services returns the services of the run's guest with spans for calls of HTTP, KV, SQL, Enqueue and Publish. Calls
// must come one at a time.
func (s *Span) Services(services service.Services) service.Services {
	if s == nil {
		return services
	}
	if services.HTTP != nil {
		services.HTTP = tracedHTTP{s, services.HTTP}
	}
	if services.KV != nil {
		services.KV = tracedKV{s, services.KV}
	}
	if services.SQL != nil {
		services.SQL = tracedSQL{s, services.SQL}
	}
	if services.Enqueue != nil {
		services.Enqueue = tracedEnqueuer{s, services.Enqueue}
	}
	if services.Publish != nil {
		services.Publish = tracedPublisher{s, services.Publish}
	}
	return services
}

// call begins the span of a call. The returned ctx carries the span, and end ends it. After maxCalls calls there is no
// new span, and ctx carries the span of the run.
func (s *Span) call(name string, kind oteltrace.SpanKind,
	about ...attribute.KeyValue,
) (ctx context.Context, span oteltrace.Span, end func(error)) {
	ctx = oteltrace.ContextWithSpan(context.Background(), s.run)
	if s.calls++; s.calls > maxCalls {
		s.untraced++
		return ctx, noop.Span{}, func(error) {}
	}
	ctx, span = s.tracer.tracer.Start(ctx, name, oteltrace.WithSpanKind(kind), oteltrace.WithAttributes(about...))
	return ctx, span, func(err error) {
		kind := kindOf(err)
		if kind == "denied" || kind == "invalid" { // the guest could have put any text into the span's name
			verb, _, _ := strings.Cut(name, " ")
			span.SetName(verb)
		}
		fail(span, kind)
		span.End()
	}
}

// kinds maps the errors of calls to the error types that spans show.
var kinds = []struct {
	err  error
	word string
}{
	{service.ErrInvalid, "invalid"},
	{service.ErrDenied, "denied"},
	{service.ErrTooBig, "too_big"},
	{service.ErrQuota, "quota"},
	{service.ErrLost, "lost"},
	{service.ErrUnavailable, "unavailable"},
	{service.ErrLimit, "limit"},
	{context.Canceled, "cancelled"},
	{context.DeadlineExceeded, "timeout"},
}

// kindOf returns the word for an error; "" for nil, and for normal answers: not found, or a conflict.
func kindOf(err error) string {
	if err == nil || errors.Is(err, service.ErrNotFound) || errors.Is(err, service.ErrConflict) {
		return ""
	}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			return kind.word
		}
	}
	return "_OTHER"
}

// methods has the HTTP methods that are allowed in the name of a span.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

type tracedHTTP struct {
	span *Span
	service.HTTP
}

// Do sends the request with the trace of the call's span.
func (h tracedHTTP) Do(ctx context.Context, r service.Request) (service.Response, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return h.HTTP.Do(ctx, r)
	}
	name := r.Method
	if !slices.Contains(methods, name) {
		name = "HTTP"
	}
	traced, span, end := h.span.call(name, oteltrace.SpanKindClient,
		attribute.String("http.request.method", cutTo(r.Method, 20)),
		attribute.String("server.address", cutTo(u.Hostname(), 255)), attribute.String("url.scheme", cutTo(u.Scheme, 20)))
	if port, err := strconv.Atoi(u.Port()); err == nil {
		span.SetAttributes(attribute.Int("server.port", port))
	}
	r.Trace = h.span.tracer.inject(traced, nil)
	response, err := h.HTTP.Do(ctx, r)
	if err == nil {
		span.SetAttributes(attribute.Int("http.response.status_code", response.Status))
		if response.Status >= http.StatusBadRequest {
			fail(span, strconv.Itoa(response.Status))
		}
	}
	end(err)
	return response, err
}

// cutTo returns at most the first limit bytes of a guest's text, without invalid UTF-8.
func cutTo(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

type tracedEnqueuer struct {
	span *Span
	service.Enqueuer
}

// Enqueue gives the child the trace of the span that sends it, unless the guest has set another one.
func (e tracedEnqueuer) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if queue.ValidQueue(child.Queue) != nil {
		return e.Enqueuer.Enqueue(ctx, child)
	}
	return e.span.send("send", child.Queue, len(child.Body), func(traced context.Context) (string, error) {
		if _, own := child.Headers[queue.HeaderTraceparent]; !own {
			child.Headers = e.span.tracer.inject(traced, child.Headers)
		}
		return e.Enqueuer.Enqueue(ctx, child)
	})
}

// send makes the span of a call that sends to a queue or a topic. do sends, and returns the ID of the task or
// publication.
func (s *Span) send(verb, to string, size int, do func(traced context.Context) (string, error)) (string, error) {
	traced, span, end := s.call(verb+" "+to, oteltrace.SpanKindProducer,
		attribute.String("messaging.system", "quern"), attribute.String("messaging.destination.name", to),
		attribute.String("messaging.operation.name", verb), attribute.String("messaging.operation.type", "send"),
		attribute.Int("messaging.message.body.size", size))
	id, err := do(traced)
	if err == nil {
		span.SetAttributes(attribute.String("messaging.message.id", id))
	}
	end(err)
	return id, err
}

type tracedPublisher struct {
	span *Span
	service.Publisher
}

// Publish gives the tasks of the publication the trace of the span that publishes.
func (p tracedPublisher) Publish(ctx context.Context, publication service.Publication) (string, error) {
	if queue.ValidTopic(publication.Topic) != nil {
		return p.Publisher.Publish(ctx, publication)
	}
	return p.span.send("publish", publication.Topic, len(publication.Body), func(traced context.Context) (string, error) {
		publication.Trace = p.span.tracer.inject(traced, nil)
		return p.Publisher.Publish(ctx, publication)
	})
}

type tracedKV struct {
	span *Span
	service.KV
}

// call begins the span of a call of the store; end ends it with the call's error. The span has neither the key nor
// the value.
func (k tracedKV) call(operation, bucket string) (end func(*error)) {
	bucket = cutTo(bucket, 256)
	_, _, done := k.span.call(operation+" "+bucket, oteltrace.SpanKindClient,
		attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", operation),
		attribute.String("db.collection.name", bucket))
	return func(err *error) { done(*err) }
}

func (k tracedKV) Get(ctx context.Context, bucket, key string) (value []byte, err error) {
	defer k.call("get", bucket)(&err)
	return k.KV.Get(ctx, bucket, key)
}

func (k tracedKV) Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) (err error) {
	defer k.call("set", bucket)(&err)
	return k.KV.Set(ctx, bucket, key, value, ttl)
}

func (k tracedKV) Delete(ctx context.Context, bucket, key string) (was bool, err error) {
	defer k.call("delete", bucket)(&err)
	return k.KV.Delete(ctx, bucket, key)
}

func (k tracedKV) Increment(ctx context.Context, bucket, key string, delta int64) (sum int64, err error) {
	defer k.call("increment", bucket)(&err)
	return k.KV.Increment(ctx, bucket, key, delta)
}

func (k tracedKV) Swap(ctx context.Context, bucket, key string, old, value []byte,
	ttl time.Duration,
) (present []byte, err error) {
	defer k.call("swap", bucket)(&err)
	return k.KV.Swap(ctx, bucket, key, old, value, ttl)
}

func (k tracedKV) List(ctx context.Context, bucket, prefix, after string, limit int) (keys []string, err error) {
	defer k.call("list", bucket)(&err)
	return k.KV.List(ctx, bucket, prefix, after, limit)
}

type tracedSQL struct {
	span *Span
	service.SQL
}

// call begins the span of a statement or a commit. The span does not have the statement, which can have values in it.
func (q tracedSQL) call(operation, database string) (end func(*error)) {
	database = cutTo(database, 64)
	_, _, done := q.span.call(operation+" "+database, oteltrace.SpanKindClient,
		attribute.String("db.system.name", "postgresql"), attribute.String("db.operation.name", operation),
		attribute.String("db.namespace", database))
	return func(err *error) { done(*err) }
}

// Commit begins the span of the commit of the run's transaction on a database, and end ends it. There is no span if
// database is "".
func (s *Span) Commit(database string) (end func(error)) {
	if s == nil || database == "" {
		return func(error) {}
	}
	finish := tracedSQL{span: s}.call("commit", database)
	return func(err error) { finish(&err) }
}

func (q tracedSQL) Query(ctx context.Context, database, statement string,
	parameters []service.SQLValue,
) (answer []byte, err error) {
	defer q.call("query", database)(&err)
	return q.SQL.Query(ctx, database, statement, parameters)
}

func (q tracedSQL) Commit(ctx context.Context, database, step string, value []byte) (answer []byte, err error) {
	defer q.call("commit", database)(&err)
	return q.SQL.Commit(ctx, database, step, value)
}
