package queue_test

import (
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestClusterThin(t *testing.T) {
	t.Parallel()
	c := queuetest.SharedCluster(t)
	w := newWorld(t, c.URL())
	id := w.enqueue(t, "q", "p", queue.Options{})
	node, claim := w.held(t, "q")
	w.settle(t, node, "q", listen.Settlement{Claim: claim, Result: []byte("x")})
	if task := w.task(t, id); task.Status != queue.Complete {
		t.Error(task.Status)
	}
}
