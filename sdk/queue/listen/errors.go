package listen

import (
	"errors"
)

// The errors of listeners.
var (
	ErrNoNode    = errors.New("no such listener")
	ErrNoRelay   = errors.New("no such source of a database")
	ErrLeaseLost = errors.New("the listener's lease is lost") // other listeners get the tasks of this one
	ErrDraining  = errors.New("the listener is draining")     // it reserves no more tasks
	ErrVersion   = errors.New("unknown protocol version")     // the version in Redis is newer, or not a number
)
