// Package turns shares out what there is little of: places to work in, and room for what the work takes. Who waits
// does so by owner, so that one owner with much work does not keep another with little waiting.
package turns

import (
	"context"
	"slices"
	"sync"
)

// Config says what there is to share out.
type Config struct {
	// Places is how much work goes on at once, beside the small. At least 1.
	Places int
	// Room is what that work may weigh together. Work that weighs more counts as much as Room, and goes on alone.
	Room int64
	// Small is what work may weigh at most that may also go on in one more place, which is there for such alone. It
	// has room of its own. Zero is no such place.
	Small int64
}

// Turns shares places out. Of those who wait, the owner has the next turn that has the fewest places; of several, the
// one who has had none for the longest time. Who has the turn and needs more room than there is waits until there is
// enough, and nobody but small work goes before.
type Turns struct {
	small int64 // what work may weigh for the place that is for small work

	mu        sync.Mutex
	places    int // that are free
	room      int64
	smallFree bool
	owners    []*owner // of places, and of work that waits; the one whose last turn was longest ago first
	most      int64
}

// owner is one of those who take turns.
type owner struct {
	name    string
	has     int // places
	waiting []*work
}

// work is what waits for a place, or has one.
type work struct {
	owner  *owner
	weight int64
	turn   chan struct{} // closed when it has a place
	small  bool          // it has the place that is for small work
}

// New makes turns; none is taken.
func New(cfg Config) *Turns {
	return &Turns{small: cfg.Small, places: max(cfg.Places, 1), room: cfg.Room, most: cfg.Room, smallFree: cfg.Small > 0}
}

// Take waits for a place. Who has it gives it back, once or more often, by the function that it returns. An error is the
// cause of the end of ctx.
func (t *Turns) Take(ctx context.Context, name string, weight int64) (giveBack func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	t.mu.Lock()
	w := &work{owner: t.owner(name), weight: min(weight, t.most), turn: make(chan struct{})}
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
		t.forget(w.owner)
	}
	t.mu.Unlock()
	if i < 0 { // it has got its place at the same moment
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
	t.forget(w.owner)
}

// share gives places to those whose turn it is, as long as there are any. The caller holds mu.
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
	isSmall := func(w *work) bool { return w.weight <= t.small }
	for t.smallFree {
		o := t.next(isSmall)
		if o == nil {
			break
		}
		t.smallFree = false
		t.give(o, slices.IndexFunc(o.waiting, isSmall), true)
	}
}

// next is the owner who has the turn among those who have such work waiting; nil if nobody has.
func (t *Turns) next(such func(*work) bool) (next *owner) {
	for _, o := range t.owners {
		if slices.ContainsFunc(o.waiting, such) && (next == nil || o.has < next.has) {
			next = o
		}
	}
	return next
}

// give gives a place to the i-th of what an owner has waiting.
func (t *Turns) give(o *owner, i int, small bool) {
	w := o.waiting[i]
	o.waiting = slices.Delete(o.waiting, i, i+1)
	o.has++
	w.small = small
	close(w.turn)
	last := slices.Index(t.owners, o)
	t.owners = append(slices.Delete(t.owners, last, last+1), o)
}

// owner is the owner of that name, who comes last if he is new.
func (t *Turns) owner(name string) *owner {
	for _, o := range t.owners {
		if o.name == name {
			return o
		}
	}
	o := &owner{name: name}
	t.owners = append(t.owners, o)
	return o
}

// forget drops an owner who has nothing and waits for nothing.
func (t *Turns) forget(o *owner) {
	if o.has == 0 && len(o.waiting) == 0 {
		t.owners = slices.DeleteFunc(t.owners, func(other *owner) bool { return other == o })
	}
}
