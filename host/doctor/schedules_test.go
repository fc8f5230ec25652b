package doctor_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { os.Exit(queuetest.Main(m)) }

// tenant is one that nothing is wrong with.
func tenant(t *testing.T) (*queue.Client, *redis.Client) {
	t.Helper()
	t.Parallel()
	rdb := queuetest.Shared(t).Client(t)
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	return client, rdb
}

func examine(t *testing.T, client *queue.Client) []doctor.Finding {
	t.Helper()
	findings, err := doctor.Examine(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// A schedule whose queue nobody serves, or whose ticks do not come, is found; a paused one is not.
func TestSchedules(t *testing.T) {
	client, rdb := tenant(t)
	ctx := t.Context()
	node := client.Node()
	err := errors.Join(node.Join(ctx), node.Register(ctx, "served"))
	for id, name := range map[string]string{"fine": "served", "unserved": "nobody", "late": "served", "waits": "served", "paused": "nobody"} {
		s := queue.Schedule{ID: id, Queue: name, Cron: "@daily"}
		if id == "waits" {
			s.Overlap = queue.OverlapQueue
		}
		_, put := client.PutSchedule(ctx, s, false)
		err = errors.Join(err, put)
	}
	err = errors.Join(err, client.PauseSchedule(ctx, "paused"))
	for _, id := range []string{"late", "waits", "paused"} {
		err = errors.Join(err, rdb.HSet(ctx, client.Tenant()+"_schedule_"+id, "next", "1700000000", "last_id", "waits@1699999940").Err())
	}
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range examine(t, client) {
		if len(f.Command) > 2 && f.Command[0] == "schedule" {
			found = append(found, f.Check+" "+f.Command[2]+" "+string(f.Level))
		}
	}
	slices.Sort(found)
	if want := []string{"schedule-late late error", "schedule-late waits warning", "schedule-unserved unserved warning"}; !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}
