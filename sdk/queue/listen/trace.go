package listen

import (
	"strings"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// TraceID is the ID of the trace in a traceparent; "" if it has none.
func TraceID(text string) string { return store.TraceID(text) }

// SampledTraceID is TraceID if the traceparent tells that the trace was sampled, else "": others are not to be found.
func SampledTraceID(traceparent string) string {
	id := store.TraceID(traceparent)
	if id != "" && strings.IndexByte("13579bdf", traceparent[54]) >= 0 { // bit 0 of the flags
		return id
	}
	return ""
}
