package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// While all keys have tasks, each gets its share by weight, at every moment to within one turn; the tasks without a key
// are one key. A key that comes later waits for one turn, not for the backlog.
func TestFairKeysTakeTurns(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		weights := map[string]int{"big": 1, "double": 2, "half": 1, "": 1}
		for key, count := range map[string]int{"big": 120, "double": 60, "half": 30, "": 30} {
			var specs []queue.Spec
			for i := range count {
				options := queue.Options{ID: fmt.Sprintf("%s-%03d", key, i), FairKey: key}
				if key != "" {
					options.FairWeight = weights[key]
				}
				specs = append(specs, queue.Spec{Options: options})
			}
			must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		}
		node := w.node(t, "q")
		got, order := make(map[string]int), make(map[string]string)
		next := func(count int) {
			for _, claim := range w.reserveMany(t, node, "q", count, true) {
				key, _, _ := strings.Cut(claim.ID, "-")
				if got[key]++; claim.ID < order[key] {
					t.Errorf("%s after %s", claim.ID, order[key])
				}
				order[key] = claim.ID
			}
		}
		for taken := 1; taken <= 100; taken++ {
			next(1)
			for key, weight := range weights {
				if share := float64(taken*weight) / 5; float64(got[key]) < share-2 || float64(got[key]) > share+2 {
					t.Fatalf("of %d tasks %q got %d, want %.1f", taken, key, got[key], share)
				}
			}
		}
		w.enqueue(t, "q", "", queue.Options{ID: "late-000", FairKey: "late"})
		next(8)
		if got["late"] != 1 {
			t.Errorf("the late key waits: %v", got)
		}
		next(240 - 100 + 1 - 8)
		if want := map[string]int{"big": 120, "double": 60, "half": 30, "": 30, "late": 1}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "q", Count: 1}})[0]; batch.Err != nil || len(batch.Tasks) != 0 {
			t.Error(batch)
		}
		k := w.Store().Keys
		if n := w.rdb.Exists(w.ctx, k.Fair("050", "q"), k.Turns("050", "q"), k.Priorities("q")).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// Priorities come first, and fairness within them; a released task is the next one; a cancelled backlog costs its key
// nothing.
func TestFairKeysAndTheRest(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		high := 80
		for _, options := range []queue.Options{
			{ID: "a1", FairKey: "a"},
			{ID: "a2", FairKey: "a"},
			{ID: "a3", FairKey: "a"},
			{ID: "b1", FairKey: "b"},
			{ID: "ha", FairKey: "a", Priority: &high},
			{ID: "h", Priority: &high},
		} {
			w.enqueue(t, "q", "", options)
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Pending: 6})
		var listed []string
		for offset := range 6 {
			for _, task := range must[[]*queue.Task](t)(manage.QueueOf(w.Queue("q")).List(w.ctx, manage.ListOptions{Status: queue.Pending, Offset: offset, Limit: 1})) {
				listed = append(listed, task.ID)
			}
		}
		if want := []string{"a3", "a2", "b1", "a1", "ha", "h"}; !slices.Equal(listed, want) {
			t.Errorf("listed %v, want %v", listed, want)
		}
		node := w.node(t, "q")
		ids := func(claims []listen.Claim) (ids []string) {
			for _, claim := range claims {
				ids = append(ids, claim.ID)
			}
			return ids
		}
		first := w.reserveMany(t, node, "q", 4, true)
		if got := ids(first); !slices.Equal(got, []string{"h", "ha", "a1", "b1"}) && !slices.Equal(got, []string{"ha", "h", "a1", "b1"}) {
			t.Errorf("reserved %v", got)
		}
		if errs, err := node.Release(w.ctx, "q", []listen.Claim{first[3], first[2]}); err != nil || errors.Join(errs...) != nil {
			t.Fatal(errs, err)
		}
		if got := ids(w.reserveMany(t, node, "q", 2, true)); !slices.Equal(got, []string{"a1", "b1"}) {
			t.Errorf("released tasks come as %v", got)
		}
		for _, id := range []string{"a2", "a3"} {
			must[bool](t)(w.Queue("q").Cancel(w.ctx, id))
		}
		for i := range 3 {
			w.enqueue(t, "q", "", queue.Options{ID: fmt.Sprint("c", i), FairKey: "c"})
		}
		w.enqueue(t, "q", "", queue.Options{ID: "a4", FairKey: "a"})
		if got := ids(w.reserveMany(t, node, "q", 2, true)); !slices.Contains(got, "a4") {
			t.Errorf("after a cancel %v come first", got)
		}
		if task := w.task(t, "a4"); task.FairKey != "a" || task.FairWeight != 1 {
			t.Errorf("%+v", task)
		}
	})
}

