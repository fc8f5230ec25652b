package upkeep

import (
	"strings"
	"testing"
	"time"
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
