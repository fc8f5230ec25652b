package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Paging asks for one page of a list.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Most entries of the page."`
	Cursor string `query:"cursor" maxLength:"1000" doc:"The next of the page before; missing: the first page."`
}

// TenantPage asks for one page of a list of a tenant.
type TenantPage struct {
	InTenant
	Paging
}

// List is a page of a list.
type List[T any] struct {
	Items   []T    `json:"items"`
	Next    string `json:"next,omitempty" doc:"The cursor of the next page; missing: this is the last."`
	Error   string `json:"error,omitempty" doc:"What is wrong with entries that are missing or incomplete."`
	Partial bool   `json:"partial,omitempty" doc:"The search ended before it had seen everything, to spare Redis: go on with next."`
}

// Of is an answer whose body is one value.
type Of[T any] struct{ Body T }

// ListOf is an answer whose body is a list, or a page of a list.
type ListOf[T any] = Of[List[T]]

// listed returns an answer with a whole list, and also err, so that a return statement can pass on both results of a
// call.
func listed[T any](items []T, err error) (*ListOf[T], error) {
	return &ListOf[T]{List[T]{Items: items}}, err
}

// cut returns the page of all that begins after the cursor. all must be sorted by name.
func cut[T any](all []T, p Paging, name func(T) string) *ListOf[T] {
	from, found := slices.BinarySearchFunc(all, p.Cursor,
		func(one T, cursor string) int { return strings.Compare(name(one), cursor) })
	if found {
		from++
	}
	rest := all[from:]
	out := &ListOf[T]{List[T]{Items: append([]T{}, rest[:min(p.Limit, len(rest))]...)}}
	if len(rest) > p.Limit {
		out.Body.Next = name(rest[p.Limit-1])
	}
	return out
}

// cutSized is like cut, for entries that may be large: it also ends a page at pageBytes. shape makes the entry of the
// answer, and returns the size of its JSON in bytes.
func cutSized[T, S any](all []T, p Paging, name func(*T) string, shape func(*T) (S, int)) *ListOf[S] {
	from, found := slices.BinarySearchFunc(all, p.Cursor,
		func(one T, cursor string) int { return strings.Compare(name(&one), cursor) })
	if found {
		from++
	}
	out := &ListOf[S]{List[S]{Items: []S{}}}
	for size := 0; from < len(all); from++ {
		if len(out.Body.Items) == p.Limit || size >= pageBytes {
			out.Body.Next = name(&all[from-1])
			break
		}
		one, bytes := shape(&all[from])
		out.Body.Items, size = append(out.Body.Items, one), size+bytes
	}
	return out
}

// TenantInfo is a tenant that is served here.
type TenantInfo struct {
	Tenant string `json:"tenant"`
	Queues int64  `json:"queues"`
}

// TenantNow is a tenant with the time of its Redis.
type TenantNow struct {
	TenantInfo
	Time float64 `json:"time" doc:"By Redis's clock, which all times are."`
}

// LimitOf asks to set the limit of a queue.
type LimitOf struct {
	InQueue
	Body struct {
		Limit      int64 `json:"limit" minimum:"0" doc:"How many tasks may wait, pending or scheduled; 0: any number."`
		DropOldest bool  `json:"drop_oldest,omitempty" doc:"A new task drops the oldest pending one of a full queue, instead of being refused."`
	}
}

// Load is what a queue has for hosts to do.
type Load struct {
	Waiting int64 `json:"waiting" doc:"Pending tasks."`
	Due     int64 `json:"due" doc:"Scheduled tasks and schedules whose time has come, which hosts make pending; 1,000 of each at most."`
	Running int64 `json:"running" doc:"Reserved and started tasks, also those of a host that died."`
	Load    int64 `json:"load" doc:"The sum, for an autoscaler; 0: no host is needed."`
}

// Purge asks to delete finished tasks of a queue, and chooses them.
type Purge struct {
	InQueue
	Status           string  `query:"status" enum:"complete,failed" doc:"Missing: both."`
	OlderThanSeconds float64 `query:"older_than_seconds" minimum:"0" maximum:"1e9" doc:"Those that finished longer ago."`
	Keep             int64   `query:"keep" minimum:"0" doc:"All but this many of each status, the oldest first."`
	All              bool    `query:"all" doc:"All finished tasks."`
	Foreign          bool    `query:"foreign" doc:"Also tasks that other clients than Quern's enqueued."`
}

// Purged reports how many tasks a purge deleted.
type Purged struct {
	Body struct {
		Tenant  string `json:"tenant"`
		Queue   string `json:"queue"`
		Purged  int    `json:"purged"`
		Partial bool   `json:"partial,omitempty" doc:"There may be more of them: repeat the request."`
	}
}

// maxPurged bounds the tasks that one purge deletes, because each takes about a millisecond.
const maxPurged = 10_000

