package queue_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func TestUnique(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name          string
			first, second queue.Spec
			existed       bool // while the first one waits
			after         bool // when it is finished
		}{
			{"parameters", queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}, queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}, true, false},
			{"other-parameters", queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}, queue.Spec{[]byte("y"), queue.Options{Unique: &queue.Unique{}}}, false, false},
			{"key", queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{Key: "k"}}}, queue.Spec{[]byte("y"), queue.Options{Unique: &queue.Unique{Key: "k"}}}, true, false},
			{"other-key", queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{Key: "k"}}}, queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{Key: "l"}}}, false, false},
			{"for-a-time", queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{For: time.Minute}}}, queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{For: time.Minute}}}, true, true},
			{"scheduled", queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{}, Delay: time.Hour}}, queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}, true, false},
			{"not", queue.Spec{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}, queue.Spec{[]byte("x"), queue.Options{}}, false, false},
		} {
			q := w.Queue(c.name)
			first := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{c.first}))[0]
			second := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{c.second}))[0]
			if first.Existed || second.Existed != c.existed || (second.ID == first.ID) != c.existed {
				t.Errorf("%s: %+v, then %+v", c.name, first, second)
			}
			if !c.existed {
				continue
			}
			if _, err := q.Cancel(w.ctx, first.ID); err != nil {
				t.Fatal(err)
			}
			third := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{c.second}))[0]
			if third.Existed != c.after {
				t.Errorf("%s: when the first is finished %+v", c.name, third)
			}
			if err := q.Delete(w.ctx, first.ID); err != nil {
				t.Fatal(err)
			}
			if c.after { // and what is deleted holds nothing
				third = must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{c.second}))[0]
			}
			if fourth := must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, []queue.Spec{c.second}))[0]; !fourth.Existed || fourth.ID != third.ID {
				t.Errorf("%s: who took over holds it: %+v, then %+v", c.name, third, fourth)
			}
			w.depth(t, c.name, map[queue.Status]int64{queue.Pending: 1})
		}
		// Other queues are others, and a repeat by ID is a repeat.
		a := must[[]queue.Receipt](t)(w.Queue("a").EnqueueMany(w.ctx, []queue.Spec{{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}}))[0]
		b := must[[]queue.Receipt](t)(w.Queue("b").EnqueueMany(w.ctx, []queue.Spec{{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}}))[0]
		again := must[[]queue.Receipt](t)(w.Queue("a").EnqueueMany(w.ctx, []queue.Spec{{[]byte("x"), queue.Options{Unique: &queue.Unique{}, ID: a.ID}}}))[0]
		if b.Existed || !again.Existed || again.ID != a.ID {
			t.Errorf("%+v, %+v, %+v", a, b, again)
		}
	})
}

func TestUniqueLives(t *testing.T) {
	w := setup(t)
	for name, c := range map[string]struct {
		unique queue.Unique
		ttl    time.Duration
	}{"settled": {queue.Unique{}, store.UniqueLife}, "time": {queue.Unique{For: 1500 * time.Millisecond}, 2 * time.Second}} {
		w.enqueue(t, name, "x", queue.Options{Unique: &c.unique})
		ttl := w.rdb.TTL(w.ctx, w.Store().Keys.Unique(name, c.unique.Hash(name, []byte("x")))).Val()
		if ttl > c.ttl || ttl < c.ttl-time.Minute || ttl <= 0 {
			t.Errorf("%s lives %s", name, ttl)
		}
	}
	for _, wrong := range []time.Duration{-1, time.Millisecond, 200 * 365 * 24 * time.Hour} {
		if _, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{Unique: &queue.Unique{For: wrong}}); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("for %s: %v", wrong, err)
		}
	}
}

