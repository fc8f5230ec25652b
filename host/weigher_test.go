package host

import (
	"maps"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// A host takes the weights that a tenant has in Redis, and takes changes at a message; an invalid one counts as 1 and is logged
// once.
func TestWeights(t *testing.T) {
	t.Parallel()
	n := start(t, settings{guests: map[string][]byte{"empty": runtimetest.Empty(t)}, idle: true})
	key := n.tenant + "_quotas"
	set := func(values ...any) {
		t.Helper()
		if err := n.rdb.HSet(n.ctx, key, values...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	weighs := func(want int) {
		t.Helper()
		n.eventually("the weight is known", func() bool {
			n.rdb.Publish(n.ctx, n.tenant+"_control", "")
			return n.scheduler.Shares()[n.tenant].Weight == want
		})
	}
	set("weight", 3, "weight:empty", 20, "weight:a:b", 1000, "weightless", "x", "tasks_waiting", 5)
	weights, err := listen.ReadWeights(n.ctx, n.client)
	if want := map[string]int{"empty": 20, "a:b": 1000}; err != nil || weights.Tenant != 3 || !maps.Equal(weights.Queues, want) ||
		len(weights.Invalid) > 0 {
		t.Errorf("%+v, %v", weights, err)
	}
	n.run()
	weighs(3)
	for _, value := range []string{"0", "1001", "-1", "3.5", "", "three"} {
		set("weight", value, "weight:q", value)
		weights, err := listen.ReadWeights(n.ctx, n.client)
		if err != nil || weights.Tenant != 1 || weights.Queues["q"] != 1 || len(weights.Invalid) != 2 {
			t.Errorf("%q: %+v, %v", value, weights, err)
		}
	}
	weighs(1)
	for weight := 4; weight < 6; weight++ { // read at least twice
		set("weight:q", "four", "weight", weight)
		weighs(weight)
	}
	if lines := n.log.lines("a weight is invalid", "weight:q", "value=four"); lines != 1 {
		t.Errorf("logged %d times", lines)
	}
	if err := n.rdb.Del(n.ctx, key).Err(); err != nil {
		t.Fatal(err)
	}
	weighs(1)
	if err := n.rdb.Set(n.ctx, key, "not a hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	n.wait(n.enqueue("empty", "")) // the host works on
}
