package doctor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
)

// A task that is open for ever, and tasks whose dependencies nobody looks at, are found; those that wait as they should are not.
func TestFlows(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	node := client.Node()
	err := errors.Join(node.Join(ctx), node.Register(ctx, "served"))
	for _, options := range []queue.Options{{ID: "first"}, {ID: "next", After: []string{"first"}}, {ID: "batch", Open: true}, {ID: "forgotten", Open: true}} {
		_, failed := client.Queue("served").Enqueue(ctx, nil, options)
		err = errors.Join(err, failed)
	}
	look := func() (found []string) {
		for _, f := range examine(t, client) {
			if strings.HasPrefix(f.Check, "flow-") {
				found = append(found, fmt.Sprint(f.Check, " ", f.Level, " ", f.Queue, " ", f.Command))
			}
		}
		slices.Sort(found)
		return found
	}
	if found := look(); err != nil || len(found) > 0 {
		t.Fatalf("found %q, %v", found, err)
	}
	err = errors.Join(
		rdb.HSet(ctx, client.Tenant()+"_task_forgotten", "updated", "1700000000").Err(),
		rdb.ZAdd(ctx, client.Tenant()+"_blocked_served", redis.Z{Member: "next", Score: 1700000000}).Err(),
	)
	want := []string{"flow-open warning served [task await forgotten --close]", "flow-unseen error served []"}
	if found := look(); err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, want %q, %v", found, want, err)
	}
}
