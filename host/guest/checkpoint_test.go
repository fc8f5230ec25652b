package guest

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// Whatever a task saves, and however long it pauses, never more is let through than the burst and the rate since then; who
// saves slowly does not wait at all.
func TestPace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c checkpoint
		begun := time.Unix(0, 0)
		now, through := begun, 0
		for range 100 {
			size := rapid.IntRange(0, listen.MaxCheckpoint).Draw(t, "size")
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond)
			now = now.Add(c.pay(now, size))
			through += max(size, checkpointLeast)
			if most := checkpointBurst + int(now.Sub(begun).Seconds()*checkpointRate) + 1; through > most {
				t.Fatalf("%d bytes after %s, want at most %d", through, now.Sub(begun), most)
			}
		}
		var slow checkpoint
		for now := begun; now.Before(begun.Add(time.Minute)); now = now.Add(time.Second) {
			if wait := slow.pay(now, listen.MaxCheckpoint); wait > 0 {
				t.Fatalf("one a second waits %s", wait)
			}
		}
	})
}
