package runtime

import "context"

// output gathers a guest's stdout up to the limit.
type output struct {
	limit int64
	bytes []byte
	stop  context.CancelCauseFunc
}

// Write implements io.Writer for wazero. What would pass the limit ends the guest.
func (o *output) Write(p []byte) (int, error) {
	defer guard()
	if int64(len(o.bytes))+int64(len(p)) > o.limit {
		o.stop(outputExceeded(o.limit))
		unwind()
	}
	o.bytes = append(o.bytes, p...)
	return len(p), nil
}
