package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func TestMinutes(t *testing.T) {
	w := setup(t)
	var waits listen.Waits
	waits.Add(90 * time.Millisecond)
	must(t, listen.New(w.Client).Tally(w.ctx, []listen.Tally{{Queue: "mail", Plugin: "mail", Digest: "ab", Complete: 4, Failed: 2, Waits: waits}}))
	sum := func(m api.Minutes) (complete, failed int64) {
		for _, minute := range m.Items {
			complete, failed = complete+minute.Complete, failed+minute.Failed
		}
		return complete, failed
	}
	for path, want := range map[string]int64{"/minutes?minutes=3": 4, "/minutes?minutes=3&queue=mail": 4, "/minutes?minutes=3&queue=other": 0} {
		m := get[api.Minutes](t, w, path)
		if complete, failed := sum(m); len(m.Items) != 3 || complete != want || failed != want/2 {
			t.Errorf("%s: %+v", path, m)
		}
		if p95 := m.WaitP95; want > 0 && (p95 == nil || *p95 < 0.064 || *p95 > 0.128) || want == 0 && p95 != nil {
			t.Errorf("%s: p95 %v", path, p95)
		}
	}
	if versions := get[api.List[api.Version]](t, w, "/versions"); len(versions.Items) != 1 || versions.Items[0] != (api.Version{Plugin: "mail", Digest: "ab", Complete: 4, Failed: 2}) {
		t.Errorf("%+v", versions)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/minutes?minutes=999"}), http.StatusUnprocessableEntity, "minutes")
}

func TestFindings(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "nobody", "x", queue.Options{})
	now, err := w.Clock(w.ctx)
	must(t, err)
	for _, name := range []string{"mended", "failing"} { // some minutes ago both failed
		w.enqueue(t, name, "x", queue.Options{})
		must(t, w.rdb.HSet(w.ctx, fmt.Sprintf("%s_minute_%d", w.Tenant(), now.Unix()/60-5), "failed "+name, 30).Err())
	}
	must(t, listen.New(w.Client).Tally(w.ctx, []listen.Tally{{Queue: "mended", Plugin: "p", Digest: "ab", Complete: 4}}))
	found := get[api.List[doctor.Finding]](t, w, "/findings").Items
	for of, want := range map[[2]string]bool{{"queue-unserved", "nobody"}: true, {"queue-failing", "failing"}: true, {"queue-failing", "mended"}: false} {
		if got := slices.ContainsFunc(found, func(f doctor.Finding) bool {
			return f.Check == of[0] && f.Queue == of[1] && f.Tenant == w.Tenant() && f.Remedy != ""
		}); got != want {
			t.Errorf("%v: %v of %+v", of, got, found)
		}
	}
}
