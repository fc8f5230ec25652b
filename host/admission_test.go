package host

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is taken, shrunk, given back, forgotten and held beside: the sum is right and never above the
// bound, but by what is held for one that waits for no older task, when nothing is idle; and what a
// waiting queue needs is never promised to others.
func TestMemoryNeverAboveItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 100).Draw(t, "total")
		m := newAdmission(total, nil, nil, nil)
		queues := []place{{"t", "a"}, {"t", "b"}, {"t", "c"}, {"t", "d"}}
		var held []*share
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				q := rapid.SampledFrom(queues).Draw(t, "queue")
				mayForce := m.exhausted && m.used == m.admitted
				if m.waiting == (place{}) {
					mayForce = m.exhausted && m.used == 0
				} else if m.waiting != q {
					mayForce = false
				}
				if part, ok := m.take(q, rapid.Int64Range(0, total).Draw(t, "bytes")); ok {
					held = append(held, part)
					if m.used+m.held > total && !mayForce {
						t.Fatalf("%d are used and %d held of %d", m.used, m.held, total)
					}
					before, most := m.used, rapid.Int64Range(0, 2*total).Draw(t, "image")
					m.extend(part, most)
					if part.snapshot < 0 || part.snapshot > most || m.used != before+part.snapshot || part.snapshot > 0 && m.used+m.held > total {
						t.Fatalf("%d of %d bytes for an image beside %d, %d held of %d", part.snapshot, most, before, m.held, total)
					}
				}
			},
			"arrived": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				part := rapid.SampledFrom(held).Draw(t, "share")
				m.shrink(part, part.bytes-part.snapshot)
			},
			"measure": func(t *rapid.T) { m.setHeld(rapid.Int64Range(0, 2*total).Draw(t, "held")) },
			"relieve": func(t *rapid.T) { m.exhausted = rapid.Bool().Draw(t, "dry") },
			"keep": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				m.shrink(rapid.SampledFrom(held).Draw(t, "share"), rapid.Int64Range(0, total).Draw(t, "bytes"))
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "share")
				m.shrink(held[i], 0)
				held = append(held[:i], held[i+1:]...)
			},
			"forget": func(t *rapid.T) { m.forget(rapid.SampledFrom(queues).Draw(t, "queue")) },
			"": func(t *rapid.T) {
				sum, newer := int64(0), int64(0)
				for _, part := range held {
					sum += part.bytes
					if part.epoch == m.epoch {
						newer += part.bytes
					}
				}
				if m.used != sum || m.used > total {
					t.Fatalf("used %d, the shares sum up to %d, the bound is %d", m.used, sum, total)
				}
				if m.waiting != (place{}) && (m.admitted != newer || m.admitted < 0) {
					t.Fatalf("newer %d, the shares sum up to %d", m.admitted, newer)
				}
			},
		})
		for _, part := range held {
			m.shrink(part, 0)
		}
		if m.used != 0 {
			t.Fatalf("used %d with nothing held", m.used)
		}
	})
}

