package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// An outage of Redis longer than the leases costs no host its lease and lets no task run twice, however
// Redis is away.
func TestOutage(t *testing.T) {
	beside(t)
	both := func(kind string) []toxic {
		attributes := map[string]int64{"timeout": 0}
		return []toxic{{kind, "upstream", attributes}, {kind, "downstream", attributes}}
	}
	for _, one := range []struct {
		name  string
		fault fault
	}{
		{"redis stopped", fault{kind: redisStops, victim: redisVictim}},
		{"redis restarted", fault{kind: redisEnded, victim: redisVictim}},
		{"hosts cut off", fault{kind: cut, toxics: both("reset_peer")}},
		{"hosts unheard", fault{kind: unheard, toxics: both("timeout")}},
	} {
		t.Run(one.name, func(t *testing.T) {
			beside(t)
			f := newFleet(t, outageSettings())
			plan := []fault{one.fault}
			if one.fault.victim == "" {
				plan = nil
				for _, h := range f.hosts {
					one.fault.victim = h.name
					plan = append(plan, one.fault)
				}
			}
			for i := range plan {
				plan[i].length = outageLength()
			}
			f.outlast(newProxy(t, f.address.addr()), func() { f.suffer(plan, nil) })
		})
	}
}

// When Redis's primary dies, or hangs with all connections to it, and a replica that has all it had takes
// its place, a lease later, nothing is lost and nothing runs twice.
func TestFailover(t *testing.T) {
	beside(t)
	for name, fail := range map[string]func(*queuetest.Server){
		"the primary dies":  (*queuetest.Server).Kill,
		"the primary hangs": (*queuetest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			f := newFleet(t, outageSettings())
			f.outlast(newProxy(t, f.address.addr()), func() {
				if err := f.failOver(f.ctx, fail, outageLength()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// failOver makes Redis fail, and later has a replica that has all that Redis has written take its place.
func (f *fleet) failOver(ctx context.Context, fail func(*queuetest.Server), later time.Duration) error {
	f.t.Helper()
	replica, standby := f.replica()
	f.holdWrites()
	f.eventually("the replica has everything", func() bool { return f.replicated(standby) })
	fail(f.redis)
	sleep(ctx, later)
	return f.promote(replica, standby)
}

// replica starts a replica of Redis, and waits until it has what Redis had.
func (f *fleet) replica() (*queuetest.Server, *redis.Client) {
	f.t.Helper()
	host, port, _ := strings.Cut(f.redis.Addr(), ":")
	replica := f.newRedis()
	standby := replica.Client(f.t)
	if err := standby.ReplicaOf(f.ctx, host, port).Err(); err != nil { // no option: a restart would make it a replica again
		f.t.Fatal(err)
	}
	f.eventually("the replica has the data and follows", func() bool {
		return strings.Contains(standby.Info(f.ctx, "replication").Val(), "\nmaster_link_status:up")
	})
	return replica, standby
}

// promote leads new connections to a replica. Those to a primary that hangs stay where they are.
func (f *fleet) promote(replica *queuetest.Server, standby *redis.Client) error {
	if err := standby.ReplicaOf(f.ctx, "NO", "ONE").Err(); err != nil {
		return err
	}
	f.redis = replica
	f.address.lead(replica.Addr())
	return nil
}

// holdWrites lets Redis write nothing more, once a replica has what this connection has written.
func (f *fleet) holdWrites() {
	f.t.Helper()
	_, err := f.rdb.Pipelined(f.ctx, func(p redis.Pipeliner) error { // on one connection
		p.Set(f.ctx, key("marker"), "here", 0)
		p.Do(f.ctx, "WAIT", 1, 0)
		p.Do(f.ctx, "CLIENT", "PAUSE", time.Minute.Milliseconds(), "WRITE")
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// replicated tells whether a replica is linked, and has all that Redis has written.
func (f *fleet) replicated(replica *redis.Client) bool {
	offset := func(rdb *redis.Client) (text string, linked bool) {
		info := rdb.Info(f.ctx, "replication").Val() // without an answer it is not linked
		_, text, _ = strings.Cut(info, "\nmaster_repl_offset:")
		text, _, _ = strings.Cut(text, "\r")
		return text, strings.Contains(info, "\nmaster_link_status:up")
	}
	has, linked := offset(replica)
	wants, _ := offset(f.rdb)
	return linked && has == wants
}

func outageSettings() settings {
	return settings{hosts: 3, concurrency: 32, lease: 2 * time.Second, grace: time.Second, patience: 2*time.Minute + 2*outageLength()}
}

// outageLength is how long Redis is away: longer than the leases.
func outageLength() time.Duration {
	if full {
		return 30 * time.Second
	}
	return 5 * time.Second
}

// outlast lives through an outage with guests that run before, while and after Redis is away, and with
// producers, and reads the books: no host may have lost its lease, and no task may have run twice.
func (f *fleet) outlast(through *proxy, outage func()) {
	f.t.Helper()
	before := f.listeners()
	orders := f.running(outageLength())
	// What is enqueued meanwhile is short, and the last of it comes a lease after the outage.
	length := outageLength() + f.lease
	for i := range 200 {
		o := order{id: fmt.Sprintf("meanwhile-%03d", i), queue: queues[i%len(queues)], manner: "ok", takes: time.Duration(i) * time.Millisecond}
		orders = append(orders, o)
	}
	p := newProducers(f, through)
	produced := make(chan error, 1)
	go func() { produced <- p.produce(f.ctx, orders[len(orders)-200:], length) }()
	began := time.Now()
	outage()
	away := time.Since(began)
	if err := <-produced; err != nil {
		f.t.Fatal(err)
	}
	f.settled(len(orders))
	l := f.audit(orders)
	l.once()
	if after := f.listeners(); !slices.Equal(after, before) {
		l.blame("the listeners are %v, and were %v", after, before)
	}
	for _, h := range f.hosts {
		reclaims, tasks, err := h.process().reclaimed()
		if err != nil || len(reclaims) > 0 || tasks > 0 {
			l.blame("%s took %v for dead, and %v tasks from them (%v)", h.name, reclaims, tasks, err)
		}
	}
	l.complain()
	f.t.Logf("%d tasks, %d runs over an outage of %s with leases of %s; %d calls to enqueue were repeated",
		len(orders), l.runs, away.Round(10*time.Millisecond), f.lease, p.repeats.Load())
	f.leave()
}

// running makes tasks of which half end while an outage of that length lasts and half two leases after
// it, and returns when all of them run.
func (f *fleet) running(outage time.Duration) (orders []order) {
	f.t.Helper()
	for i := range 8 * len(f.hosts) {
		o := order{id: fmt.Sprintf("during-%02d", i), queue: queues[i%len(queues)], manner: "ok", takes: outage * time.Duration(i+8) / 40}
		if i%2 == 1 {
			o.id, o.takes = fmt.Sprintf("throughout-%02d", i), outage+2*f.lease+500*time.Millisecond
		}
		orders = append(orders, o)
	}
	f.begin(orders)
	return orders
}

// begin enqueues tasks, and returns when all of them run.
func (f *fleet) begin(orders []order) {
	f.t.Helper()
	for _, o := range orders {
		if _, err := f.client.Queue(o.queue).EnqueueMany(f.ctx, []queue.Spec{o.spec()}); err != nil {
			f.t.Fatal(err)
		}
	}
	f.eventually("all long tasks run", func() bool {
		return !slices.ContainsFunc(orders, func(o order) bool { _, ok := f.journal.latest(o.id); return !ok })
	})
}

// listeners are the IDs of the hosts, in their order.
func (f *fleet) listeners() (ids []string) {
	for _, h := range f.hosts {
		id, _ := h.process().ids()
		ids = append(ids, id)
	}
	return ids
}

// once: every task had one run, and was reserved once, if it was not given back because it had been reserved ahead.
func (l *ledger) once() {
	if l.idle > l.fleet.journal.returned {
		l.blame("tasks were reserved %d times more often than they ran, and %d were given back", l.idle, l.fleet.journal.returned)
	}
	for id := range l.orders {
		if runs := l.fleet.journal.of(id); len(runs) != 1 {
			l.blame("task %s ran other than once: %v", id, runs)
		}
	}
}

// reclaimed are the listeners that the process took for dead, by its log, and the number of tasks that
// it took from them, by its metrics.
func (p *process) reclaimed() (listeners []string, tasks float64, err error) {
	p.mu.Lock()
	listeners, address := slices.Clone(p.reclaims), p.http
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return listeners, 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return listeners, 0, err
	}
	defer response.Body.Close()
	const name = "quern_tasks_reclaimed_total"
	err = errors.New("it has no metric " + name)
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), name+"{") {
			continue
		}
		text := lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:]
		var value float64
		if value, err = strconv.ParseFloat(text, 64); err != nil {
			break
		}
		tasks += value
	}
	return listeners, tasks, errors.Join(err, lines.Err())
}
