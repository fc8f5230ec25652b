package api

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/page"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Minute has the tasks that hosts counted in one minute.
type Minute struct {
	Time     float64  `json:"time" doc:"When it began."`
	Complete int64    `json:"complete" doc:"Tasks."`
	Failed   int64    `json:"failed" doc:"Runs that failed, with those that are tried again, without cancelled ones."`
	WaitP50  *float64 `json:"wait_p50_seconds,omitempty" doc:"What half of the tasks that started had waited at most, true to a factor of two."`
	WaitP95  *float64 `json:"wait_p95_seconds,omitempty" doc:"The same of 95 %."`
}

// Minutes are the last minutes of one queue, or of all queues.
type Minutes struct {
	Items   []Minute `json:"items" doc:"Oldest first; the last is not over."`
	WaitP50 *float64 `json:"wait_p50_seconds,omitempty" doc:"Of the last 5 minutes together."`
	WaitP95 *float64 `json:"wait_p95_seconds,omitempty"`
}

// Version counts how the tasks of a version of a plugin ended.
type Version struct {
	Plugin   string `json:"plugin"`
	Digest   string `json:"digest"`
	Version  string `json:"version,omitempty" doc:"The name that its manifest gives it."`
	Release  int    `json:"release,omitempty" doc:"The number of the release that it is; none for files of a plugin directory."`
	Complete int64  `json:"complete"`
	Failed   int64  `json:"failed" doc:"Runs, with those that are tried again."`
}

// describeOverview registers the operations that show the state of the fleet. It also sets s.page.
func (s *service) describeOverview() {
	s.page = page.New().Serve
	add(s, looking("/tenants/{tenant}/findings", "list-findings",
		"List what is wrong now, as `quern doctor` finds it, at most some seconds ago"),
		func(ctx context.Context, in *InTenant) (*ListOf[doctor.Finding], error) {
			return listed(s.tenants[in.Tenant].findings.of(ctx, s.tenants[in.Tenant].Client))
		})
	type minutes struct {
		InTenant
		Queue   string `query:"queue" maxLength:"128" doc:"Only of this queue; missing: of all."`
		Minutes int    `query:"minutes" minimum:"1" maximum:"360" default:"180"`
	}
	add(s, looking("/tenants/{tenant}/minutes", "list-minutes",
		"Show what tasks ended as, and how long they had waited, minute by minute, as hosts count it"),
		func(ctx context.Context, in *minutes) (*Of[Minutes], error) {
			read, err := s.tenants[in.Tenant].Minutes(ctx, in.Queue, in.Minutes)
			out := &Of[Minutes]{}
			var recent listen.Waits
			for i, m := range read {
				if i >= len(read)-5 {
					recent.Merge(m.Waits)
				}
				out.Body.Items = append(out.Body.Items, Minute{
					admin.Seconds(m.Begin), m.Complete, m.Failed,
					quantile(&m.Waits, 0.5), quantile(&m.Waits, 0.95),
				})
			}
			out.Body.WaitP50, out.Body.WaitP95 = quantile(&recent, 0.5), quantile(&recent, 0.95)
			return out, err
		})
	add(s, looking("/tenants/{tenant}/versions", "list-versions",
		"Show what the tasks of each version of a plugin ended as in this hour and the one before"),
		func(ctx context.Context, in *InTenant) (*ListOf[Version], error) {
			read, err := s.tenants[in.Tenant].Manager.Versions(ctx)
			list := make([]Version, len(read))
			for i, v := range read {
				list[i] = Version(v)
			}
			return listed(list, err)
		})
}

// quantile returns a quantile of the waits, in seconds, or nil if no task started.
func quantile(waits *listen.Waits, share float64) *float64 {
	wait, ok := waits.Quantile(share)
	if !ok {
		return nil
	}
	seconds := wait.Seconds()
	return &seconds
}

// findingsAge is the maximum age of the doctor's findings: a tenant is examined at most once in this time, however many
// clients ask.
const findingsAge = 5 * time.Second

// findings keeps what the doctor last found in a tenant.
type findings struct {
	mu    sync.Mutex // guards the fields below, and is held while the doctor examines
	at    time.Time
	found []doctor.Finding
}

func (f *findings) of(ctx context.Context, client *queue.Client) ([]doctor.Finding, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < findingsAge {
		return f.found, nil
	}
	found, err := doctor.Examine(ctx, client)
	if err == nil {
		f.at, f.found = time.Now(), found
	}
	return found, err
}

// below returns a handler that serves next, and also serves it below the path base, for a proxy that does not strip
// that path. If base is empty, it returns next. Addresses in answers are relative, so they are right in both places.
func below(base string, next http.Handler) http.Handler {
	base = strings.TrimSuffix(base, "/")
	if base == "" {
		return next
	}
	stripped := http.StripPrefix(base, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == base:
			http.Redirect(w, r, base+"/", http.StatusPermanentRedirect) // the page's own addresses are relative
		case strings.HasPrefix(r.URL.Path, base+"/"):
			stripped.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
