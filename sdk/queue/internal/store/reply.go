package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrReply means that a reply does not have the form that its script documents under RETURNS.
var ErrReply = errors.New("unexpected answer of a script")

// Values reads a script's reply, value by value, in the order of its RETURNS.
type Values struct {
	Left  []any // the values that have not been read yet
	Short bool  // whether Next was called after the last value
}

// ValuesOf returns the values of a reply that is a list. Any other reply has no values.
func ValuesOf(reply any) Values { return Values{Left: AsList(reply)} }

// More reports whether there is another value.
func (v *Values) More() bool { return len(v.Left) > 0 }

// Err returns ErrReply if the reply was too short.
func (v *Values) Err() error {
	if v.Short {
		return ErrReply
	}
	return nil
}

// Next returns the next value, or nil after the last one.
func (v *Values) Next() any {
	if len(v.Left) == 0 {
		v.Short = true
		return nil
	}
	first := v.Left[0]
	v.Left = v.Left[1:]
	return first
}

func (v *Values) Text() string            { return AsString(v.Next()) }
func (v *Values) Number() int64           { return AsInt(v.Next()) }
func (v *Values) Count() int              { return int(v.Number()) }
func (v *Values) Flag() bool              { return v.Number() == 1 }
func (v *Values) Time() time.Time         { return ParseSeconds(v.Text()) }
func (v *Values) Eta() time.Time          { return ParseETA(v.Text()) }
func (v *Values) Duration() time.Duration { return SecondsDuration(v.Text()) }

// AsString converts a value of a reply to text. It returns "" if the value is neither text nor a number.
func AsString(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// AsInt converts a value of a reply to a number. It returns 0 if the value is not a number.
func AsInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// AsList converts a value of a reply to a list. It returns nil if the value is not a list.
func AsList(v any) []any {
	list, _ := v.([]any)
	return list
}

// Verdict converts a script's answer for one task to an error. It returns nil for "ok".
func Verdict(answer any, id string) error {
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
	if queue, ok := strings.CutPrefix(AsString(answer), "refused "); ok {
		return fmt.Errorf("enqueue in %q: %w", queue, ErrDamaged)
	}
	if why, ok := strings.CutPrefix(AsString(answer), "unburied "); ok {
		return fmt.Errorf("task %s has failed: %w: %s", id, ErrNoLetter, why)
	}
	return fmt.Errorf("task %s is %v: %w", id, answer, ErrStatus)
}
