package trace

import (
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Request begins the span of a request to an operation of the API. header has the trace of the caller. Request replaces
// it with the trace of the new span, so that the request's tasks belong to that span. A GET without a trace has no
// span, because an open page would make one every second. The caller calls end once, with the status of the answer.
func (t *Tracer) Request(header http.Header, method, route, tenant string) (end func(status int)) {
	if t == nil {
		return func(int) {}
	}
	carrier := propagation.HeaderCarrier(header)
	ctx := t.extract(carrier)
	if method == http.MethodGet && !oteltrace.SpanContextFromContext(ctx).IsValid() {
		return func(int) {}
	}
	ctx, span := t.tracer.Start(ctx, method+" "+route, oteltrace.WithSpanKind(oteltrace.SpanKindServer),
		oteltrace.WithAttributes(
			attribute.String("http.request.method", method), attribute.String("http.route", route),
			attribute.String("quern.tenant", cutTo(tenant, 40))))
	for _, name := range t.propagator.Fields() {
		header.Del(name)
	}
	t.propagator.Inject(ctx, carrier)
	return func(status int) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			fail(span, strconv.Itoa(status))
		}
		span.End()
	}
}
