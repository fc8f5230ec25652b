package queue

import "time"

// minPause to maxPause is the wait before a call is repeated while Redis is unavailable.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// notify puts a token into a channel of length 1, unless there is one already.
func notify(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}
