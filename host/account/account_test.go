package account_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/host/account"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	a := account.New(1000)
	freed := 0
	a.OnFreed(func() { freed++ })
	b := a.Open(account.Deliveries, a.Part(10), 2)
	if b.Whole() != 100 || b.Each() != 50 {
		t.Fatalf("%d of all, %d each", b.Whole(), b.Each())
	}
	first := b.TryTake("acme", 40)
	if first == nil || b.TryTake("acme", 11) != nil || b.TryTake("blue", 51) != nil {
		t.Error("an owner gets more than its part, or not its part")
	}
	all := b.Take(t.Context(), "blue", 60) // more than its part: all of it
	if all.Size() != 60 || b.TryTake("blue", 1) != nil || b.TryTake("green", 1) != nil {
		t.Errorf("a share of %d", all.Size())
	}
	if a.Reserved() != 100 || a.ByKind()[account.Deliveries] != 100 {
		t.Errorf("%d reserved, %v", a.Reserved(), a.ByKind())
	}
	first.Shrink(10)
	first.Shrink(20) // not more again
	all.Shrink(55)   // still more than the part
	if b.TryTake("blue", 1) != nil {
		t.Error("an owner whose share is larger than its part gets more")
	}
	if third := b.TryTake("acme", 35); third.Size() != 35 || a.Reserved() != 100 {
		t.Errorf("a share of %d, %d reserved", third.Size(), a.Reserved())
	} else {
		third.Give()
	}
	for range 2 {
		first.Give()
		all.Give()
	}
	if a.Reserved() != 0 || freed != 5 {
		t.Errorf("%d reserved, told %d times", a.Reserved(), freed)
	}
}

// Of many owners four cannot keep out the others.
func TestBudgetOfMany(t *testing.T) {
	t.Parallel()
	b := account.NewBudget(800, 10)
	for _, owner := range []string{"a", "b", "c", "d", "e"} {
		for b.TryTake(owner, 10) != nil {
		}
	}
	var shares []*account.Share
	for range 4 {
		shares = append(shares, b.TryTake("z", 10))
	}
	if slices.Contains(shares, nil) || b.TryTake("z", 10) != nil {
		t.Errorf("%v: want four shares of 10", shares)
	}
	shares[0].Shrink(5)
	if b.TryTake("z", 6) != nil || b.TryTake("z", 5) == nil {
		t.Error("what was given back is not free again")
	}
}

// Who waits gets what is given back before those that ask later, and leaves with its context.
func TestBudgetWaits(t *testing.T) {
	t.Parallel()
	b := account.NewBudget(10, 1)
	held := b.TryTake("a", 8)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if b.Take(gone, "a", 5) != nil {
		t.Error("a share without room")
	}
	got := make(chan *account.Share)
	waiting := make(chan struct{})
	go func() { close(waiting); got <- b.Take(t.Context(), "a", 5) }()
	<-waiting
	held.Give()
	if share := <-got; share.Size() != 5 {
		t.Errorf("a share of %d", share.Size())
	}
}

func TestUnbounded(t *testing.T) {
	t.Parallel()
	var none *account.Budget
	share := none.TryTake("a", 1<<40)
	if share.Size() != 1<<40 || none.Each() != math.MaxInt64 || account.New(0).Part(4) != math.MaxInt64 {
		t.Errorf("no budget refuses: %d", share.Size())
	}
	share.Shrink(1)
	share.Give()
	var nobody *account.Account
	if nobody.Reserved() != 0 || len(nobody.ByKind()) != 0 {
		t.Error("no account has something")
	}
}

// However many take and give at once, no owner has more than its part, all no more than the whole, and nothing is left at the end.
func TestBudgetBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole, owners := rapid.Int64Range(4, 100).Draw(t, "whole"), rapid.IntRange(1, 6).Draw(t, "owners")
		a := account.New(0)
		b := a.Open(account.Requests, whole, owners)
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 2*whole), 1, 40).Draw(t, "sizes")
		larger := slices.Max(sizes) // than a part, perhaps: alone then
		var mu sync.Mutex
		used := map[string]int64{}
		change := func(owner string, bytes int64) {
			mu.Lock()
			defer mu.Unlock()
			if used[owner] += bytes; used[owner] > max(b.Each(), larger) {
				t.Errorf("%s has %d of %d", owner, used[owner], b.Each())
			}
			if sum := used["a"] + used["b"] + used["c"]; sum > max(whole, larger+whole/2) {
				t.Errorf("all have %d of %d", sum, whole)
			}
		}
		var work sync.WaitGroup
		for i, size := range sizes {
			owner := string("abc"[i%3])
			work.Go(func() {
				share := b.Take(context.Background(), owner, size)
				change(owner, share.Size())
				half := share.Size() / 2
				change(owner, half-share.Size())
				share.Shrink(half)
				change(owner, -half)
				share.Give()
			})
		}
		work.Wait()
		if a.Reserved() != 0 {
			t.Errorf("%d reserved", a.Reserved())
		}
	})
}
