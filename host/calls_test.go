package host

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// What a task keeps of a result takes no memory from what it sends, and what a task has borrowed ends with it, also if its call goes on.
func TestCallsBorrow(t *testing.T) {
	n := start(t, settings{idle: true})
	large := strings.Repeat("r", smallResult+1)
	if err := n.rdb.HSet(n.ctx, n.tenant+"_task_x", "status", "complete", "queue", "q", "result", large).Err(); err != nil {
		t.Fatal(err)
	}
	memory := account.New(64 << 20)
	access := &tenantAccess{
		client: n.client, calls: memory.Open(account.Calls, minCalls, 1), results: memory.Open(account.Calls, 1<<20, 1),
	}
	one := &task{tenant: access}
	if result, err := one.Result(n.ctx, "x", 1<<20); err != nil || string(result) != large {
		t.Fatalf("%d bytes, %v", len(result), err)
	}
	if memory.Reserved() != int64(len(large)) {
		t.Errorf("%d bytes are reserved for a result of %d", memory.Reserved(), len(large))
	}
	ctx, stop := context.WithTimeout(n.ctx, time.Minute)
	defer stop()
	if err := one.Publish(ctx, &queue.Publication{ID: "p", Topic: "t", Payload: make([]byte, manifest.MaxPublicationBytes)}); err != nil {
		t.Error(err)
	}
	one.result.end()
	if _, err := one.Result(n.ctx, "x", 1<<20); memory.Reserved() != 0 {
		t.Errorf("%d bytes are reserved for a task that has ended, %v", memory.Reserved(), err)
	}
}
