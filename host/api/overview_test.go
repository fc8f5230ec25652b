package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
)

func TestMinutes(t *testing.T) {
	w := setup(t)
	var waits queue.Waits
	waits.Add(90 * time.Millisecond)
	must(t, w.Node().Tally(w.ctx, []queue.Tally{{Queue: "mail", Plugin: "mail", Digest: "ab", Complete: 4, Failed: 2, Waits: waits}}))
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
	found := get[api.List[doctor.Finding]](t, w, "/findings")
	for _, f := range found.Items {
		if f.Check == "queue-unserved" && f.Queue == "nobody" && f.Tenant == w.Tenant() && f.Remedy != "" {
			return
		}
	}
	t.Errorf("%+v", found)
}
