package schedule

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
		m := newAdmission(total, nil, nil)
		queues := []Queue{{"t", "a"}, {"t", "b"}, {"t", "c"}, {"t", "d"}}
		var held []*share
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				q := rapid.SampledFrom(queues).Draw(t, "queue")
				mayForce := m.cache.exhausted && m.used == m.waiting.admitted
				if m.waiting.queue == (Queue{}) {
					mayForce = m.cache.exhausted && m.used == 0
				} else if m.waiting.queue != q {
					mayForce = false
				}
				if part := m.admit(q, rapid.Int64Range(0, total).Draw(t, "bytes")); part != nil {
					held = append(held, part)
					if m.used+m.cache.held > total && !mayForce {
						t.Fatalf("%d are used and %d held of %d", m.used, m.cache.held, total)
					}
					before, most := m.used, rapid.Int64Range(0, 2*total).Draw(t, "snapshot")
					m.extend(part, most)
					if part.snapshot < 0 || part.snapshot > most || m.used != before+part.snapshot || part.snapshot > 0 && m.used+m.cache.held > total {
						t.Fatalf("%d of %d bytes for a snapshot beside %d, %d held of %d", part.snapshot, most, before, m.cache.held, total)
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
			"relieve": func(t *rapid.T) { m.cache.exhausted = rapid.Bool().Draw(t, "exhausted") },
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
				if m.waiting.queue != (Queue{}) && (m.waiting.admitted != newer || m.waiting.admitted < 0) {
					t.Fatalf("newer %d, the shares sum up to %d", m.waiting.admitted, newer)
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
		m := newAdmission(total+held, nil, nil)
		m.cache.held, m.cache.exhausted = held, rapid.Bool().Draw(t, "exhausted")
		small, big := Queue{"t", "small"}, Queue{"t", "big"}
		need := rapid.Int64Range(1, total).Draw(t, "need")
		one := rapid.Int64Range(1, total).Draw(t, "one")
		var older, newer []*share
		for {
			part := m.admit(small, one)
			if part == nil {
				break
			}
			m.extend(part, rapid.Int64Range(0, total).Draw(t, "snapshot"))
			older = append(older, part)
		}
		m.forget(small)
		if m.admit(big, need) != nil {
			return // it fits beside them
		}
		for len(older) > 0 {
			// Small tasks try first every time, and any of them may end.
			for range rapid.IntRange(0, 5).Draw(t, "tries") {
				if part := m.admit(small, one); part != nil {
					m.extend(part, rapid.Int64Range(0, total).Draw(t, "snapshot"))
					newer = append(newer, part)
				}
			}
			if len(newer) > 0 && rapid.Bool().Draw(t, "a newer one ends") {
				m.shrink(newer[0], 0)
				newer = newer[1:]
			}
			m.shrink(older[0], 0)
			older = older[1:]
			if m.admit(big, need) != nil && m.exceeded == 0 {
				return
			}
			if m.exceeded == 0 && m.waiting.admitted+one <= total-need && m.used+one <= total {
				if m.admit(small, one) == nil {
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
	code, rest    map[Queue]int64 // that a queue's plugin takes, and that each of its tasks leaves
	loaded        map[Queue]bool
	left, running map[Queue]int64
}

func (k *tank) begin(q Queue) {
	k.loaded[q] = true
	k.running[q]++
	k.left[q] = max(0, k.left[q]-k.rest[q])
}
func (k *tank) end(q Queue) { k.running[q]--; k.left[q] += k.rest[q] }

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
		m := newAdmission(total, nil, nil)
		early, small, big := Queue{"t", "early"}, Queue{"t", "small"}, Queue{"t", "big"}
		k := &tank{map[Queue]int64{}, map[Queue]int64{}, map[Queue]bool{}, map[Queue]int64{}, map[Queue]int64{}}
		need := map[Queue]int64{}
		for _, q := range []Queue{early, small, big} {
			need[q] = rapid.Int64Range(1, total).Draw(t, "need")
			k.rest[q] = rapid.Int64Range(0, need[q]).Draw(t, "rest")
			k.code[q] = rapid.Int64Range(0, total).Draw(t, "code")
		}
		take := func(q Queue) *share {
			part := m.admit(q, need[q])
			if part == nil {
				return nil
			}
			k.begin(q)
			return part
		}
		end := func(q Queue, part *share) {
			k.end(q)
			m.shrink(part, 0)
			m.cache.exhausted = false
			m.cache.ends++
		}
		pick := func() (newer []*share, served bool) {
			m.cache.shortfall = 0
			for range rapid.IntRange(0, 3).Draw(t, "tries") { // small tasks try first every time
				if part := take(small); part != nil {
					newer = append(newer, part)
				}
			}
			return newer, take(big) != nil
		}
		relieve := func() {
			if shortfall, _ := m.measured(k.Held(), nil); shortfall > 0 {
				freed := k.Relieve(context.Background(), shortfall)
				m.evicted(k.Held(), m.cache.ends, freed < shortfall)
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
	m := newAdmission(10, nil, nil)
	small, big := Queue{"t", "small"}, Queue{"t", "big"}
	older := m.admit(small, 8)
	for _, need := range []int64{3, 9} {
		if m.admit(big, need) != nil {
			t.Fatalf("%d bytes fit beside 8 of 10", need)
		}
	}
	if m.admit(small, 2) != nil {
		t.Error("a small task took what the waiting one needs")
	}
	m.shrink(older, 0)
	if m.admit(big, 9) == nil {
		t.Error("9 bytes do not fit in 10")
	}
}

// Queues that wait for memory take turns, also if one is always asked before the other, or again at once.
func TestMemoryIsGivenInTurn(t *testing.T) {
	t.Parallel()
	m := newAdmission(10, nil, nil)
	queues := []Queue{{"t", "q"}, {"u", "q"}}
	running := m.admit(queues[0], 8)
	if running == nil {
		t.Fatal("8 bytes do not fit in 10")
	}
	var order []string
	for range 6 {
		var next *share
		m.shrink(running, 0)
		for _, at := range []Queue{queues[1], queues[0], queues[0], queues[1]} {
			if part := m.admit(at, 8); part != nil {
				next = part
				order = append(order, at.Tenant)
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
	m := newAdmission(0, nil, nil)
	for range 3 {
		if m.admit(Queue{"t", "q"}, 1<<62) == nil {
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
		m := newAdmission(16, nil, nil)
		m.begin(c.shared)
		busy, idle := Queue{"t", "q"}, Queue{"u", "q"}
		if m.admit(busy, 14) == nil {
			t.Error("14 bytes do not fit in 16")
		}
		if ok := m.admit(busy, 2) != nil; ok != c.second {
			t.Errorf("shared: %t: a second task of the tenant fits: %t", c.shared, ok)
		}
		part := m.admit(idle, 2)
		if ok := part != nil; ok != c.idle {
			t.Errorf("shared: %t: a task of the other tenant fits: %t", c.shared, ok)
		}
		if part == nil {
			continue
		}
		m.shrink(part, 0)
		if m.admit(idle, 2) == nil {
			t.Error("what the other tenant gave back it cannot have again")
		}
	}
}
