package host

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

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
	const burst, rate = 8 << 20, 1 << 20
	most := int64(burst+rate*time.Since(begun).Seconds())/listen.MaxCheckpoint + 1
	kept, err := listen.New(n.client).ReadCheckpoint(n.ctx, task.ID)
	if err != nil || len(kept) != listen.MaxCheckpoint || task.Failure().Reason != queue.ReasonTimeout {
		t.Fatalf("%d bytes, %v: %+v", len(kept), err, task.Failure())
	}
	saved := int64(binary.LittleEndian.Uint32(kept))
	t.Logf("%d checkpoints of 1 MiB in 2 s", saved)
	if saved < 1 || saved > most {
		t.Errorf("%d checkpoints were saved, want at most %d", saved, most)
	}
}
