package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxPauses is the maximum number of pauses of a tenant.
const MaxPauses = 10_000

// The scopes of a pause, as NS_paused and NS_pauses name them: a queue has its name, which has no space. That of a key
// is KeyScope, the queue, a space and the key.
const (
	TenantScope = "."
	PluginScope = "plugin "
	KeyScope    = "key "
)

// ErrPaused is the error of a new task that a pause refuses.
var ErrPaused = errors.New("paused")

// PauseNote is what NS_pauses keeps of a pause, behind the second since when it lasts.
type PauseNote struct {
	Who    string `json:"who,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// ParsePause parses a value of NS_pauses. What is damaged is left out.
func ParsePause(text string) (since time.Time, note PauseNote) {
	second, rest, _ := strings.Cut(text, " ")
	_ = json.Unmarshal([]byte(rest), &note)
	return ParseSeconds(second), note
}

// pausedError says that a queue accepts no new tasks, and why.
type pausedError struct {
	text string
	full error
}

func (e *pausedError) Error() string   { return e.text }
func (e *pausedError) Unwrap() []error { return []error{ErrPaused, e.full} }

// Paused converts the error reply PAUSED of a script. The result wraps ErrPaused and full. It is nil for other
// errors.
func Paused(err, full error) error {
	text, _ := Answered(err)
	rest, ok := strings.CutPrefix(text, "PAUSED ")
	if !ok {
		return nil
	}
	scope, pause, _ := strings.Cut(rest, " ")
	since, note := ParsePause(pause)
	what := fmt.Sprintf("the queue %q", scope)
	if scope == TenantScope {
		what = "the tenant"
	}
	text = fmt.Sprintf("%s accepts no new tasks since %s", what, since.UTC().Format(time.RFC3339))
	if note.Who != "" {
		text += ", paused by " + note.Who
	}
	if note.Reason != "" {
		text += ": " + note.Reason
	}
	return &pausedError{text, full}
}

// Unhold ends the hold of a key, and makes the tasks due that it put off. Without a key it frees all tasks of the queue
// that wait for a token of their key's rate.
func (s *Store) Unhold(ctx context.Context, queue, key string) error {
	for place := ""; ; {
		reply, err := s.Eval(ctx, NewCall("unhold", s.Keys.Keyed(queue), s.Clock, queue, key, place, UnholdTasks))
		if place = AsString(reply); err != nil || place == "" {
			return err
		}
	}
}
