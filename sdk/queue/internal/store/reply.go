package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrReply reports an answer of another shape than the RETURNS of its script.
var ErrReply = errors.New("unexpected answer of a script")

// Values reads a script's reply, value by value, in the order of its RETURNS.
type Values struct {
	Left  []any
	Short bool // more was read than there was
}

// ValuesOf reads a reply that is a list; another one has no values.
func ValuesOf(reply any) Values { return Values{Left: AsList(reply)} }

// More tells whether there is another value.
func (v *Values) More() bool { return len(v.Left) > 0 }

// Err is errReply if the reply was too short.
func (v *Values) Err() error {
	if v.Short {
		return ErrReply
	}
	return nil
}

// Next is the next value, nil behind the last.
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

// AsString is a value of a reply as text; "" if it is neither text nor a number.
func AsString(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// AsInt is a value of a reply as a number; 0 if it is none.
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

// AsList is a value of a reply as a list; nil if it is none.
func AsList(v any) []any {
	list, _ := v.([]any)
	return list
}

// Verdict maps a script's answer for one task to an error.
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
