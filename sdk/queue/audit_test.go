package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func TestAudit(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if got := must[[]manage.AuditEntry](t)(manage.New(w.Client).AuditLog(w.ctx, "", 10)); len(got) != 0 {
			t.Errorf("nothing was done, and the log has %+v", got)
		}
		if _, err := manage.New(w.Client).AuditLog(w.ctx, "1-2-3", 1); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("a wrong ID: %v", err)
		}
		before := must[time.Time](t)(w.Clock(w.ctx)).Add(-time.Second) // miniredis has another clock for streams
		for i := range 5 {
			e := manage.AuditEntry{Who: fmt.Sprint("who", i), Action: "pause-queue", On: "queue q", From: "192.0.2.1", Status: 200, Detail: "\xff" + strings.Repeat("x", 2000)}
			if err := manage.New(w.Client).Audit(w.ctx, e); err != nil {
				t.Fatal(err)
			}
		}
		first := must[[]manage.AuditEntry](t)(manage.New(w.Client).AuditLog(w.ctx, "", 2))
		rest := must[[]manage.AuditEntry](t)(manage.New(w.Client).AuditLog(w.ctx, first[1].ID, 10))
		if len(first) != 2 || first[0].Who != "who4" || len(rest) != 3 || rest[0].Who != "who2" {
			t.Errorf("first %+v, then %+v", first, rest)
		}
		if e := rest[2]; e.Action != "pause-queue" || e.On != "queue q" || e.From != "192.0.2.1" || e.Status != 200 ||
			len(e.Detail) != manage.AuditText || e.Time.Before(before) {
			t.Errorf("%+v", e)
		}
	})
}
