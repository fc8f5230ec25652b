package listen

import (
	"errors"
)

// The errors of listeners.
var (
	ErrNoNode    = errors.New("no such listener")
	ErrLeaseLost = errors.New("the listener's lease is lost") // its tasks belong to others
	ErrDraining  = errors.New("the listener is draining")     // it takes nothing more
	ErrVersion   = errors.New("unknown protocol version")     // of the data in Redis: newer, or not a number
)
