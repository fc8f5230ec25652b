// Package turns shares places to work in, and room for what the work takes, among owners, so that one with much work
// does not delay another with little.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Config is what Turns shares.
type Config struct {
	// Places is how many works run at once, beside a small one. At least 1.
	Places int
	// Room is what those may weigh together. A heavier work counts as Room, and runs alone.
	Room int64
	// Small is the most that a work may weigh to run in one more place, with room of its own. Default 0: no such place.
	Small int64
}

// Turns shares places. The next turn is that of the waiting owner with the fewest places; of several, the one whose
// last turn was longest ago. If its work needs more room than is free, only small work overtakes it.
type Turns struct {
	cfg Config

	mu        sync.Mutex
	places    int   // free
	room      int64 // free
	smallFree bool
	owners    []*owner // with places or waiting work; the one whose last turn was longest ago first
}

// owner takes turns with others.
type owner struct {
	name    string
	has     int // places
	waiting []*work
}

// work waits for a place, or has one.
type work struct {
	owner  *owner
	weight int64
	turn   chan struct{} // closed when it has a place
	small  bool          // it has the place for small work
}

// New returns Turns whose places are free.
func New(cfg Config) *Turns {
	return &Turns{cfg: cfg, places: max(cfg.Places, 1), room: cfg.Room, smallFree: cfg.Small > 0}
}

// Acquire waits for a place. The caller gives it back by the returned function, which may be called twice. An error is
// the cause of the end of ctx.
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
		t.share() // others may have waited behind this
	}
	t.mu.Unlock()
	if i < 0 { // it got its place at the same moment
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

// next is the owner whose turn it is among those with such work waiting; nil if there is none.
func (t *Turns) next(such func(*work) bool) (next *owner) {
	for _, o := range t.owners {
		if slices.ContainsFunc(o.waiting, such) && (next == nil || o.has < next.has) {
			next = o
		}
	}
	return next
}

// give gives a place to the owner's i-th waiting work.
func (t *Turns) give(o *owner, i int, small bool) {
	w := o.waiting[i]
	o.waiting = slices.Delete(o.waiting, i, i+1)
	o.has++
	w.small = small
	close(w.turn)
	last := slices.Index(t.owners, o)
	t.owners = append(slices.Delete(t.owners, last, last+1), o)
}

// owner is the owner of that name. A new one comes last.
func (t *Turns) owner(name string) *owner {
	if i := slices.IndexFunc(t.owners, func(o *owner) bool { return o.name == name }); i >= 0 {
		return t.owners[i]
	}
	o := &owner{name: name}
	t.owners = append(t.owners, o)
	return o
}
