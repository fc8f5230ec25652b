package listen

import (
	"errors"
)

// The errors of listeners.
var (
	ErrNoNode    = errors.New("no such listener")
	ErrLeaseLost = errors.New("the listener's lease is lost") // other listeners get its tasks
	ErrDraining  = errors.New("the listener is draining")     // it reserves nothing more
	ErrVersion   = errors.New("unknown protocol version")     // the version in Redis is newer, or not a number
)
