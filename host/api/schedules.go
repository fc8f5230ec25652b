package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// SyncSchedules asks to replace all schedules of an owner.
type SyncSchedules struct {
	InTenant
	Owner  string `query:"owner" required:"true" maxLength:"100" doc:"Whose they are: a word other than hand."`
	DryRun bool   `query:"dry_run" doc:"Only say what would change."`
	Body   struct {
		Schedules []admin.NamedSchedule `json:"schedules" maxItems:"10000"`
	}
}

// ScheduleSync lists the IDs of the schedules by what the sync did to them.
type ScheduleSync struct {
	Body struct {
		New     []string `json:"new,omitempty"`
		Changed []string `json:"changed,omitempty"`
		Same    []string `json:"same,omitempty"`
		Deleted []string `json:"deleted,omitempty" doc:"The owner had them, and they are not in the list."`
	}
}

// InSchedule has the path parameters of every operation on a schedule.
type InSchedule struct {
	InTenant
	Schedule string `path:"schedule" maxLength:"100"`
}

// PutSchedule asks to make or change a schedule.
type PutSchedule struct {
	InSchedule
	Missing bool `query:"missing" doc:"Leave one that exists as it is."`
	Body    admin.ScheduleBody
}

// DeleteSchedule asks to delete a schedule.
type DeleteSchedule struct {
	InSchedule
	Owner string `query:"owner" maxLength:"200" doc:"Only if this is its owner."`
}

func (s *service) describeSchedules() {
	show := func(ctx context.Context, in *InSchedule) (*Of[admin.Schedule], error) {
		found, err := s.tenants[in.Tenant].Schedule(ctx, in.Schedule)
		return &Of[admin.Schedule]{found}, err
	}
	add(s, looking("/tenants/{tenant}/schedules", "list-schedules", "List the schedules with their next ticks, by ID"),
		func(ctx context.Context, in *TenantPage) (*ListOf[admin.Schedule], error) {
			page, next, err := s.tenants[in.Tenant].SchedulePage(ctx, in.Cursor, in.Limit)
			if err != nil {
				return nil, err
			}
			out := &ListOf[admin.Schedule]{List[admin.Schedule]{Items: []admin.Schedule{}, Next: next}}
			for _, one := range page {
				out.Body.Items = append(out.Body.Items, admin.NewSchedule(in.Tenant, one))
			}
			return out, nil
		})
	const path = "/tenants/{tenant}/schedules/{schedule}"
	add(s, looking(path, "show-schedule", "Show a schedule"), show)
	add(s, acting(Operator, http.MethodPut, path, "put-schedule",
		"Make a schedule, or change the one of that ID: hosts follow within a second. At each tick one task is enqueued, with the ID SCHEDULE@SECOND"),
		func(ctx context.Context, in *PutSchedule) (*Of[admin.Schedule], error) {
			schedule, err := in.Body.Schedule(in.Schedule)
			if err != nil {
				return nil, err
			}
			callerOf(ctx).detail = strings.TrimSpace("queue=" + schedule.Queue + " cron=" + schedule.Cron + " " +
				schedule.Timezone)
			put, err := s.tenants[in.Tenant].PutSchedule(ctx, schedule, in.Missing)
			if err != nil {
				return nil, err
			}
			out, err := show(ctx, &in.InSchedule)
			if put == queue.PutSame && !principal(ctx).reads() {
				put = queue.PutChanged // PutSame would confirm a guess of parameters that the principal may not see
			}
			if err == nil {
				out.Body.Put = string(put)
			}
			return out, err
		})
	sync := acting(Operator, http.MethodPut, "/tenants/{tenant}/schedules", "sync-schedules",
		"Make these the only schedules of an owner: the owner's others are deleted, and nobody else's are touched")
	sync.maxBody = maxParameters
	add(s, sync, func(ctx context.Context, in *SyncSchedules) (*ScheduleSync, error) {
		if err := manifest.CheckWord(in.Owner); err != nil || in.Owner == queue.ScheduleByHand {
			return nil, failed(http.StatusBadRequest, "owner %q: use a word other than %s", in.Owner, queue.ScheduleByHand)
		}
		all := make([]queue.Schedule, len(in.Body.Schedules))
		for i := range in.Body.Schedules {
			var err error
			if all[i], err = in.Body.Schedules[i].Schedule(in.Body.Schedules[i].ID); err != nil {
				return nil, err
			}
		}
		callerOf(ctx).detail = fmt.Sprintf("owner=%s schedules=%d dry_run=%t", in.Owner, len(all), in.DryRun)
		done, err := s.tenants[in.Tenant].SyncSchedules(ctx, in.Owner, all, in.DryRun)
		if !principal(ctx).reads() { // for the same reason as in put-schedule
			done.Changed, done.Same = append(done.Changed, done.Same...), nil
		}
		out := &ScheduleSync{}
		out.Body.New, out.Body.Changed, out.Body.Same, out.Body.Deleted = done.New, done.Changed, done.Same, done.Deleted
		return out, err
	})
	change := func(name, summary string, do func(t *tenant, ctx context.Context, id string) error) {
		add(s, acting(Operator, http.MethodPost, path+"/"+name, name+"-schedule", summary),
			func(ctx context.Context, in *InSchedule) (*Of[admin.Schedule], error) {
				if err := do(s.tenants[in.Tenant], ctx, in.Schedule); err != nil {
					return nil, err
				}
				return show(ctx, in)
			})
	}
	change("pause", "Let no tick of a schedule fire", func(t *tenant, ctx context.Context,
		id string,
	) error {
		return t.Pauses().PauseSchedule(ctx, id)
	})
	change("resume", "End a pause; its ticks never come",
		func(t *tenant, ctx context.Context, id string) error { return t.Pauses().ResumeSchedule(ctx, id) })
	add(s, acting(Operator, http.MethodPost, path+"/run", "run-schedule",
		"Enqueue a task of a schedule now, beside its ticks"),
		func(ctx context.Context, in *InSchedule) (*Of[Receipt], error) {
			t := s.tenants[in.Tenant]
			id, err := t.RunSchedule(ctx, in.Schedule)
			if err != nil {
				return nil, err
			}
			task, err := t.Client.Task(ctx, id)
			if err != nil {
				return nil, err
			}
			return &Of[Receipt]{Receipt{ID: id, Tenant: in.Tenant, Queue: task.Queue}}, nil
		})
	add(s, acting(Operator, http.MethodDelete, path, "delete-schedule",
		"Delete a schedule; its tasks stay. One of a plugin's manifest comes back: pause it instead"),
		func(ctx context.Context, in *DeleteSchedule) (*struct{}, error) {
			return nil, s.tenants[in.Tenant].DeleteSchedule(ctx, in.Schedule, in.Owner)
		})
}
