package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
)

// When a replica that lagged takes the primary's place, and when somebody deletes tasks that run and enqueues others of their IDs,
// hosts get IDs again that they still run. What the new primary knows of is done all the same, and no host runs an ID twice at a
// time; that tasks run again whose end the replica did not have is the price.
func TestLag(t *testing.T) {
	beside(t)
	f := newFleet(t, outageSettings())
	f.journal.again = true
	replica, standby := f.replica()
	orders := f.running(outageLength())
	for _, o := range orders[:4] {
		f.anew(o)
	}
	waiting := make(map[string][]queue.Spec)
	for i := range 600 {
		o := order{id: fmt.Sprintf("waiting-%03d", i), queue: queues[i%len(queues)], manner: "ok", takes: time.Duration(100+i) * time.Millisecond}
		orders, waiting[o.queue] = append(orders, o), append(waiting[o.queue], o.spec())
	}
	for name, specs := range waiting {
		if _, err := f.client.Queue(name).EnqueueMany(f.ctx, specs); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the replica has what is enqueued", func() bool {
		n, err := standby.Exists(f.ctx, key("task", orders[len(orders)-1].id), key("task", orders[len(orders)-2].id)).Result()
		return err == nil && n == 2
	})
	if err := standby.ReplicaOf(f.ctx, "NO", "ONE").Err(); err != nil { // it gets nothing more
		t.Fatal(err)
	}
	before := f.journal.count()
	f.eventually("hosts have begun and ended tasks that the replica knows to be pending", func() bool { return f.journal.count() > before+100 })
	f.redis.Kill()
	sleep(f.ctx, outageLength())
	if err := f.promote(replica, standby); err != nil {
		t.Fatal(err)
	}
	f.settled(len(orders))
	l := f.books(orders)
	l.wrong = append(l.wrong, f.journal.twice()...)
	l.complain()
	f.t.Logf("%d tasks had %d runs", len(orders), f.journal.count())
	f.leave()
}

// anew deletes a task that runs, by hand, and enqueues another of its ID.
func (f *fleet) anew(o order) {
	f.t.Helper()
	id := key("task", o.id)
	node, err := f.rdb.HGet(f.ctx, id, "node").Result()
	if err == nil {
		_, err = f.rdb.TxPipelined(f.ctx, func(p redis.Pipeliner) error {
			p.Del(f.ctx, id)
			p.LRem(f.ctx, key("reserved", "tasks", o.queue, node), 0, o.id)
			for _, member := range f.rdb.SMembers(f.ctx, key("started", "tasks", o.queue)).Val() {
				if strings.HasSuffix(member, " "+o.id) {
					p.SRem(f.ctx, key("started", "tasks", o.queue), member)
				}
			}
			return nil
		})
	}
	if err == nil {
		_, err = f.client.Queue(o.queue).EnqueueMany(f.ctx, []queue.Spec{o.spec()})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
