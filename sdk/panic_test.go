package sdk

import (
	"bytes"
	"context"
	"errors"
	"math"
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
		"OKText":     {func() { panic("out of ink") }, "out of ink"},
		"OKError":    {func() { panic(Fatal(errNoPaper)) }, "the printer is out of paper"},
		"OKStringer": {func() { panic(named{"a name"}) }, "a name"},
		"OKKindText": {func() { panic(label("a label")) }, "(sdk.label)"},
		"OKNumber":   {func() { panic(-42) }, "-42"},
		"OKKindNum":  {func() { panic(number(7)) }, "(sdk.number)"},
		"OKType":     {func() { panic(&color{"red"}) }, "(*sdk.color)"},
		"OKTypeless": {func() { panic(struct{ a, b int }{}) }, "(struct { a int; b int })"},
		"OKTypeTag": {func() {
			panic(struct {
				A int `a:" is , not sdk.unlike"`
			}{})
		}, `(struct { A int "a:\" is , not sdk.unlike\"" })`},
		"OKFloat":     {func() { panic(1.5) }, "(float64)"},
		"OKBool":      {func() { panic(true) }, "true"},
		"OKInt8":      {func() { panic(int8(-8)) }, "-8"},
		"OKInt16":     {func() { panic(int16(-16)) }, "-16"},
		"OKInt32":     {func() { panic('a') }, "97"},
		"OKInt64":     {func() { panic(int64(math.MinInt64)) }, "-9223372036854775808"},
		"OKUint":      {func() { panic(uint(1)) }, "1"},
		"OKUint8":     {func() { panic(byte(255)) }, "255"},
		"OKUint16":    {func() { panic(uint16(16)) }, "16"},
		"OKUint32":    {func() { panic(uint32(32)) }, "32"},
		"OKUint64":    {func() { panic(uint64(math.MaxUint64)) }, "18446744073709551615"},
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
			if result != nil || err == nil || !strings.HasPrefix(err.Error(), "panic: "+tt.want+" [sdk.") || !strings.Contains(err.Error(), " (panic_test.go:") {
				t.Fatalf("result %q, error %q, want %q", result, err, "panic: "+tt.want)
			}
			if status, delay, _ := judge(err); status != 2 || delay != 0 {
				t.Errorf("exit status %d after %v", status, delay)
			}
			if !strings.HasPrefix(log.String(), "panic: "+tt.want+"\n\ngoroutine ") || !strings.Contains(log.String(), "panic_test.go:") ||
				strings.Contains(log.String(), "sdk.attempt") || strings.Contains(log.String(), "testing.") {
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
