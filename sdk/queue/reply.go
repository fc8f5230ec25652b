package queue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// errReply reports an answer of another shape than the RETURNS of its script.
var errReply = errors.New("unexpected answer of a script")

// values reads a script's reply, value by value, in the order of its RETURNS.
type values struct {
	left  []any
	short bool // more was read than there was
}

func valuesOf(reply any) values { return values{left: asList(reply)} }

// more tells whether there is another value.
func (v *values) more() bool { return len(v.left) > 0 }

// err is errReply if the reply was too short.
func (v *values) err() error {
	if v.short {
		return errReply
	}
	return nil
}

func (v *values) next() any {
	if len(v.left) == 0 {
		v.short = true
		return nil
	}
	first := v.left[0]
	v.left = v.left[1:]
	return first
}

func (v *values) text() string            { return asString(v.next()) }
func (v *values) number() int64           { return asInt(v.next()) }
func (v *values) count() int              { return int(v.number()) }
func (v *values) flag() bool              { return v.number() == 1 }
func (v *values) time() time.Time         { return parseSeconds(v.text()) }
func (v *values) eta() time.Time          { return parseETA(v.text()) }
func (v *values) duration() time.Duration { return secondsDuration(v.text()) }

// asString, asInt and asList convert a value of a reply, to zero if it is of another type.
func asString(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func asInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// verdict maps a script's answer for one task to an error.
func verdict(answer any, id string) error {
	switch answer {
	case "ok":
		return nil
	case "gone":
		return fmt.Errorf("task %s: %w", id, ErrNoTask)
	case "cancelled":
		return fmt.Errorf("task %s has failed: %w", id, ErrCancelled)
	case "closed":
		return fmt.Errorf("task %s takes no more dependencies: %w", id, ErrStatus)
	case "lost":
		return fmt.Errorf("task %s: %w", id, ErrLost)
	}
	if queue, ok := strings.CutPrefix(asString(answer), "refused "); ok {
		return fmt.Errorf("enqueue in %q: %w", queue, ErrDamaged)
	}
	if why, ok := strings.CutPrefix(asString(answer), "unburied "); ok {
		return fmt.Errorf("task %s has failed: %w: %s", id, ErrNoLetter, why)
	}
	return fmt.Errorf("task %s is %v: %w", id, answer, ErrStatus)
}
