package runtime

// output gathers a guest's stdout up to the limit.
type output struct {
	limit    int64
	bytes    []byte
	reserved int64 // of the limit, for what else the task leaves
	// refused tells that a handler wanted to write more than that and was told no.
	refused bool
}

// add takes more of it, and returns false if that would pass the limit.
func (o *output) add(p []byte) bool {
	if !o.has(len(p)) {
		return false
	}
	o.bytes = append(o.bytes, p...)
	return true
}

// has tells whether there is room for so many bytes more.
func (o *output) has(n int) bool { return int64(len(o.bytes))+o.reserved+int64(n) <= o.limit }
