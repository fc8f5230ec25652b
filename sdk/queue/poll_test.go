package queue_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func TestPollInBlocks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Clock = "1700000000.000000"
		queues := make([]string, 403) // three blocks
		for i := range queues {
			queues[i] = fmt.Sprintf("q%d", i)
		}
		pending := map[int]int64{0: 1, 199: 2, 200: 3, 399: 4, 400: 5, 402: 6} // the edges of the blocks
		for i, n := range pending {
			for range n {
				w.enqueue(t, queues[i], "", queue.Options{})
			}
		}
		w.enqueue(t, queues[300], "", queue.Options{Delay: 20 * time.Second})
		w.enqueue(t, queues[401], "", queue.Options{Delay: 10 * time.Second})
		var blocks struct{ pipelines, scripts, longest int }
		w.hook(t, spy(func(cmds ...redis.Cmder) {
			if cmds[0].Name() == "evalsha" && len(cmds) > 1 { // not what a new connection begins with, nor one that Redis did not know
				blocks.pipelines++
				blocks.scripts += len(cmds)
			}
			for _, cmd := range cmds {
				blocks.longest = max(blocks.longest, len(cmd.Args()))
			}
		}))
		poll := must[listen.Backlogs](t)(listen.NewFleet(w.Client).Backlogs(w.ctx, queues))
		if blocks.pipelines != 1 || blocks.scripts != 3 || blocks.longest > 210 {
			t.Errorf("sent %+v, want three blocks in one round trip", blocks)
		}
		if len(poll.Queues) != len(queues) {
			t.Fatalf("looked at %d queues, want %d", len(poll.Queues), len(queues))
		}
		for i, look := range poll.Queues {
			if look.Queue != queues[i] || look.Pending != pending[i] {
				t.Errorf("queue %d: %+v, want %d pending", i, look, pending[i])
			}
			if next := map[int]time.Time{300: time.Unix(1700000020, 0), 401: time.Unix(1700000010, 0)}[i]; !look.NextETA.Equal(next) {
				t.Errorf("queue %d: next at %s, want %s", i, look.NextETA, next)
			}
		}
		if !poll.Clock.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("clock %s", poll.Clock)
		}
		if !poll.LeaseEnd.IsZero() {
			t.Errorf("a lease ends at %s though there is none", poll.LeaseEnd)
		}
	})
}

func TestPollOfNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t)
		w.rdb.ZAdd(w.ctx, w.Store().Keys.Nodes(), redis.Z{Score: 1700000000.5, Member: "another~00000000_1"})
		poll := must[listen.Backlogs](t)(listen.NewFleet(w.Client).Backlogs(w.ctx, nil))
		if len(poll.Queues) != 0 || !poll.LeaseEnd.Equal(time.UnixMilli(1700000000500)) {
			t.Errorf("%+v", poll)
		}
		if age := time.Since(poll.Clock); age < -time.Minute || age > time.Minute {
			t.Errorf("the clock is %s behind", age)
		}
		if err := node.Leave(w.ctx); err != nil {
			t.Error(err)
		}
	})
}

// A change is a task where there was none, or none where there were some; a damaged key is no obstacle.
func TestChanged(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.rdb.Set(w.ctx, w.Store().Keys.Pending("damaged"), "x", 0)
		w.enqueue(t, "filled", "", queue.Options{})
		for name, test := range map[string]struct {
			empty, waiting []string
			want           bool
		}{
			"None":     {nil, nil, false},
			"Same":     {[]string{"a", "b"}, []string{"filled", "damaged"}, false},
			"Filled":   {[]string{"a", "filled"}, nil, true},
			"Emptied":  {[]string{"a"}, []string{"filled", "b"}, true},
			"Replaced": {[]string{"filled"}, []string{"a"}, true},
		} {
			if got := must[bool](t)(listen.NewFleet(w.Client).Changed(w.ctx, test.empty, test.waiting)); got != test.want {
				t.Errorf("%s: %t, want %t", name, got, test.want)
			}
		}
	})
}

// One queue that somebody damaged, or an eta that is no time, must not hide the others.
func TestPollPassesOverWhatIsDamaged(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.rdb.Set(w.ctx, w.Store().Keys.Pending("list"), "x", 0)
		w.rdb.Set(w.ctx, w.Store().Keys.Scheduled("zset"), "x", 0)
		for queue, eta := range map[string]float64{"micros": 1.7e15, "nanos": 1.7e18} {
			w.rdb.ZAdd(w.ctx, w.Store().Keys.Scheduled(queue), redis.Z{Score: eta, Member: "id"})
		}
		w.enqueue(t, "fine", "", queue.Options{})
		poll := must[listen.Backlogs](t)(listen.NewFleet(w.Client).Backlogs(w.ctx, []string{"list", "zset", "micros", "nanos", "fine"}))
		for _, look := range poll.Queues {
			if look.Pending != map[string]int64{"fine": 1}[look.Queue] || !look.NextETA.IsZero() {
				t.Errorf("%+v", look)
			}
		}
	})
}

// "Now" by hand: whoever sleeps until the next eta must not take it for none.
func TestPollFindsAnETABeforeTheEpoch(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t)
		for _, eta := range []float64{0, -5, math.Inf(-1)} {
			id := w.enqueue(t, "q", "", queue.Options{Delay: time.Hour})
			w.rdb.ZAdd(w.ctx, w.Store().Keys.Scheduled("q"), redis.Z{Score: eta, Member: id})
			next := must[listen.Backlogs](t)(listen.NewFleet(w.Client).Backlogs(w.ctx, []string{"q"})).Queues[0].NextETA
			batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]
			if next.IsZero() || next.After(time.Unix(1, 0)) || !batch.NextETA.Equal(next) {
				t.Errorf("with the score %v the next is due at %s and %s", eta, next, batch.NextETA)
			}
			if n := must[int](t)(enqueueDue(w.ctx, w.Queue("q"))); n != 1 {
				t.Errorf("with the score %v %d are due", eta, n)
			}
			if got := w.reserve(t, node, "q", true); got.ID != id {
				t.Errorf("reserved %s", got.ID)
			}
		}
	})
}

func TestEnqueueDueOfNoQueue(t *testing.T) {
	w := setup(t)
	if _, err := enqueueDue(w.ctx, w.Queue("no queue")); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
