package upkeep

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// What one host of the fleet tidies in a minute the others do not.
func TestOneHostKeepsHouse(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var hosts []*host
	for range 5 {
		hosts = append(hosts, f.host(f.client))
	}
	if err := f.rdb.ZIncrBy(f.ctx, f.tenant+"_queues", 0, "empty").Err(); err != nil {
		t.Fatal(err)
	}
	keep := func(h *host) int64 {
		return f.server.Calls(t, func() {
			if err := h.Housekeeper.tidyAll(f.ctx); err != nil {
				t.Error(err)
			}
		})["evalsha"] - 1 // one takes the duty
	}
	if scripts := keep(hosts[0]); scripts != 1 { // for all queues, of which none has anything to purge
		t.Errorf("the first ran %d scripts", scripts)
	}
	for _, h := range hosts {
		if scripts := keep(h); scripts != 0 {
			t.Errorf("another ran %d scripts in the same minute", scripts)
		}
	}
	if queues, err := f.client.Queues(f.ctx); err != nil || len(queues) != 20 || !strings.Contains(f.log.String(), "forgot an empty queue: queue=empty") {
		t.Errorf("%d queues, %v", len(queues), err)
	}
	duty := f.tenant + "_duty_purge"
	if left := f.rdb.TTL(f.ctx, duty).Val(); left <= 0 || left > time.Minute {
		t.Errorf("the duty ends in %s", left)
	}
	f.rdb.Del(f.ctx, duty) // the minute is over
	if scripts := keep(hosts[1]); scripts != 1 {
		t.Errorf("in the next minute %d scripts ran", scripts)
	}
}

// Entries of tasks that are gone leave their list, also where all tasks are kept.
func TestStaleEntriesGo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h, list := f.host(f.client), f.tenant+"_complete_tasks_q00"
	h.Housekeeper.Purge = listen.PurgeOptions{}
	f.rdb.HSet(f.ctx, f.tenant+"_task_kept", "status", "complete", "queue", "q00", "run", "1", "updated", "1600000000")
	for i := range 2000 {
		f.rdb.LPush(f.ctx, list, fmt.Sprint("gone", i))
	}
	f.rdb.RPush(f.ctx, list, "kept") // the oldest
	f.rdb.HSet(f.ctx, f.tenant+"_stats_q00", "stale:complete", "2000")
	if err := h.Housekeeper.tidyAll(f.ctx); err != nil {
		t.Error(err)
	}
	if left := f.rdb.LRange(f.ctx, list, 0, -1).Val(); len(left) != 1 || left[0] != "kept" {
		t.Errorf("%d entries are left", len(left))
	}
}
