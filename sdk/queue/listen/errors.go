package listen

import (
	"errors"
	"strings"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// The errors of listeners.
var (
	ErrNoNode    = errors.New("no such listener")
	ErrLeaseLost = errors.New("the listener's lease is lost") // its tasks belong to others
	ErrDraining  = errors.New("the listener is draining")     // it takes nothing more
	ErrVersion   = errors.New("unknown protocol version")     // of the data in Redis: newer, or not a number
)

// Refusal is the first word of the error that Redis answered with, such as OOM; "" if it answered none.
func Refusal(err error) string {
	text, _ := store.Answered(err)
	word, _, _ := strings.Cut(text, " ")
	return word
}