func (s *service) describeQueues() {
	add(s, looking("/tenants", "list-tenants", "List the tenants that you may see"),
		func(ctx context.Context, in *Paging) (*ListOf[TenantInfo], error) {
			all := []TenantInfo{}
			for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
				if !principal(ctx).sees(name) {
					continue
				}
				n, err := s.tenants[name].CountQueues(ctx)
				if err != nil {
					return nil, err
				}
				all = append(all, TenantInfo{name, n})
			}
			return cut(all, *in, func(t TenantInfo) string { return t.Tenant }), nil
		})
	add(s, looking("/tenants/{tenant}", "show-tenant", "Show a tenant, and what time it is there"),
		func(ctx context.Context, in *InTenant) (*Of[TenantNow], error) {
			t := s.tenants[in.Tenant]
			now, err := t.Clock(ctx)
			if err != nil {
				return nil, err
			}
			n, err := t.CountQueues(ctx)
			return &Of[TenantNow]{TenantNow{TenantInfo{in.Tenant, n}, admin.Seconds(now)}}, err
		})
	type list struct {
		TenantPage
		Busiest bool `query:"busiest" doc:"One page of those with the most pending tasks of priority 50, or the most listeners."`
	}
	add(s, looking("/tenants/{tenant}/queues", "list-queues", "List the queues with the number of their tasks, by name"),
		func(ctx context.Context, in *list) (*ListOf[admin.Queue], error) {
			t := s.tenants[in.Tenant]
			if in.Busiest {
				shapes, _, err := t.BusiestQueues(ctx, in.Limit)
				return listed(shapes, err)
			}
			known, err := t.Queues(ctx)
			if err != nil {
				return nil, err
			}
			page := cut(slices.Sorted(maps.Keys(known)), in.Paging, func(name string) string { return name })
			shapes, err := t.QueueCounts(ctx, page.Body.Items)
			return &ListOf[admin.Queue]{List[admin.Queue]{Items: shapes, Next: page.Body.Next}}, err
		})
	type show struct {
		InQueue
		DeadLetters bool `query:"dead_letters" doc:"Count dead letters as well; of each status it looks at 10,000 tasks at most."`
	}
	add(s, looking("/tenants/{tenant}/queues/{queue}", "show-queue", "Show the number of a queue's tasks"),
		func(ctx context.Context, in *show) (*Of[admin.Queue], error) {
			out, err := s.showQueue(ctx, in.InQueue)
			if err == nil && !out.Body.Paused && out.Body.Limit == 0 && len(out.Body.Pauses) == 0 && out.Body.Error == "" {
				err = s.tenants[in.Tenant].known(ctx, in.Queue)
			}
			if err != nil || !in.DeadLetters {
				return out, err
			}
			letters, buried, err := s.tenants[in.Tenant].Manager.Queue(in.Queue).DeadLetters(ctx)
			out.Body.DeadLetters, out.Body.FailedWithDeadLetter = &letters, &buried
			return out, err
		})
	add(s, looking("/tenants/{tenant}/queues/{queue}/load", "show-load",
		"Count what an autoscaler of hosts asks for; a queue that nobody has used has 0"),
		func(ctx context.Context, in *InQueue) (*Of[Load], error) {
			l, err := s.tenants[in.Tenant].Manager.Queue(in.Queue).Load(ctx)
			return &Of[Load]{Load{l.Waiting, l.Due, l.Running, l.Waiting + l.Due + l.Running}}, err
		})
	add(s, acting(Operator, http.MethodPut, "/tenants/{tenant}/queues/{queue}/limit", "limit-queue",
		"Bound how many tasks may wait; those that wait already stay"),
		func(ctx context.Context, in *LimitOf) (*Of[admin.Queue], error) {
			q := s.tenants[in.Tenant].Queue(in.Queue)
			set, detail := q.SetLimit, "limit=%d"
			if in.Body.DropOldest {
				set, detail = q.SetRollingLimit, "limit=%d drop_oldest"
			}
			callerOf(ctx).detail = fmt.Sprintf(detail, in.Body.Limit)
			if err := set(ctx, in.Body.Limit); err != nil {
				return nil, err
			}
			return s.showQueue(ctx, in.InQueue)
		})
	add(s, acting(Admin, http.MethodPost, "/tenants/{tenant}/queues/{queue}/purge", "purge-queue",
		"Delete finished tasks with their results, logs and histories. Say which: older_than_seconds, keep, or all"),
		s.purge)
}

// showQueue shows a queue, even a queue that nobody has used.
func (s *service) showQueue(ctx context.Context, in InQueue) (*Of[admin.Queue], error) {
	shapes, err := s.tenants[in.Tenant].QueueCounts(ctx, []string{in.Queue})
	if err != nil {
		return nil, err
	}
	return &Of[admin.Queue]{shapes[0]}, nil
}

func (s *service) purge(ctx context.Context, in *Purge) (*Purged, error) {
	t := s.tenants[in.Tenant]
	if err := t.known(ctx, in.Queue); err != nil {
		return nil, err
	}
	if in.All && (in.OlderThanSeconds > 0 || in.Keep > 0) {
		return nil, failed(http.StatusBadRequest, "both all and older_than_seconds or keep are given: leave one of them out")
	}
	purged, err := t.Manager.Queue(in.Queue).Purge(ctx, listen.PurgeOptions{
		Status: queue.Status(in.Status), OlderThan: admin.Period(in.OlderThanSeconds), Keep: in.Keep, Everything: in.All,
		Foreign: in.Foreign, Most: maxPurged,
	})
	if err != nil {
		return nil, err
	}
	out := &Purged{}
	out.Body.Tenant, out.Body.Queue, out.Body.Purged = t.Tenant(), in.Queue, purged
	out.Body.Partial = purged >= maxPurged
	return out, nil
}
