package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observe adds a duration to a histogram, with the trace as its exemplar if that was sampled: others are not to be found.
func observe(histogram prometheus.Observer, d time.Duration, traceparent string) {
	seconds := max(0, d).Seconds()
	if id := sampledTrace(traceparent); id != "" {
		if traced, ok := histogram.(prometheus.ExemplarObserver); ok {
			traced.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": id})
			return
		}
	}
	histogram.Observe(seconds)
}

// sampledTrace is the trace ID of a W3C traceparent (VERSION-TRACE-PARENT-FLAGS) whose flags tell that it was sampled, else "".
func sampledTrace(traceparent string) string {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	if len(traceparent) < length || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-' {
		return ""
	}
	for _, c := range []byte(traceparent[3:35]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	switch traceparent[54] { // the last of the flags' digits: bit 0 is the one of sampling
	case '1', '3', '5', '7', '9', 'b', 'd', 'f':
		return traceparent[3:35]
	}
	return ""
}