// A task that does not fit gets its turn as soon as those that ran before it waited have ended,
// however many small ones begin and end meanwhile, and they do go on; the bound is kept for it while what
// is held beside them does not grow.
func TestMemoryServesWhoWaits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		held := rapid.Int64Range(0, 20).Draw(t, "held")
		total := rapid.Int64Range(2, 100).Draw(t, "total") // beside what is held
		m := newAdmission(total+held, nil, nil, nil)
		m.held, m.exhausted = held, rapid.Bool().Draw(t, "dry")
		small, big := place{"t", "small"}, place{"t", "big"}
		need := rapid.Int64Range(1, total).Draw(t, "need")
		one := rapid.Int64Range(1, total).Draw(t, "one")
		var older, newer []*share
		for {
			part, ok := m.take(small, one)
			if !ok {
				break
			}
			m.extend(part, rapid.Int64Range(0, total).Draw(t, "image"))
			older = append(older, part)
		}
		m.forget(small)
		if _, ok := m.take(big, need); ok {
			return // it fits beside them
		}
		for len(older) > 0 {
			// Small tasks try first every time, and any of them may end.
			for range rapid.IntRange(0, 5).Draw(t, "tries") {
				if part, ok := m.take(small, one); ok {
					m.extend(part, rapid.Int64Range(0, total).Draw(t, "image"))
					newer = append(newer, part)
				}
			}
			if len(newer) > 0 && rapid.Bool().Draw(t, "a newer one ends") {
				m.shrink(newer[0], 0)
				newer = newer[1:]
			}
			m.shrink(older[0], 0)
			older = older[1:]
			if _, ok := m.take(big, need); ok && m.exceeded == 0 {
				return
			}
			if m.exceeded == 0 && m.admitted+one <= total-need && m.used+one <= total {
				if _, ok := m.take(small, one); !ok {
					t.Fatal("small tasks are held up although there is room for all")
				}
				newer = append(newer, &share{bytes: one, epoch: m.epoch})
			}
		}
		t.Fatalf("%d of %d bytes did not fit, with nothing left that ran before: %+v", need, total, &m)
	})
}

// tank is a cache that behaves like an engine: a queue's code is held while its tasks run and, like
// what its tasks leave, until an eviction.
type tank struct {
	code, rest    map[place]int64 // that a queue's plugin takes, and that each of its tasks leaves
	loaded        map[place]bool
	left, running map[place]int64
}

func (k *tank) begin(q place) {
	k.loaded[q] = true
	k.running[q]++
	k.left[q] = max(0, k.left[q]-k.rest[q])
}
func (k *tank) end(q place) { k.running[q]--; k.left[q] += k.rest[q] }

func (k *tank) Held() (sum int64) {
	for q, code := range k.code {
		sum += k.left[q]
		if k.loaded[q] {
			sum += code
		}
	}
	return sum
}

func (k *tank) Relieve(_ context.Context, bytes int64) int64 {
	before := k.Held()
	for q := range k.code {
		if before-k.Held() >= bytes {
			break
		}
		k.left[q], k.loaded[q] = 0, k.running[q] > 0
	}
	return before - k.Held()
}

// The same with what is held beside the tasks: as soon as no older task runs, the one that waits begins,
// whatever newer ones hold by then. A measurement and two evictions are enough.
func TestMemoryServesWhoWaitsBesideWhatIsHeld(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(2, 100).Draw(t, "total")
		m := newAdmission(total, nil, nil, func() {})
		early, small, big := place{"t", "early"}, place{"t", "small"}, place{"t", "big"}
		k := &tank{map[place]int64{}, map[place]int64{}, map[place]bool{}, map[place]int64{}, map[place]int64{}}
		need := map[place]int64{}
		for _, q := range []place{early, small, big} {
			need[q] = rapid.Int64Range(1, total).Draw(t, "need")
			k.rest[q] = rapid.Int64Range(0, need[q]).Draw(t, "rest")
			k.code[q] = rapid.Int64Range(0, total).Draw(t, "code")
		}
		take := func(q place) *share {
			part, ok := m.take(q, need[q])
			if !ok {
				return nil
			}
			k.begin(q)
			return part
		}
		end := func(q place, part *share) {
			k.end(q)
			m.shrink(part, 0)
			m.exhausted = false
			m.ends++
		}
		pick := func() (newer []*share, served bool) {
			m.shortfall = 0
			for range rapid.IntRange(0, 3).Draw(t, "tries") { // small tasks try first every time
				if part := take(small); part != nil {
					newer = append(newer, part)
				}
			}
			return newer, take(big) != nil
		}
		relieve := func() {
			if lacks, ends := m.measured(k.Held(), nil); lacks > 0 {
				freed := k.Relieve(context.Background(), lacks)
				m.evicted(k.Held(), ends, freed < lacks)
			}
		}
		m.measured(k.Held(), nil)
		var older []*share
		for range rapid.IntRange(0, 10).Draw(t, "older") {
			if part := take(early); part != nil {
				older = append(older, part)
			}
		}
		m.forget(early)
		if take(big) != nil {
			return // it fits beside them
		}
		for len(older) > 0 {
			newer, served := pick()
			if served {
				return
			}
			relieve()
			for _, part := range newer {
				if rapid.Bool().Draw(t, "a newer one ends") {
					end(small, part)
				}
			}
			end(early, older[0])
			older = older[1:]
		}
		for range 4 {
			if _, served := pick(); served {
				return
			}
			relieve()
		}
		t.Fatalf("%d of %d bytes were not granted, with nothing left that ran before: %+v, %+v", need[big], total, m, k)
	})
}

