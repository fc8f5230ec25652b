package kv

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime/service"
)

// crowd is how many goroutines call at once, and how often each.
func crowd(t *testing.T) (callers, calls int) {
	if embedded(t) {
		return 4, 10
	}
	return 16, 100
}

// No increment is lost, and each gets a sum of its own.
func TestIncrementsAddUp(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		callers, calls := crowd(t)
		var group errgroup.Group
		var sums sync.Map
		for range callers {
			group.Go(func() error {
				for range calls {
					sum, err := w.KV.Increment(w.ctx, "b", "k", 3)
					if err != nil {
						return err
					}
					if _, twice := sums.LoadOrStore(sum, true); twice {
						return fmt.Errorf("%d came out twice", sum)
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(callers * calls * 3)
		w.reads(t, "k", want)
		w.holds(t, 1, int64(1+len(want)))
	})
}

// Swaps are in one order: each replaces what another one wrote, and none is replaced twice. What they leave
// is one chain from nothing to the last.
func TestSwapsAreInOneOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		callers, calls := crowd(t)
		var group errgroup.Group
		var next sync.Map // what replaced a value
		var done atomic.Int64
		for caller := range callers {
			group.Go(func() error {
				var old []byte
				for call := range calls {
					value := fmt.Appendf(nil, "%d.%d", caller, call)
					present, err := w.KV.Swap(w.ctx, "b", "k", old, value, 0)
					for errors.Is(err, service.ErrConflict) {
						if bytes.Equal(present, old) && (present == nil) == (old == nil) {
							return fmt.Errorf("a conflict with %q, which was expected", present)
						}
						old = present
						present, err = w.KV.Swap(w.ctx, "b", "k", old, value, 0)
					}
					if err != nil {
						return err
					}
					if other, twice := next.LoadOrStore(string(old), string(value)); twice {
						return fmt.Errorf("%q was replaced by %q and by %q", old, other, value)
					}
					done.Add(1)
					old = value
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		last, length := "", int64(0)
		for value, ok := next.Load(""); ok; value, ok = next.Load(last) {
			last, _ = value.(string)
			length++
		}
		if length != done.Load() || length != int64(callers*calls) {
			t.Errorf("a chain of %d swaps, %d were done", length, done.Load())
		}
		w.reads(t, "k", last)
	})
}

// However many write at once, the bucket never holds more than it may, and all of that is used.
func TestQuotaUnderLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		callers, calls := crowd(t)
		half := callers * calls / 2
		kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: int64(half * 10)}}, nil)
		var group errgroup.Group
		var written atomic.Int64
		for caller := range callers {
			group.Go(func() error {
				for call := range calls {
					err := kv.Set(w.ctx, "b", fmt.Sprintf("%02d.%02d", caller, call), []byte("12345"), 0)
					switch {
					case err == nil:
						written.Add(1)
					case !errors.Is(err, service.ErrQuota):
						return err
					}
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		if int(written.Load()) != half {
			t.Errorf("%d were written, there is room for %d", written.Load(), half)
		}
		w.holds(t, int64(half), int64(half*10))
	})
}
