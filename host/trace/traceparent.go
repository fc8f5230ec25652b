package trace

import (
	"strings"

	"github.com/quern-project/quern/sdk/queue"
)

// ID returns the ID of the trace that a traceparent names, or "" if the traceparent is not valid.
func ID(traceparent string) string {
	if traceparent == "" || queue.ValidHeader(queue.HeaderTraceparent, traceparent) != nil {
		return ""
	}
	return traceparent[3:35]
}

// SampledID returns the ID of the trace if the traceparent marks the trace as sampled. Otherwise it returns "", because
// other traces cannot be looked up.
func SampledID(traceparent string) string {
	id := ID(traceparent)
	if id != "" && strings.IndexByte("13579bdf", traceparent[54]) >= 0 { // bit 0 of the flags
		return id
	}
	return ""
}
