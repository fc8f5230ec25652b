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
		if left := p.Failed(now); left != time.Duration(want)*time.Millisecond {
			t.Errorf("pause of %s, want %d ms", left, want)
		}
		now = now.Add(10 * time.Millisecond)
		if left := p.Failed(now); left != time.Duration(want-10)*time.Millisecond || p.Over(now) {
			t.Errorf("what failed meanwhile made the pause %s", left)
		}
		now = now.Add(time.Duration(want-10) * time.Millisecond)
	}
	p.Succeeded()
	if left := p.Failed(now); left != shortest {
		t.Errorf("pause of %s after a success", left)
	}
}
