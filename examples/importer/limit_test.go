package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/sdktest"
)

// during runs f as a task would be.
func during(t *testing.T, h *sdktest.Harness, f func()) {
	t.Helper()
	r := h.Run(func(context.Context, *sdk.Task) ([]byte, error) { f(); return nil, nil }, sdktest.Task{})
	if r.Outcome != sdktest.Complete {
		t.Fatal(r)
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Bucket("limits")
	l := &limit{key: "api.example.com", every: 100 * time.Millisecond, burst: 3}
	began := time.UnixMilli(1_750_000_000_000)
	for i, step := range []struct {
		at, wait time.Duration // since the beginning
	}{
		{0, 0}, {0, 0}, {0, 0}, // the burst
		{0, 100 * time.Millisecond}, {0, 200 * time.Millisecond}, // one after the other
		{200 * time.Millisecond, 100 * time.Millisecond},                              // behind those two
		{400 * time.Millisecond, 0}, {400 * time.Millisecond, 100 * time.Millisecond}, // one has come back
		{time.Minute, 0}, {time.Minute, 0}, {time.Minute, 0}, {time.Minute, 100 * time.Millisecond}, // full, and no fuller
	} {
		during(t, h, func() {
			if wait, err := l.take(began.Add(step.at)); wait != step.wait || err != nil {
				t.Errorf("request %d: wait %s, %v, want %s", i+1, wait, err, step.wait)
			}
		})
	}
	if keys := h.Bucket("limits").Keys(); len(keys) != 1 {
		t.Errorf("the bucket has %v, want one key", keys)
	}
	if ttl := h.Bucket("limits").TTL(l.key); ttl != 400*time.Millisecond { // until the four tokens are back
		t.Errorf("the number lives %s", ttl)
	}
}

// A task that finds a long line does not stand in it.
func TestTakeLongWait(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Bucket("limits")
	l := &limit{key: "api.example.com", every: 2 * time.Second, burst: 1}
	now := time.UnixMilli(1_750_000_000_000)
	during(t, h, func() {
		for i, want := range []time.Duration{0, 2 * time.Second, 4 * time.Second} {
			if wait, err := l.take(now); wait != want || err != nil {
				t.Errorf("request %d: wait %s, %v, want %s", i+1, wait, err, want)
			}
		}
		for range 2 { // the first one has taken nothing
			_, err := l.take(now)
			if retry, ok := errors.AsType[*sdk.RetryError](err); !ok || retry.After != 6*time.Second {
				t.Errorf("%#v, want a delay of 6s", err)
			}
		}
	})
}

func TestTakeErrors(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Bucket("limits").Set("garbled", "soon").ReadOnly()
	during(t, h, func() {
		l := &limit{key: "garbled", every: time.Second, burst: 1}
		if _, err := l.take(time.Now()); !errors.Is(err, sdk.ErrDenied) || !strings.HasPrefix(err.Error(), "take from the rate limit: ") {
			t.Error(err)
		}
	})
	h.Fault = func(string) error { return sdk.ErrUnavailable }
	during(t, h, func() {
		l := &limit{key: "k", every: time.Second, burst: 1}
		if _, err := l.take(time.Now()); !errors.Is(err, sdk.ErrUnavailable) || !strings.HasPrefix(err.Error(), "look at the rate limit: ") {
			t.Error(err)
		}
	})
}

// Another task takes the token between the look and the swap.
func TestTakeConflict(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	b := h.Bucket("limits")
	now := time.UnixMilli(1_750_000_000_000)
	others := 0
	h.Fault = func(function string) error {
		if function == "kv_swap" && others < 2 {
			others++
			b.Set("k", []string{"1750000001000", "1750000002000"}[others-1])
		}
		return nil
	}
	during(t, h, func() {
		l := &limit{key: "k", every: time.Second, burst: 1}
		if wait, err := l.take(now); wait != 2*time.Second || err != nil {
			t.Errorf("wait %s, %v, want 2s behind the two others", wait, err)
		}
	})
	if value, _ := b.Get("k"); value != "1750000003000" {
		t.Errorf("the limit is at %s", value)
	}
}

func TestNewLimit(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Config["rate"], h.Config["burst"] = "4", "2"
	during(t, h, func() {
		if l, err := newLimit("h"); err != nil || *l != (limit{"h", 250 * time.Millisecond, 2}) {
			t.Errorf("%+v, %v", l, err)
		}
	})
	for _, text := range []string{"", "0", "-1", "1001", "fast"} {
		h.Config["rate"] = text
		during(t, h, func() {
			if _, err := newLimit("h"); err == nil || !strings.HasPrefix(err.Error(), "config: rate is ") {
				t.Errorf("rate %q: %v", text, err)
			}
		})
	}
}
