package host

import (
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
)

// Whatever a task saves, and however long it pauses, never more is let through than the burst and the rate since then; who
// saves slowly does not wait at all.
func TestPace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p pace
		begun := time.Unix(0, 0)
		now, through := begun, 0
		for range 100 {
			size := rapid.IntRange(0, queue.MaxCheckpoint).Draw(t, "size")
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond)
			now = now.Add(p.take(now, size))
			through += max(size, checkpointLeast)
			if most := checkpointBurst + int(now.Sub(begun).Seconds()*checkpointRate) + 1; through > most {
				t.Fatalf("%d bytes after %s, want at most %d", through, now.Sub(begun), most)
			}
		}
		var slow pace
		for now := begun; now.Before(begun.Add(time.Minute)); now = now.Add(time.Second) {
			if wait := slow.take(now, queue.MaxCheckpoint); wait > 0 {
				t.Fatalf("one a second waits %s", wait)
			}
		}
	})
}

// A guest that saves all the time is held back in the call, and what it was answered for is in Redis.
func TestCheckpointsHaveAPace(t *testing.T) {
	t.Parallel()
	n := start(t, settings{
		guests: map[string][]byte{"saving": runtimetest.BuildCHandler(t, `
#include "quern.h"
static uint32_t value[1 << 18];
QUERN_HANDLER int32_t handle(void) {
	for (;;) {
		value[0]++;
		int32_t answer = quern_checkpoint_save(value, sizeof value);
		if (answer) return answer;
	}
}`)},
		yaml: map[string]string{"saving": "limits: {timeout: 2s}"},
	})
	n.serving("saving")
	begun := time.Now()
	task := n.wait(n.enqueue("saving", ""))
	most := int64(checkpointBurst+checkpointRate*time.Since(begun).Seconds())/queue.MaxCheckpoint + 1
	kept, err := n.client.Checkpoint(n.ctx, task.ID)
	if err != nil || len(kept) != queue.MaxCheckpoint || task.Failure().Reason != queue.ReasonTimeout {
		t.Fatalf("%d bytes, %v: %+v", len(kept), err, task.Failure())
	}
	saved := int64(binary.LittleEndian.Uint32(kept))
	t.Logf("%d checkpoints of 1 MiB in 2 s", saved)
	if saved < 1 || saved > most {
		t.Errorf("%d checkpoints were saved, want at most %d", saved, most)
	}
}
