package guest

import (
	"testing"
	"time"
)

func TestMilliseconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 1<<63 - 1: 9223372036855,
		-1: -1, -time.Millisecond: -1, -time.Millisecond - 1: -2, -time.Second: -1000, -1 << 63: -9223372036855,
	} {
		if got := Milliseconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}