// Whoever is first, all get the one ID.
func TestUniqueOfManyAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		var group sync.WaitGroup
		receipts := make([]queue.Receipt, 20)
		for i := range receipts {
			group.Go(func() {
				got, err := w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{{[]byte("x"), queue.Options{Unique: &queue.Unique{}}}})
				if err != nil {
					t.Error(err)
					return
				}
				receipts[i] = got[0]
			})
		}
		group.Wait()
		written := 0
		for _, receipt := range receipts {
			if receipt.ID != receipts[0].ID {
				t.Errorf("%+v, %+v", receipt, receipts[0])
			}
			if !receipt.Existed {
				written++
			}
		}
		if written != 1 {
			t.Errorf("%d were written", written)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 1})
	})
}

func TestListOfAKey(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		var cancelled []string
		for i := range 3 {
			w.at(float64(i))
			id := w.enqueue(t, "q", "x", queue.Options{ID: fmt.Sprint("z", 9-i), Key: "order 7"})
			if _, err := q.Cancel(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			cancelled = append([]string{id}, cancelled...)
		}
		byKey := append([]string{w.enqueue(t, "q", "y", queue.Options{Key: "order 7"})}, cancelled...)
		w.enqueue(t, "q", "y", queue.Options{Key: "order 70"})
		list := func(o manage.ListOptions) []string {
			return idsOf(must[[]*queue.Task](t)(manage.QueueOf(q).List(w.ctx, o)))
		}
		slices.SortStableFunc(byKey, func(a, b string) int { return w.task(t, b).Created.Compare(w.task(t, a).Created) })
		if got := list(manage.ListOptions{Key: "order 7"}); len(got) != 4 || !slices.Equal(got[2:], byKey[2:]) {
			t.Errorf("by key %v, want %v", got, byKey)
		}
		if got := list(manage.ListOptions{Key: "order 7", Status: queue.Failed, Offset: 1, Limit: 1}); !slices.Equal(got, cancelled[1:2]) {
			t.Errorf("a page of what failed: %v", got)
		}
		for _, id := range cancelled {
			if err := q.Delete(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		if got := list(manage.ListOptions{Key: "order 7"}); len(got) != 1 {
			t.Errorf("after deleting %v", got)
		}
		if n := w.rdb.ZCard(w.ctx, w.Store().Keys.Keyed("q")).Val(); n != 2 {
			t.Errorf("%d entries of keys are left", n)
		}
	})
}

// The index is by ID, and the page by age: all of a key's tasks are looked at.
func TestListOfAKeyWithManyTasks(t *testing.T) {
	w := setup(t)
	q := w.Queue("q")
	const tasks = 2500
	w.at(0)
	specs := make([]queue.Spec, tasks-1)
	for i := range specs {
		specs[i] = queue.Spec{nil, queue.Options{ID: fmt.Sprintf("a%05d", i), Key: "k"}}
	}
	must[[]queue.Receipt](t)(q.EnqueueMany(w.ctx, specs))
	w.at(1)
	w.enqueue(t, "q", "", queue.Options{ID: "z", Key: "k"})
	var all []string
	for offset := 0; offset <= tasks; offset += store.MaxPage {
		all = append(all, idsOf(must[[]*queue.Task](t)(manage.QueueOf(q).List(w.ctx, manage.ListOptions{Key: "k", Offset: offset, Limit: store.MaxPage})))...)
	}
	slices.Sort(all[1:])
	if len(all) != tasks || all[0] != "z" || len(slices.Compact(all)) != tasks {
		t.Errorf("%d tasks, the newest is %s", len(all), all[0])
	}
	whole := 0 // of the tasks that are read with all that a list shows
	w.rdb.AddHook(spy(func(cmds ...redis.Cmder) {
		for _, cmd := range cmds {
			if cmd.Name() == "hmget" && len(cmd.Args()) > 4 {
				whole++
			}
		}
	}))
	if page := must[manage.TaskPage](t)(manage.QueueOf(q).Page(w.ctx, manage.ListOptions{Key: "k", Offset: 7, Limit: 10})); len(page.Tasks) != 10 || page.Read != tasks || page.End || whole != 10 {
		t.Errorf("a page of %d tasks (the last: %v) took %d entries and %d tasks", len(page.Tasks), page.End, page.Read, whole)
	}
	if page := must[manage.TaskPage](t)(manage.QueueOf(q).Page(w.ctx, manage.ListOptions{Key: "k", Offset: tasks - 10, Limit: 10})); len(page.Tasks) != 10 || !page.End {
		t.Errorf("the last page has %d tasks: %v", len(page.Tasks), page.End)
	}
	for _, c := range []struct {
		options manage.ListOptions
		want    int
	}{
		{manage.ListOptions{Offset: 1200, Limit: 10}, 10},
		{manage.ListOptions{Offset: 2495, Limit: 10}, 5},
		{manage.ListOptions{Offset: math.MaxInt, Limit: 10}, 0},
		{manage.ListOptions{Status: queue.Complete}, 0},
	} {
		c.options.Key = "k"
		if got := must[[]*queue.Task](t)(manage.QueueOf(q).List(w.ctx, c.options)); len(got) != c.want {
			t.Errorf("%+v: %d", c.options, len(got))
		}
	}
}

func TestLabels(t *testing.T) {
	w := setup(t)
	labels := make(map[string]string)
	for i := range queue.MaxLabels + 1 {
		if _, err := w.Queue("labels").Enqueue(w.ctx, nil, queue.Options{Labels: labels}); err != nil {
			t.Errorf("%d labels: %v", i, err)
		}
		labels[fmt.Sprint(i)] = ""
	}
	if _, err := w.Queue("labels").Enqueue(w.ctx, nil, queue.Options{Labels: labels}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("17 labels: %v", err)
	}
}

func TestLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		q := w.Queue("q")
		if err := q.SetLimit(w.ctx, 3); err != nil || must[int64](t)(q.Limit(w.ctx)) != 3 {
			t.Fatal(err)
		}
		high := 80
		for i, options := range []queue.Options{{ID: "a", Unique: &queue.Unique{}}, {ID: "b", Delay: time.Hour}, {ID: "c", Priority: &high}} {
			if _, err := q.Enqueue(w.ctx, fmt.Append(nil, i), options); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range map[string]struct {
			specs []queue.Spec
			full  bool
		}{
			"one more":         {[]queue.Spec{{}}, true},
			"scheduled":        {[]queue.Spec{{Options: queue.Options{Delay: time.Hour}}}, true},
			"one that exists":  {[]queue.Spec{{Options: queue.Options{ID: "a"}}, {Options: queue.Options{ID: "b"}}, {Options: queue.Options{ID: "c"}}}, false},
			"that and another": {[]queue.Spec{{Options: queue.Options{ID: "a"}}, {}}, true},
			"unique":           {[]queue.Spec{{[]byte("0"), queue.Options{Unique: &queue.Unique{}}}}, false},
		} {
			_, err := q.EnqueueMany(w.ctx, c.specs)
			if errors.Is(err, queue.ErrQueueFull) != c.full || !c.full && err != nil || queue.IsUnavailable(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 2, queue.Scheduled: 1})
		// What is tried again is not counted, and what runs does not wait.
		got := w.reserve(t, w.node(t, "q"), "q", true)
		twice := queue.Spec{Options: queue.Options{ID: "twice"}}
		if _, err := q.EnqueueMany(w.ctx, []queue.Spec{twice, twice}); got.ID != "c" || err != nil {
			t.Errorf("%s, %v", got.ID, err)
		}
		if err := q.SetLimit(w.ctx, 0); err != nil || must[int64](t)(q.Limit(w.ctx)) != 0 {
			t.Error(err)
		}
		w.enqueue(t, "q", "", queue.Options{})
		if err := q.SetLimit(w.ctx, -1); !errors.Is(err, queue.ErrInvalid) {
			t.Error(err)
		}
	})
}
