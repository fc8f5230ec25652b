package queue_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestEnqueueOnReplicas(t *testing.T) {
	t.Parallel()
	primary := queuetest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := queuetest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	w := newWorld(t, primary.URL())
	eventually(t, "the replica", func() bool { return w.rdb.Do(w.ctx, "WAIT", 1, 10).Val() == int64(1) })
	durable := func(replicas int, within time.Duration) *queue.Queue {
		return must[*queue.Client](t)(queue.NewFromRedis(w.rdb, queue.Config{Tenant: w.Tenant(), Replicas: replicas, ReplicaTimeout: within})).Queue("q")
	}
	short := 50 * time.Millisecond
	if _, err := durable(1, time.Second).Enqueue(w.ctx, nil, queue.Options{}); err != nil {
		t.Errorf("one of one: %v", err)
	}
	w.rdb.ScriptFlush(w.ctx)
	if _, err := durable(1, time.Second).Enqueue(w.ctx, nil, queue.Options{}); err != nil {
		t.Errorf("after a flush: %v", err)
	}
	lacking := func(what string, id string, err error, wanted, got int) {
		t.Helper()
		var e *queue.NotReplicatedError
		if !errors.Is(err, queue.ErrNotReplicated) || !errors.As(err, &e) || e.Wanted != wanted || e.Got != got || len(e.IDs) != 1 || e.IDs[0] != id {
			t.Errorf("%s: %q, %v", what, id, err)
		}
	}
	id, err := durable(2, short).Enqueue(w.ctx, nil, queue.Options{})
	lacking("one of two", id, err, 2, 1)

	replica.Pause()
	t.Cleanup(replica.Resume)
	for i, again := range []string{"the replica hangs", "once more"} {
		id, err = durable(1, short).Enqueue(w.ctx, nil, queue.Options{ID: "hangs"})
		lacking(again, id, err, 1, 0)
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 4})
		if i == 0 {
			w.rdb.ScriptFlush(w.ctx)
		}
	}
	another := must[*queue.Client](t)(queue.New(primary.URL(), queue.Config{Tenant: w.Tenant(), Replicas: 1, ReplicaTimeout: short})) // has written nothing
	t.Cleanup(func() { _ = another.Close() })
	id, err = another.Queue("q").Enqueue(w.ctx, nil, queue.Options{ID: "hangs"})
	lacking("on another connection", id, err, 1, 0)
	replica.Resume()
	receipts, err := durable(1, time.Second).EnqueueMany(w.ctx, []queue.Spec{{Options: queue.Options{ID: "hangs"}}, {Options: queue.Options{ID: "new"}}})
	if err != nil || !receipts[0].Existed || receipts[1].Existed {
		t.Errorf("%+v, %v", receipts, err)
	}
	w.depth(t, "q", map[queue.Status]int64{queue.Pending: 5})
	if n := replica.Client(t).LLen(w.ctx, w.Store().Keys.Pending("q")).Val(); n != 5 {
		t.Errorf("the replica has %d", n)
	}
	for _, config := range []queue.Config{{Replicas: -1}, {Replicas: 1, ReplicaTimeout: 2 * time.Second}, {ReplicaTimeout: time.Microsecond}} {
		if _, err := queue.NewFromRedis(w.rdb, config); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%+v: %v", config, err)
		}
	}
}