// The older of two tasks comes first, whether it waited in line or in the list: a lane with a long line keeps nobody
// waiting, and loses nothing.
func TestLanesAndOtherTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for i, options := range []queue.Options{
			{ID: "a1", ConcurrencyKey: "a"},
			{ID: "a2", ConcurrencyKey: "a"},
			{ID: "p3"},
			{ID: "p4"},
			{ID: "a5", ConcurrencyKey: "a"},
			{ID: "a6", ConcurrencyKey: "a"},
			{ID: "p7"},
		} {
			w.at(float64(i))
			w.enqueue(t, "q", "", options)
		}
		if task := w.task(t, "a5"); task.ConcurrencyKey != "a" || task.MaxConcurrent != 1 || !task.InLine || task.Status != queue.Pending {
			t.Errorf("%+v", task)
		}
		node := w.node(t, "q")
		var order []string
		for range 7 {
			claim := w.reserveMany(t, node, "q", 1, true)[0]
			order = append(order, claim.ID)
			w.settle(t, node, "q", listen.Settlement{Claim: claim})
		}
		// a2 is older than p3. a5 is not, so it comes after what waits then.
		if want := []string{"a1", "a2", "p3", "p4", "p7", "a5", "a6"}; !slices.Equal(order, want) {
			t.Errorf("the order is %v, want %v", order, want)
		}
	})
}

// The rule of a queue gives its tasks a concurrency key, unless they have one themselves: tasks of producers, children,
// ticks and dead letters.
func TestConcurrencyRule(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		rule := func(rule string) {
			w.rdb.HSet(w.ctx, w.Store().Keys.Limits(), "concurrency q", rule)
		}
		lane := func(options queue.Options) string {
			task := w.task(t, w.enqueue(t, "q", "", options))
			if task.ConcurrencyKey == "" {
				return ""
			}
			return fmt.Sprint(task.MaxConcurrent, " ", task.ConcurrencyKey)
		}
		for name, test := range map[string]struct {
			rule    string
			options queue.Options
			want    string
		}{
			"queue":            {"2 queue", queue.Options{}, "2 queue"},
			"own":              {"2 queue", queue.Options{ConcurrencyKey: "own"}, "1 own"},
			"key":              {"1 key", queue.Options{Key: "the key"}, "1 the key"},
			"no key":           {"1 key", queue.Options{}, ""},
			"fair key":         {"3 fair_key", queue.Options{FairKey: "x y", FairWeight: 7}, "3 x y"},
			"label":            {`1 label "customer":`, queue.Options{Labels: map[string]string{"customer": "acme"}}, "1 acme"},
			"label between":    {`1 label "b":`, queue.Options{Labels: map[string]string{"a": `,"b":"no"`, "b": "yes", "c": "d"}}, "1 yes"},
			"label with quote": {`1 label "a":`, queue.Options{Labels: map[string]string{"a": `x\"y\`, "b": "z"}}, `1 x\\\"y\\`},
			"no label":         {`1 label "c":`, queue.Options{Labels: map[string]string{"a": "c"}}, ""},
			"empty label":      {`1 label "c":`, queue.Options{Labels: map[string]string{"c": ""}}, ""},
			"damaged":          {`zero`, queue.Options{}, ""},
		} {
			rule(test.rule)
			if got := lane(test.options); got != test.want {
				t.Errorf("%s: lane %q, want %q", name, got, test.want)
			}
		}
		rule("1 queue")
		parent := w.enqueue(t, "parents", "", queue.Options{Dead: "q"})
		node := w.node(t, "parents")
		got := w.reserve(t, node, "parents", true)
		w.settle(t, node, "parents", listen.Settlement{Claim: got.Claim(), Failure: &queue.Failure{Reason: queue.ReasonTrap}})
		if letter := w.task(t, w.task(t, parent).DeadID); letter.ConcurrencyKey != "queue" {
			t.Errorf("letter %+v", letter)
		}
		w.enqueue(t, "parents", "", queue.Options{})
		child := listen.Child{Queue: "q", Spec: queue.Spec{Options: queue.Options{ID: "child"}}}
		got = w.reserve(t, node, "parents", true)
		w.settle(t, node, "parents", listen.Settlement{Claim: got.Claim(), Children: []listen.Child{child}})
		if task := w.task(t, "child"); task.ConcurrencyKey != "queue" {
			t.Errorf("child %+v", task)
		}
	})
}

// The rules of all queues are read without the other limits, however many these are.
func TestConcurrencyRules(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		rules, limits := listen.NewRules(w.Client), make(map[string]any)
		for i := range 3000 {
			limits[fmt.Sprint("q", i)] = 1
		}
		w.rdb.HSet(w.ctx, w.Store().Keys.Limits(), limits)
		want := map[string]string{"a": "1 key", "b": "2 queue"}
		for name, rule := range want {
			must[queue.Put](t)(rules.Declare(w.ctx, name, rule, false))
		}
		must[bool](t)(rules.Note(w.ctx, "b", false, 0))
		if got := must[map[string]string](t)(rules.All(w.ctx)); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// A lane is repaired when the task that has a place in it was ended by a client that does not know of lanes.
func TestLanesAreChecked(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const places = store.LaneChecks + 20
		var specs []queue.Spec
		for i := range places + 3 {
			specs = append(specs, queue.Spec{Options: queue.Options{ID: fmt.Sprintf("%03d", i), ConcurrencyKey: "a", MaxConcurrent: places}})
		}
		for i := range 2 * store.LaneChecks {
			specs = append(specs, queue.Spec{Options: queue.Options{ID: fmt.Sprint("x", i), ConcurrencyKey: fmt.Sprint("lane ", i/2)}})
		}
		must[[]queue.Receipt](t)(w.Queue("q").EnqueueMany(w.ctx, specs))
		inLine := func() int64 { return must[int64](t)(w.rdb.ZCard(w.ctx, w.Store().Keys.Line("q")).Result()) }
		if n := inLine(); n != 3+store.LaneChecks {
			t.Fatalf("%d tasks wait in line", n)
		}
		check := func() {
			t.Helper()
			if forgotten, err := recount(w.ctx, w.Queue("q")); forgotten || err != nil {
				t.Fatal(forgotten, err)
			}
		}
		check()
		if n := inLine(); n != 3+store.LaneChecks {
			t.Fatalf("the check let in %d", 3+store.LaneChecks-n)
		}
		w.rdb.Del(w.ctx, w.Store().Keys.Task("000"))
		w.rdb.HSet(w.ctx, w.Store().Keys.Task(fmt.Sprintf("%03d", places-1)), "status", "complete")
		w.rdb.HSet(w.ctx, w.Store().Keys.Task("x8"), "status", "failed")
		check()
		if n := inLine(); n != 1+store.LaneChecks-1 {
			t.Fatalf("%d tasks wait in line", n)
		}
		if task := w.task(t, "x9"); task.InLine {
			t.Error("x9 waits")
		}
	})
}

