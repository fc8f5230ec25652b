package sdk

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

type color struct{ name string }

type named struct{ name string }

func (n named) String() string { return n.name }

type label string

type number int8

var nothing any

type broken struct{}

func (broken) Error() string { panic("again") }

func TestAttempt(t *testing.T) {
	t.Parallel()
	var none map[string]int
	tests := map[string]struct {
		panics func()
		want   string
	}{
		"OKText":      {func() { panic("out of ink") }, "out of ink"},
		"OKError":     {func() { panic(Fatal(errNoPaper)) }, "the printer is out of paper"},
		"OKStringer":  {func() { panic(named{"a name"}) }, "a name"},
		"OKKindText":  {func() { panic(label("a label")) }, "a label"},
		"OKNumber":    {func() { panic(-42) }, "-42"},
		"OKKindNum":   {func() { panic(number(7)) }, "7"},
		"OKType":      {func() { panic(&color{"red"}) }, "(*sdk.color)"},
		"OKBroken":    {func() { panic(broken{}) }, "(sdk.broken)"},
		"OKNil":       {func() { panic(nothing) }, "panic called with nil argument"},
		"OKRuntime":   {func() { none["page"]++ }, "assignment to entry in nil map"},
		"OKRecursion": {func() { descend(100) }, "at the bottom"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			handler := func(context.Context, *Task) ([]byte, error) {
				tt.panics()
				return []byte("a result"), nil
			}
			result, err := attempt(t.Context(), handler, &Task{}, &log)
			if result != nil || err == nil || err.Error() != "panic: "+tt.want {
				t.Fatalf("result %q, error %q, want %q", result, err, "panic: "+tt.want)
			}
			if status, delay := judge(err); status != 2 || delay != 0 {
				t.Errorf("exit status %d after %v", status, delay)
			}
			if !strings.HasPrefix(log.String(), "panic: "+tt.want+"\n\ngoroutine ") || !strings.Contains(log.String(), "panic_test.go:") {
				t.Errorf("log %q", log.String())
			}
			if log.Len() > maxStack+len(tt.want)+20 {
				t.Errorf("%d bytes of log", log.Len())
			}
		})
	}
	t.Run("OKNone", func(t *testing.T) {
		t.Parallel()
		var log bytes.Buffer
		handler := func(_ context.Context, task *Task) ([]byte, error) { return task.Input, errNoPaper }
		result, err := attempt(t.Context(), handler, &Task{Input: []byte("page")}, &log)
		if string(result) != "page" || !errors.Is(err, errNoPaper) || log.Len() > 0 {
			t.Errorf("%q, %v, log %q", result, err, log.String())
		}
	})
}

func descend(depth int) {
	if depth == 0 {
		panic("at the bottom")
	}
	descend(depth - 1)
}