// A plugin that is replaced by one with a greater need while it waits is not starved for it.
func TestMemoryWaitsWithANewNeed(t *testing.T) {
	t.Parallel()
	m := newAdmission(10, nil, nil, nil)
	small, big := place{"t", "small"}, place{"t", "big"}
	older, _ := m.take(small, 8)
	for _, need := range []int64{3, 9} {
		if _, ok := m.take(big, need); ok {
			t.Fatalf("%d bytes fit beside 8 of 10", need)
		}
	}
	if _, ok := m.take(small, 2); ok {
		t.Error("a small task took what the waiting one needs")
	}
	m.shrink(older, 0)
	if _, ok := m.take(big, 9); !ok {
		t.Error("9 bytes do not fit in 10")
	}
}

// Queues that wait for memory take turns, also if one is always asked before the other, or again at once.
func TestMemoryIsGivenInTurn(t *testing.T) {
	t.Parallel()
	m := newAdmission(10, nil, nil, nil)
	queues := []place{{"t", "q"}, {"u", "q"}}
	running, ok := m.take(queues[0], 8)
	if !ok {
		t.Fatal("8 bytes do not fit in 10")
	}
	var order []string
	for range 6 {
		var next *share
		m.shrink(running, 0)
		for _, at := range []place{queues[1], queues[0], queues[0], queues[1]} {
			if part, ok := m.take(at, 8); ok {
				next = part
				order = append(order, at.tenant)
			}
		}
		running = next
	}
	if got := strings.Join(order, ""); got != "ututut" && got != "tututu" {
		t.Errorf("served in the order %s", got)
	}
}

func TestMemoryWithoutABound(t *testing.T) {
	t.Parallel()
	m := newAdmission(0, nil, nil, nil)
	for range 3 {
		if _, ok := m.take(place{"t", "q"}, 1<<62); !ok {
			t.Fatal("refused without a bound")
		}
	}
}

// A tenant whose tasks run leaves an eighth of the memory to those that run nothing.
func TestMemoryIsLeftToTenantsThatRunNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shared       bool
		second, idle bool // whether a second task of one tenant fits, and then one of another tenant
	}{{true, false, true}, {false, true, false}} {
		m := newAdmission(16, nil, nil, nil)
		m.begin(c.shared)
		busy, idle := place{"t", "q"}, place{"u", "q"}
		if _, ok := m.take(busy, 14); !ok {
			t.Error("14 bytes do not fit in 16")
		}
		if _, ok := m.take(busy, 2); ok != c.second {
			t.Errorf("shared: %t: a second task of the tenant fits: %t", c.shared, ok)
		}
		part, ok := m.take(idle, 2)
		if ok != c.idle {
			t.Errorf("shared: %t: a task of the other tenant fits: %t", c.shared, ok)
		}
		if !ok {
			continue
		}
		m.shrink(part, 0)
		if _, ok := m.take(idle, 2); !ok {
			t.Error("what the other tenant gave back it cannot have again")
		}
	}
}
