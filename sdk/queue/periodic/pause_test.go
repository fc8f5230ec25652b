package periodic

import (
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	t.Parallel()
	var p Pause
	now := time.Unix(1, 0)
	for _, want := range []int{50, 100, 200, 400, 800, 1600, 2000, 2000} {
		if !p.Over(now) {
			t.Fatalf("not over before the pause of %d ms", want)
		}
		most := time.Duration(want) * time.Millisecond
		left := p.Failed(now)
		if left < most/2 || left > most {
			t.Errorf("pause of %s, want %s to %s", left, most/2, most)
		}
		now = now.Add(10 * time.Millisecond)
		if again := p.Failed(now); again != left-10*time.Millisecond || p.Over(now) {
			t.Errorf("what failed meanwhile made the pause of %s %s", left, again)
		}
		now = now.Add(left - 10*time.Millisecond)
	}
	p.Succeeded()
	if left := p.Failed(now); left > shortest {
		t.Errorf("pause of %s after a success", left)
	}
}

// A thousand hosts lose Redis at the same moment, and find it half a minute later: they come back over a second or more.
func TestPausesOfAFleet(t *testing.T) {
	t.Parallel()
	lost := time.Unix(1, 0)
	back := lost.Add(30 * time.Second)
	came := make(map[time.Duration]int) // hosts, by the tenth of a second after back
	for range 1000 {
		var p Pause
		now := lost
		for now.Before(back) {
			now = now.Add(p.Failed(now))
		}
		came[now.Sub(back).Truncate(100*time.Millisecond)]++
	}
	for after, hosts := range came { // 67 in each tenth at first, since a pause lasts 1.5 s in the mean
		if hosts > 150 || after > longest {
			t.Errorf("%d of 1000 hosts came back after %s", hosts, after)
		}
	}
}
