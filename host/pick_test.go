package host

import (
	"fmt"
	"slices"
	"testing"
)

// Free slots go one at a time to the queue with the fewest running tasks, and among equals to the one served longest ago;
// what a queue does not take goes to the others.
func TestPick(t *testing.T) {
	t.Parallel()
	a, b := newTestSource(t), newTestSource(t)
	for name, test := range map[string]struct {
		free    int
		running [3]int
		sources [3]source
		full    int // the queue that takes none
		want    [3]int
	}{
		"Even":   {4, [3]int{2, 0, 0}, [3]source{a, a, a}, -1, [3]int{0, 2, 2}},
		"Turns":  {2, [3]int{}, [3]source{a, a, a}, -1, [3]int{1, 1, 0}},
		"Full":   {4, [3]int{}, [3]source{a, a, a}, 0, [3]int{0, 2, 2}},
		"Half":   {8, [3]int{}, [3]source{a, a, b}, -1, [3]int{2, 2, 4}},
		"NoSlot": {0, [3]int{}, [3]source{a, a, a}, -1, [3]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			quota := newQuota(8, test.free, len(slices.Compact(slices.Clone(test.sources[:]))))
			var open []*served
			for i := range test.running {
				open = append(open, &served{
					place: place{"t", fmt.Sprint(i)}, source: test.sources[i], running: test.running[i], turn: uint64(i),
				})
			}
			queues, turns, got := slices.Clone(open), uint64(len(open)), [3]int{}
			pick(open, quota, func(q *served) bool {
				i := slices.Index(queues, q)
				if i == test.full {
					return false
				}
				got[i]++
				turns++
				q.running, q.turn = q.running+1, turns
				return true
			})
			if got != test.want {
				t.Errorf("given %v, want %v", got, test.want)
			}
		})
	}
}
