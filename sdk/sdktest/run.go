package sdktest

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk"
)

// The most that quern_v1 takes at once, in bytes.
const (
	maxText       = 4 << 10
	maxFields     = 3 << 10
	maxCheckpoint = 1 << 20
	maxArgument   = 4 << 10 // a name, before anybody looks at what it is
	maxBody       = 16 << 20
)

// run is the host of one run: what package sdk asks.
type run struct {
	h        *Harness
	task     Task
	past     *history
	deadline time.Time // zero if there is none

	// Of the handler's own goroutine, which is done before the others read it.
	status int32
	ended  bool // the handler has returned
	err    error
	output []byte

	// Guarded by the harness's mu.
	failure    string
	retryAfter time.Duration
	log        []string
	progress   []Progress
	saved      int // checkpoints
	dead       bool
	waiting    []Enqueued // for the task's completion
	enqueued   []Enqueued
	asked      int // to enqueue
}

// passes tells whether quern_v1 takes a name, whatever it names.
func passes(name string) error {
	switch {
	case len(name) > maxArgument:
		return sdk.ErrTooBig
	case !utf8.ValidString(name):
		return sdk.ErrInvalid
	}
	return nil
}

// watched is the handler, whose error is kept as it is.
func (r *run) watched(handler sdk.Handler) sdk.Handler {
	return func(ctx context.Context, task *sdk.Task) (result []byte, err error) {
		result, err = handler(ctx, task)
		r.err = err
		return result, err
	}
}

func (r *run) died() bool {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	return r.dead
}

// lock is for whoever asks the host. One that is dead answers nobody any more.
func (r *run) lock() (unlock func()) {
	r.h.mu.Lock()
	if r.dead {
		r.h.mu.Unlock()
		runtime.Goexit()
	}
	return r.h.mu.Unlock
}

// ask is lock for a function that the test may have fail.
func (r *run) ask(function string) (unlock func(), err error) {
	if r.died() {
		runtime.Goexit()
	}
	if r.h.Fault != nil {
		if err := r.h.Fault(function); err != nil {
			return nil, err
		}
	}
	return r.lock(), nil
}

// Input is a copy, for the handler may change it.
func (r *run) Input() []byte { return slices.Clone(r.task.Input) }

func (r *run) Output(p []byte) error {
	defer r.lock()()
	r.output = slices.Clone(p)
	return nil
}

func (r *run) Fail(text string) {
	defer r.lock()()
	r.failure = text
}

func (r *run) RetryAfter(ms int64) {
	defer r.lock()()
	r.retryAfter = time.Duration(ms) * time.Millisecond
}

func (r *run) TaskText(field uint32) string {
	defer r.lock()()
	t := &r.task
	texts := [...]string{t.ID, t.Queue, t.Tenant, t.Plugin, t.PreviousError, t.Parent, t.Key, t.Traceparent}
	if int(field) >= len(texts) {
		return ""
	}
	return texts[field]
}

func (r *run) TaskNumber(field uint32) int64 {
	defer r.lock()()
	switch field {
	case 0:
		return int64(r.task.Attempt)
	case 1:
		return int64(r.task.MaxAttempts)
	case 2:
		if !r.deadline.IsZero() {
			return r.deadline.UnixMilli()
		}
	}
	return 0
}

func (r *run) Cancelled() bool {
	defer r.lock()()
	return r.h.ending
}

func (r *run) Log(level int, text, fields string) error {
	defer r.lock()()
	levels := [...]string{"trace: ", "debug: ", "", "warning: ", "error: "}
	switch {
	case len(text) > maxText || len(fields) > maxFields:
		return sdk.ErrTooBig
	case level < 0 || level >= len(levels):
		return sdk.ErrInvalid
	}
	line := levels[level] + text
	if fields != "" {
		line += " " + fields
	}
	r.log = append(r.log, printable(line))
	return nil
}

// printable escapes what a host escapes in a log.
func printable(line string) string {
	var out strings.Builder
	for _, c := range line {
		switch {
		case c == '\t' || unicode.IsPrint(c):
			out.WriteRune(c)
		case c < utf8.RuneSelf:
			fmt.Fprintf(&out, `\x%02x`, c)
		case c <= math.MaxUint16:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			fmt.Fprintf(&out, `\U%08x`, c)
		}
	}
	return out.String()
}

func (r *run) Stderr(p []byte) {
	defer r.lock()()
	for line := range strings.Lines(string(p)) {
		r.log = append(r.log, printable(strings.TrimSuffix(line, "\n")))
	}
}

func (r *run) Progress(fraction float64, message string) error {
	defer r.lock()()
	r.progress = append(r.progress, Progress{fraction, printable(message)})
	return nil
}

func (r *run) SaveCheckpoint(value []byte) error {
	if len(value) > maxCheckpoint {
		return sdk.ErrTooBig
	}
	unlock, err := r.ask("checkpoint_save")
	if err != nil {
		return err
	}
	r.past.checkpoint = append(make([]byte, 0, len(value)), value...)
	r.saved++
	dies := r.saved == r.task.DieAtCheckpoint
	r.dead = dies
	unlock()
	if dies {
		runtime.Goexit()
	}
	return nil
}

func (r *run) Checkpoint() ([]byte, error) {
	defer r.lock()()
	if r.past.checkpoint == nil {
		return nil, sdk.ErrNotFound
	}
	return append(make([]byte, 0), r.past.checkpoint...), nil
}

func (r *run) Config(name string) (string, bool) {
	defer r.lock()()
	value, ok := r.h.Config[name]
	return value, ok
}

func (r *run) Secret(name string) ([]byte, error) {
	if err := passes(name); err != nil {
		return nil, err
	}
	unlock, err := r.ask("secret_get")
	if err != nil {
		return nil, err
	}
	defer unlock()
	value, ok := r.h.Secrets[name]
	switch {
	case ok:
		return []byte(value), nil
	case slices.Contains(r.h.Absent, name):
		return nil, sdk.ErrNotFound
	}
	return nil, sdk.ErrDenied
}
