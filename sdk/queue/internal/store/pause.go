package store

import "time"

// minPause to maxPause is the wait before a call is repeated while Redis is unavailable.
const (
	MinPause = 50 * time.Millisecond
	MaxPause = 2 * time.Second
)

// notify puts a token into a channel of length 1, unless there is one already.
func Notify(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}
