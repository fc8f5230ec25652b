package runtime

import (
	"slices"
	"testing"
)

// TestGate: those that wait for a first turn and those that have had one get places in turns, each in the
// order in which they came.
func TestGate(t *testing.T) {
	t.Parallel()
	g := &gate{free: 1}
	g.enter(&g.first)
	got := make(chan string)
	waiting := 0
	for _, w := range []struct {
		name string
		in   *queue
	}{{"first 1", &g.first}, {"first 2", &g.first}, {"first 3", &g.first}, {"other 1", &g.others}, {"other 2", &g.others}} {
		go func() {
			if !g.enter(w.in) {
				t.Error("the only place was free")
			}
			got <- w.name
		}()
		waiting++
		eventually(t, w.name+" waits", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.first)+len(g.others) == waiting
		})
	}
	var order []string
	for range waiting {
		g.leave()
		order = append(order, <-got)
	}
	if want := []string{"first 1", "other 1", "first 2", "other 2", "first 3"}; !slices.Equal(order, want) {
		t.Errorf("places went to %v, want %v", order, want)
	}
	if g.leave(); g.free != 1 || g.wanted() {
		t.Errorf("%d places are free, want 1", g.free)
	}
}
