package host

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever is taken, shrunk, given back and forgotten: the sum is right and never above the bound,
// and what a waiting queue needs is never promised to others.
func TestMemoryNeverAboveItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 100).Draw(t, "total")
		m := memory{total: total}
		queues := []*served{{}, {}, {}, {}}
		var held []*share
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				q := rapid.SampledFrom(queues).Draw(t, "queue")
				if part, ok := m.take(q, rapid.Int64Range(0, total).Draw(t, "bytes")); ok {
					held = append(held, &part)
				}
			},
			"keep": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				m.keep(rapid.SampledFrom(held).Draw(t, "share"), rapid.Int64Range(0, total).Draw(t, "bytes"))
			},
			"give": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing is held")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "share")
				m.give(held[i])
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
				if m.waiting != nil && (m.newer != newer || m.newer < 0) {
					t.Fatalf("newer %d, the shares sum up to %d", m.newer, newer)
				}
			},
		})
		for _, part := range held {
			m.give(part)
		}
		if m.used != 0 {
			t.Fatalf("used %d with nothing held", m.used)
		}
	})
}

// A task that does not fit gets its turn as soon as those that ran before it waited have ended,
// however many small ones begin and end meanwhile, and they do go on.
func TestMemoryServesWhoWaits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(2, 100).Draw(t, "total")
		m := memory{total: total}
		small, big := &served{}, &served{}
		need := rapid.Int64Range(1, total).Draw(t, "need")
		one := rapid.Int64Range(1, total).Draw(t, "one")
		var older, newer []*share
		for {
			part, ok := m.take(small, one)
			if !ok {
				break
			}
			older = append(older, &part)
		}
		m.forget(small)
		if _, ok := m.take(big, need); ok {
			return // it fits beside them
		}
		for len(older) > 0 {
			// Small tasks try first every time, and any of them may end.
			for range rapid.IntRange(0, 5).Draw(t, "tries") {
				if part, ok := m.take(small, one); ok {
					newer = append(newer, &part)
				}
			}
			if len(newer) > 0 && rapid.Bool().Draw(t, "a newer one ends") {
				m.give(newer[0])
				newer = newer[1:]
			}
			m.give(older[0])
			older = older[1:]
			if _, ok := m.take(big, need); ok {
				return
			}
			if m.newer+one <= total-need && m.used+one <= total {
				if _, ok := m.take(small, one); !ok {
					t.Fatal("small tasks are held up although there is room for all")
				}
				newer = append(newer, &share{bytes: one, epoch: m.epoch})
			}
		}
		t.Fatalf("%d of %d bytes did not fit, with nothing left that ran before: %+v", need, total, m)
	})
}

// A plugin that is replaced by one with a greater need while it waits is not starved for it.
func TestMemoryWaitsWithANewNeed(t *testing.T) {
	t.Parallel()
	m := memory{total: 10}
	small, big := &served{}, &served{}
	older, _ := m.take(small, 8)
	for _, need := range []int64{3, 9} {
		if _, ok := m.take(big, need); ok {
			t.Fatalf("%d bytes fit beside 8 of 10", need)
		}
	}
	if _, ok := m.take(small, 2); ok {
		t.Error("a small task took what the waiting one needs")
	}
	m.give(&older)
	if _, ok := m.take(big, 9); !ok {
		t.Error("9 bytes do not fit in 10")
	}
}

func TestMemoryWithoutABound(t *testing.T) {
	t.Parallel()
	var m memory
	for range 3 {
		if _, ok := m.take(&served{}, 1<<62); !ok {
			t.Fatal("refused without a bound")
		}
	}
}
