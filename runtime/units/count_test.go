package units

import "testing"

func TestCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 deliveries wait", 1: "1 delivery waits", 2: "2 deliveries wait"} {
		if got := Count(n, "delivery waits", "deliveries wait"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