// A plain enqueue and a plain reserve cost what they cost before tasks had fairness keys and concurrency keys.
func TestPlainTasksPayNothingForKeys(t *testing.T) {
	t.Parallel()
	w := setupOwn(t)
	node := w.node(t, "q")
	commands := func(do func()) map[string]int {
		t.Helper()
		w.rdb.ConfigResetStat(w.ctx)
		do()
		calls := make(map[string]int)
		for line := range strings.Lines(must[string](t)(w.rdb.Info(w.ctx, "commandstats").Result())) {
			name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			var n int
			if _, err := fmt.Sscanf(rest, "%d,", &n); ok && err == nil && !slices.Contains([]string{"config|resetstat", "info", "evalsha", "eval"}, name) {
				calls[name] = n
			}
		}
		return calls
	}
	enqueue := func() { w.enqueue(t, "q", "x", queue.Options{}) }
	reserve := func() { w.reserve(t, node, "q", true) }
	enqueue()
	reserve()
	if got, want := commands(enqueue), map[string]int{
		"hmget": 1, "time": 1, "exists": 1, "hset": 1, "zadd": 2, "lpush": 1, "hincrby": 1, "publish": 1,
	}; !maps.Equal(got, want) {
		t.Errorf("enqueue takes %v, want %v", got, want)
	}
	if got, want := commands(reserve), map[string]int{
		"type": 10, "zscore": 1, "time": 1, "zrange": 1, "smismember": 1, "hget": 2, "hmget": 2, "smembers": 1, "rpoplpush": 1, "hset": 1, "sadd": 1,
	}; !maps.Equal(got, want) {
		t.Errorf("reserve takes %v, want %v", got, want)
	}
}

