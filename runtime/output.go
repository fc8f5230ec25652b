package runtime

// output gathers a guest's stdout up to the limit.
type output struct {
	limit int64
	bytes []byte
	// refused tells that a handler wanted to write more than that and was told no.
	refused bool
}

// add takes more of it, and returns false if that would pass the limit.
func (o *output) add(p []byte) bool {
	if int64(len(o.bytes))+int64(len(p)) > o.limit {
		return false
	}
	o.bytes = append(o.bytes, p...)
	return true
}
