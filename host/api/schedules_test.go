package api_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func TestSchedules(t *testing.T) {
	w := setup(t)
	body := map[string]any{"queue": "reports", "cron": "30 6 * * MON-FRI", "timezone": "Europe/Berlin", "parameters": "all", "priority": 70, "overlap": "skip", "max_attempts": 3}
	put := decode[admin.Schedule](t, w.do(t, request{method: http.MethodPut, path: "/schedules/nightly", body: encode(t, body)}), http.StatusOK)
	if put.ID != "nightly" || put.Owner != "hand" || put.Cron != "30 6 * * MON-FRI" || *put.Parameters != "all" || *put.Priority != 70 || put.Missed != "one" ||
		put.MaxAttempts != 3 || len(put.NextTicks) != 5 || put.Tenant != w.Tenant() {
		t.Errorf("%+v", put)
	}
	if s := post[admin.Schedule](t, w, "/schedules/nightly/pause", nil, http.StatusOK); s.Paused == 0 || len(s.NextTicks) != 0 {
		t.Errorf("%+v", s)
	}
	if s := post[admin.Schedule](t, w, "/schedules/nightly/resume", nil, http.StatusOK); s.Paused != 0 {
		t.Errorf("%+v", s)
	}
	if r := post[api.Receipt](t, w, "/schedules/nightly/run", nil, http.StatusOK); r.Queue != "reports" || r.ID == "" {
		t.Errorf("%+v", r)
	}
	must(t, putSchedule(w, queue.Schedule{ID: "file", Queue: "q", Cron: "of later", Owner: "deploy"}))
	list := get[api.List[admin.Schedule]](t, w, "/schedules?limit=1")
	if len(list.Items) != 1 || list.Items[0].ID != "file" || list.Items[0].Error == "" || list.Next != "file" {
		t.Errorf("%+v", list)
	}
	body["cron"] = "61 * * * *"
	refused(t, w.do(t, request{method: http.MethodPut, path: "/schedules/nightly", body: encode(t, body)}), http.StatusBadRequest, "the minute: end of range (61) above maximum (59): use 0 to 59")
	body["cron"], body["overlap"] = "@daily", "some"
	refused(t, w.do(t, request{method: http.MethodPut, path: "/schedules/nightly", body: encode(t, body)}), http.StatusUnprocessableEntity, "overlap")
	body["overlap"] = "skip"
	refused(t, w.do(t, request{method: http.MethodPut, path: "/schedules/file", body: encode(t, body)}), http.StatusConflict, "deploy")
	refused(t, w.do(t, request{method: http.MethodGet, path: "/schedules/none"}), http.StatusNotFound, "no such schedule")
	if a := w.do(t, request{method: http.MethodDelete, path: "/schedules/nightly"}); a.status != http.StatusNoContent {
		t.Errorf("%d: %s", a.status, a.body)
	}
	entries, err := manage.New(w.Client).AuditLog(w.ctx, "", 100)
	must(t, err)
	actions := map[string]string{}
	for _, e := range entries {
		actions[e.Action] = e.On
	}
	for _, action := range []string{"put-schedule", "pause-schedule", "resume-schedule", "run-schedule", "delete-schedule"} {
		if actions[action] == "" {
			t.Errorf("the audit log has no %s: %v", action, actions)
		}
	}
}

// A schedule that is read and written over the API keeps all of its retry policy.
func TestScheduleRetry(t *testing.T) {
	w := setup(t)
	remote := w.remote(t)
	jitter := false
	want := queue.Retry{
		MaxAttempts: 3, Backoff: queue.Linear, Base: time.Second, Min: 2 * time.Second, Max: time.Minute, Jitter: &jitter,
		MaxAge: time.Hour, MaxReschedules: 4,
	}
	must(t, putSchedule(w, queue.Schedule{ID: "s", Queue: "q", Cron: "@daily", Options: queue.Options{Retry: want}}))
	read, err := remote.Schedule(w.ctx, "s")
	must(t, err)
	read.Cron = "@hourly"
	changed, err := read.ScheduleBody.Schedule("s")
	must(t, err)
	_, err = remote.PutSchedule(w.ctx, changed, false)
	must(t, err)
	s, err := w.Schedule(w.ctx, "s")
	must(t, err)
	if got := s.Options.Retry; s.Cron != "@hourly" || !reflect.DeepEqual(got, want) {
		t.Errorf("%s %+v, want %+v", s.Cron, got, want)
	}
}

func putSchedule(w *world, s queue.Schedule) error {
	_, err := w.PutSchedule(w.ctx, s, false)
	return err
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return text
}