// A key that is damaged refuses what needs it, and names itself.
func TestDamagedLanes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, key := range []string{w.Store().Keys.Lanes("q"), w.Store().Keys.Line("q")} {
			w.rdb.Set(w.ctx, key, "x", 0)
			_, err := w.Queue("q").Enqueue(w.ctx, nil, queue.Options{ID: "id", ConcurrencyKey: "a"})
			if !errors.Is(err, queue.ErrDamaged) || !strings.Contains(err.Error(), key) || w.rdb.Exists(w.ctx, w.Store().Keys.Task("id")).Val() != 0 {
				t.Errorf("%s: %v", key, err)
			}
			w.rdb.Del(w.ctx, key)
		}
		id := w.enqueue(t, "q", "", queue.Options{FairKey: "a"})
		w.rdb.Rename(w.ctx, w.Store().Keys.Fair("050", "q"), "saved"+w.Store().Keys.Tenant)
		w.rdb.Set(w.ctx, w.Store().Keys.Fair("050", "q"), "x", 0)
		plain := w.enqueue(t, "q", "", queue.Options{FairKey: "a"})
		node := w.node(t, "q")
		if got := w.reserve(t, node, "q", true); got.ID != plain {
			t.Errorf("reserved %s", got.ID)
		}
		w.rdb.Rename(w.ctx, "saved"+w.Store().Keys.Tenant, w.Store().Keys.Fair("050", "q"))
		if got := w.reserve(t, node, "q", true); got.ID != id {
			t.Errorf("reserved %s", got.ID)
		}
	})
}

func TestRefusedShareOptions(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	for word, options := range map[string]queue.Options{
		"fair key of 257":           {FairKey: long},
		"concurrency key of 257":    {ConcurrencyKey: long},
		"fair weight 1001":          {FairKey: "a", FairWeight: 1001},
		"fair weight -1":            {FairKey: "a", FairWeight: -1},
		"without a fair key":        {FairWeight: 2},
		"max concurrent 1000001":    {ConcurrencyKey: "a", MaxConcurrent: 1_000_001},
		"without a concurrency key": {MaxConcurrent: 2},
		"not UTF-8":                 {FairKey: "\xff"},
	} {
		if err := options.Validate(); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// Expiry sees the tasks with a fairness key and those in line, also by the age that a manifest sets.
func TestExpiryOfKeyedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		for i := range 20 {
			w.enqueue(t, "q", "", queue.Options{FairKey: fmt.Sprint(i % 3)})
			w.enqueue(t, "q", "", queue.Options{ConcurrencyKey: fmt.Sprint(i % 3)})
		}
		w.at(100)
		if n, err := expire(w.ctx, w.Queue("q"), 200*time.Second, ""); n != 0 || err != nil {
			t.Errorf("%d expired: %v", n, err)
		}
		left := 40
		for range 100 {
			n, err := expire(w.ctx, w.Queue("q"), 50*time.Second, "")
			if err != nil {
				t.Fatal(err)
			}
			if left -= n; left == 0 {
				break
			}
		}
		w.depth(t, "q", map[queue.Status]int64{queue.Failed: 40})
		k := w.Store().Keys
		if n := w.rdb.Exists(w.ctx, k.Lanes("q"), k.Line("q"), k.Fair("050", "q")).Val(); n != 0 || left != 0 {
			t.Errorf("%d tasks, %d keys are left", left, n)
		}
	})
}

// Empty queues are deleted with their turns; a queue with tasks in line only is not empty.
func TestRecountOfKeyedTasks(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		k := w.Store().Keys
		id := w.enqueue(t, "q", "", queue.Options{FairKey: "a"})
		must[bool](t)(w.Queue("q").Cancel(w.ctx, id))
		if err := w.Queue("q").Delete(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if forgotten := must[bool](t)(recount(w.ctx, w.Queue("q"))); !forgotten || len(w.rdb.Keys(w.ctx, k.Tenant+"_*").Val()) != 0 {
			t.Errorf("forgotten %v, left are %v", forgotten, w.names(t))
		}
		w.rdb.ZAdd(w.ctx, k.Queues(), redis.Z{Member: "q"})
		w.rdb.ZAdd(w.ctx, k.Line("q"), redis.Z{Member: strings.Repeat("0", 40) + " 000000000001 id"})
		w.rdb.ZAdd(w.ctx, k.Lanes("q"), redis.Z{Member: strings.Repeat("0", 40) + " other"})
		w.rdb.HSet(w.ctx, k.Task("other"), "status", "started", "queue", "q", "lane", "1 x")
		if forgotten := must[bool](t)(recount(w.ctx, w.Queue("q"))); forgotten {
			t.Error("forgotten with a line")
		}
	})
}
