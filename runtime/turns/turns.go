// Package turns shares a number of places and an amount of room among owners. The owners take turns, so that one with
// much work does not delay another with little.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Config says which places and how much room Turns shares.
type Config struct {
	// Places is the number of pieces of work that run at once, not counting the place for small work. Less than 1 means
	// 1.
	Places int
	// Room is the maximum total weight of the work in these places. A heavier piece of work counts as Room, and so runs
	// alone.
	Room int64
	// Small is the maximum weight of small work. One additional place, with its own room, takes only small work. Default
	// 0: there is no additional place.
	Small int64
}

// Turns gives places to work. The next turn goes to the waiting owner with the fewest places; among several, to the one
// whose last turn was longest ago. If that owner's work needs more room than is free, only small work overtakes it.
type Turns struct {
	cfg Config

	mu        sync.Mutex
	places    int      // number of free places
	room      int64    // free room
	smallFree bool     // the place for small work is free
	owners    []*owner // owners with places or waiting work; the one whose last turn was longest ago is first
}

// owner takes turns with others.
type owner struct {
	name    string
	has     int     // number of places that it has
	waiting []*work // work that waits for a place, the oldest first
}

// work waits for a place, or has one.
type work struct {
	owner  *owner
	weight int64
	turn   chan struct{} // closed when the work gets a place
	small  bool          // the work has the place for small work
}

// New returns Turns in which all places are free.
func New(cfg Config) *Turns {
	return &Turns{cfg: cfg, places: max(cfg.Places, 1), room: cfg.Room, smallFree: cfg.Small > 0}
}

// Acquire waits for a place for a piece of work of the owner with that name. The weight is the room that the work
// takes. The caller gives the place back by calling giveBack, which can be called twice. If ctx ends first, the error
// is the cause of its end.
func (t *Turns) Acquire(ctx context.Context, name string, weight int64) (giveBack func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t.mu.Lock()
	w := &work{owner: t.owner(name), weight: min(weight, t.cfg.Room), turn: make(chan struct{})}
	w.owner.waiting = append(w.owner.waiting, w)
	t.share()
	t.mu.Unlock()
	giveBack = sync.OnceFunc(func() { t.giveBack(w) })
	select {
	case <-w.turn:
		return giveBack, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(w.owner.waiting, w)
	if i >= 0 {
		w.owner.waiting = slices.Delete(w.owner.waiting, i, i+1)
		t.share() // work behind w may fit now
	}
	t.mu.Unlock()
	if i < 0 { // w got its place at the same moment
		giveBack()
	}
	return nil, context.Cause(ctx)
}

func (t *Turns) giveBack(w *work) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.small {
		t.smallFree = true
	} else {
		t.places++
		t.room += w.weight
	}
	w.owner.has--
	t.share()
}

// share gives the free places to those whose turn it is, and drops owners without places and work. The caller holds mu.
func (t *Turns) share() {
	for t.places > 0 {
		o := t.next(func(*work) bool { return true })
		if o == nil || o.waiting[0].weight > t.room {
			break
		}
		t.places--
		t.room -= o.waiting[0].weight
		t.give(o, 0, false)
	}
	isSmall := func(w *work) bool { return w.weight <= t.cfg.Small }
	for t.smallFree {
		o := t.next(isSmall)
		if o == nil {
			break
		}
		t.smallFree = false
		t.give(o, slices.IndexFunc(o.waiting, isSmall), true)
	}
	t.owners = slices.DeleteFunc(t.owners, func(o *owner) bool { return o.has == 0 && len(o.waiting) == 0 })
}

// next returns the owner whose turn it is among those with waiting work for which fits returns true. It returns nil if
// there is none.
func (t *Turns) next(fits func(*work) bool) (next *owner) {
	for _, o := range t.owners {
		if slices.ContainsFunc(o.waiting, fits) && (next == nil || o.has < next.has) {
			next = o
		}
	}
	return next
}

// give gives a place to the owner's i-th waiting work. If small is true, it is the place for small work.
func (t *Turns) give(o *owner, i int, small bool) {
	w := o.waiting[i]
	o.waiting = slices.Delete(o.waiting, i, i+1)
	o.has++
	w.small = small
	close(w.turn)
	last := slices.Index(t.owners, o)
	t.owners = append(slices.Delete(t.owners, last, last+1), o)
}

// owner returns the owner with that name. If there is none, it adds one as the last.
func (t *Turns) owner(name string) *owner {
	if i := slices.IndexFunc(t.owners, func(o *owner) bool { return o.name == name }); i >= 0 {
		return t.owners[i]
	}
	o := &owner{name: name}
	t.owners = append(t.owners, o)
	return o
}
