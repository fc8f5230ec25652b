package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// What several hosts count adds up by minute, for each queue and for all, and by version.
func TestTally(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.Store().Clock = "1700000059.500000"
		var fast, slow listen.Waits
		fast.Add(3 * time.Millisecond)
		slow.Add(10 * time.Second)
		tallies := []listen.Tally{
			{Queue: "mail", Plugin: "mail and more", Digest: "ab", Version: "1.5.0", Complete: 3, Failed: 1, Waits: fast},
			{Queue: "mail", Plugin: "mail and more", Digest: "ab", Version: "2.0.0", Release: 2, Failed: 2}, // only the manifest is another one
			{Queue: "slow", Plugin: "slow", Digest: "cd", Complete: 1, Waits: slow},
		}
		for range 2 {
			if err := listen.New(w.Client).Tally(w.ctx, tallies); err != nil {
				t.Fatal(err)
			}
		}
		w.Store().Clock = "1700000160.000000" // the minute after the next one
		if err := listen.New(w.Client).Tally(w.ctx, tallies[:1]); err != nil {
			t.Fatal(err)
		}
		all := must[[]manage.Minute](t)(manage.New(w.Client).Minutes(w.ctx, "", 3))
		mail := must[[]manage.Minute](t)(manage.New(w.Client).Minutes(w.ctx, "mail", 3))
		if len(all) != 3 || all[0].Complete != 8 || all[0].Failed != 6 || all[1] != (manage.Minute{Begin: all[1].Begin}) || all[2].Complete != 3 || all[2].Begin.Unix() != 1700000160/60*60 {
			t.Errorf("all queues: %+v", all)
		}
		if len(mail) != 3 || mail[0].Complete != 6 || mail[2].Complete != 3 {
			t.Errorf("one queue: %+v", mail)
		}
		if p50, ok := all[0].Waits.Quantile(0.5); !ok || p50 > 4*time.Millisecond || p50 <= 2*time.Millisecond {
			t.Errorf("half waited %s at most", p50)
		}
		if p95, ok := all[0].Waits.Quantile(0.95); !ok || p95 > 20*time.Second || p95 < 5*time.Second {
			t.Errorf("95 %% waited %s at most", p95)
		}
		if _, ok := all[1].Waits.Quantile(0.5); ok {
			t.Error("a minute without tasks has a wait")
		}
		recent := must[[]manage.Minute](t)(manage.New(w.Client).Recent(w.ctx, 3, "slow", "mail", "none"))
		if recent[0].Complete != 2 || recent[1].Complete != 9 || recent[1].Failed != 7 || recent[2].Complete != 0 {
			t.Errorf("recently: %+v", recent)
		}
		versions := must[[]manage.VersionTally](t)(manage.New(w.Client).Versions(w.ctx))
		if fmt.Sprint(versions) != "[{mail and more ab 1.5.0 0 9 3} {mail and more ab 2.0.0 2 0 4} {slow cd  0 2 0}]" {
			t.Errorf("versions: %v", versions)
		}
		w.Store().Clock = "1700007200.000000"
		if versions := must[[]manage.VersionTally](t)(manage.New(w.Client).Versions(w.ctx)); len(versions) != 0 {
			t.Errorf("two hours later: %v", versions)
		}
	})
}

// The counts of a minute take a bounded amount of memory, however many queues there are, and end by themselves. The totals are
// complete all the same.
func TestTallyBound(t *testing.T) {
	w := setup(t)
	node := listen.New(w.Client)
	now := must[time.Time](t)(w.Clock(w.ctx))
	w.Store().Clock = store.Seconds(now)
	for block := range 130 {
		var tallies []listen.Tally
		for i := range 8 {
			name := fmt.Sprintf("%s%d-%d", strings.Repeat("q", 100), block, i)
			tallies = append(tallies, listen.Tally{Queue: name, Plugin: name, Digest: "ab", Version: "1", Complete: 1, Failed: 1})
		}
		if err := node.Tally(w.ctx, tallies); err != nil {
			t.Fatal(err)
		}
	}
	minute, hour := w.Store().Keys.Minute(fmt.Sprint(now.Unix()/60)), w.Store().Keys.Hour(fmt.Sprint(now.Unix()/3600))
	for key, life := range map[string]time.Duration{minute: store.KeptMinutes * time.Minute, hour: store.KeptHours * time.Hour} {
		if n, ttl := w.rdb.HLen(w.ctx, key).Val(), w.rdb.TTL(w.ctx, key).Val(); n != store.TallyFields || ttl <= 0 || ttl > life {
			t.Errorf("%s has %d fields and lasts %s", key, n, ttl)
		}
	}
	if all := must[[]manage.Minute](t)(manage.New(w.Client).Minutes(w.ctx, "", 1)); all[0].Complete != 1040 || all[0].Failed != 1040 {
		t.Errorf("%+v", all)
	}
	if used := w.rdb.MemoryUsage(w.ctx, minute).Val(); used > 1<<20 {
		t.Errorf("a minute takes %d bytes", used)
	}
}

// A damaged count is an error, and harms nothing else.
func TestTallyDamaged(t *testing.T) {
	w := setup(t)
	w.Store().Clock = "1700000000.000000"
	w.rdb.Set(w.ctx, w.Store().Keys.Minute("28333333"), "x", 0)
	if err := listen.New(w.Client).Tally(w.ctx, []listen.Tally{{Queue: "q", Complete: 1}}); err == nil || !strings.Contains(err.Error(), "_minute_28333333 is a string") {
		t.Errorf("a minute of another type: %v", err)
	}
	if _, err := manage.New(w.Client).Minutes(w.ctx, "q", 1); err == nil {
		t.Error("a minute of another type can be read")
	}
}
