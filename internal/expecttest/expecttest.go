// Package expecttest has the waiting and checking that the tests of all packages share.
package expecttest

import (
	"context"
	"testing"
	"time"
)

const (
	// Patience bounds what must happen soon, even with the race detector on a busy machine.
	Patience = time.Minute
	interval = 5 * time.Millisecond
)

// Until waits for a condition, which it checks every few milliseconds; false if ctx ends first.
func Until(ctx context.Context, condition func() bool) bool {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Eventually waits for a condition, and ends the test if it does not hold within Patience.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	if !Until(ctx, condition) {
		t.Fatalf("not within %s: %s", Patience, what)
	}
}

// NoError waits until a check returns no error, and ends the test with the last one after Patience.
func NoError(t testing.TB, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	var err error
	if !Until(ctx, func() bool { err = check(); return err == nil }) {
		t.Fatal(err)
	}
}

// failer is a testing.TB, or a rapid.TB.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// Must returns a function that ends the test at an error.
func Must[T any](t failer) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
