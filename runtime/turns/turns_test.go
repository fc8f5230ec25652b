package turns_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/quern-project/quern/runtime/turns"
)

// yard is turns with a log of who got a place, in order.
type yard struct {
	t     *testing.T
	turns *turns.Turns

	mu    sync.Mutex
	begun []string
	ends  map[string]func()
}

func setup(t *testing.T, cfg turns.Config) *yard {
	return &yard{t: t, turns: turns.New(cfg), ends: map[string]func(){}}
}

// want lets work of an owner wait for a place, and returns when it has one or waits.
func (y *yard) want(ctx context.Context, owner, work string, weight int64) {
	go func() {
		end, err := y.turns.Acquire(ctx, owner, weight)
		y.mu.Lock()
		defer y.mu.Unlock()
		if err != nil {
			work += ": " + err.Error()
		}
		y.begun, y.ends[work] = append(y.begun, work), end
	}()
	synctest.Wait()
}

// end gives the place of some work back.
func (y *yard) end(work string) {
	y.t.Helper()
	y.mu.Lock()
	end := y.ends[work]
	delete(y.ends, work)
	y.mu.Unlock()
	if end == nil {
		y.t.Fatalf("%s has no place; begun: %v", work, y.begun)
	}
	end()
	end() // does no more
	synctest.Wait()
}

// has fails the test unless this is what has begun since the last look, in the order of the alphabet.
func (y *yard) has(want ...string) {
	y.t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	slices.Sort(y.begun) // what begins at the same moment does so in any order
	if !slices.Equal(y.begun, want) {
		y.t.Errorf("begun: %v, want %v", y.begun, want)
	}
	y.begun = nil
}

// TestOwnersTakeTurns: who comes later with little goes before the rest of who came first with much.
func TestOwnersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := setup(t, turns.Config{Places: 2, Room: 10})
		for _, work := range []string{"a1", "a2", "a3", "a4"} {
			y.want(t.Context(), "a", work, 1)
		}
		y.want(t.Context(), "b", "b1", 1)
		y.want(t.Context(), "b", "b2", 1)
		y.want(t.Context(), "c", "c1", 1)
		y.has("a1", "a2")
		y.end("a1")
		y.has("b1") // b has none, a has one
		y.end("a2")
		y.has("a3") // neither a nor c has one, and a has waited longer
		y.end("b1")
		y.has("c1")
		y.end("a3")
		y.has("b2")
		y.end("c1")
		y.has("a4")
		y.end("b2")
		y.end("a4")
	})
}

// TestSmall: small work has a place of its own, also for an owner whose large work waits.
func TestSmall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := setup(t, turns.Config{Places: 1, Room: 10, Small: 2})
		y.want(t.Context(), "a", "large", 10)
		y.want(t.Context(), "a", "larger", 20) // counts 10
		y.want(t.Context(), "b", "small", 2)
		y.want(t.Context(), "b", "middle", 3)
		y.want(t.Context(), "a", "tiny", 1)
		y.has("large", "small")
		y.end("small")
		y.has("tiny")
		y.end("large")
		y.has("middle") // a has a place
		y.end("tiny")
		y.end("middle")
		y.has("larger")
		y.end("larger")
	})
}

// TestLargeIsNotOvertaken: what needs much room gets it, however much small work comes after it.
func TestLargeIsNotOvertaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := setup(t, turns.Config{Places: 4, Room: 10})
		y.want(t.Context(), "a", "a1", 4)
		y.want(t.Context(), "a", "a2", 4)
		y.want(t.Context(), "b", "large", 10)
		y.want(t.Context(), "c", "c1", 1)
		y.want(t.Context(), "d", "d1", 1)
		y.has("a1", "a2")
		y.end("a1")
		y.has()
		y.end("a2")
		y.has("large")
		y.end("large")
		y.has("c1", "d1")
		y.end("c1")
		y.end("d1")
	})
}

// TestGivenUp: who does not wait any more takes no place, and lets those behind go on.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		y := setup(t, turns.Config{Places: 2, Room: 10})
		gone, cancel := context.WithCancelCause(t.Context())
		y.want(t.Context(), "a", "a1", 5)
		y.want(gone, "b", "large", 10)
		y.want(t.Context(), "c", "c1", 5)
		y.has("a1")
		cancel(errors.New("gone"))
		synctest.Wait()
		y.has("c1", "large: gone")
		y.want(gone, "b", "late", 1)
		y.has("late: gone")
		y.end("a1")
		y.end("c1")
		y.want(t.Context(), "d", "all", 10)
		y.has("all")
		y.end("all")
	})
}

// TestRandom: whatever comes and goes, there is never more at work than there may be, and all of it comes to its end.
func TestRandom(t *testing.T) {
	t.Parallel()
	const places, room, small = 3, 10, 2
	line := turns.New(turns.Config{Places: places, Room: room, Small: small})
	var mu sync.Mutex
	var weight int64
	working := 0
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%7 == 0 {
				cancel()
			}
			mine := int64(1 + i%10)
			end, err := line.Acquire(ctx, string(rune('a'+i%5)), mine)
			if err != nil {
				return
			}
			defer end()
			mu.Lock()
			working++
			weight += mine
			if working > places+1 || weight > room+small {
				t.Errorf("%d at work, who weigh %d", working, weight)
			}
			mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			working--
			weight -= mine
		})
	}
	group.Wait()
	end, err := line.Acquire(t.Context(), "z", room)
	if err != nil {
		t.Fatal(err)
	}
	end()
}
