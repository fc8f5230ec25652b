package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// shownTicks is how many ticks that are to come a schedule is shown with.
const shownTicks = 5

// ScheduleBody is a schedule as it is made.
type ScheduleBody struct {
	Queue            string            `json:"queue" minLength:"1" maxLength:"128"`
	Cron             string            `json:"cron" minLength:"1" maxLength:"256" doc:"Minute, hour, day of the month, month and day of the week; or six fields with the seconds first, @daily, or @every 90s."`
	Timezone         string            `json:"timezone,omitempty" maxLength:"256" doc:"By whose clock, such as Europe/Berlin; missing: UTC."`
	Parameters       *string           `json:"parameters,omitempty" maxLength:"65536"`
	ParametersBase64 []byte            `json:"parameters_base64,omitempty" doc:"Instead of parameters, if they are not UTF-8."`
	Missed           string            `json:"missed,omitempty" enum:"skip,one,all" doc:"Which ticks are fired that came while no host ran; missing: one, the last."`
	MaxMissed        int               `json:"max_missed,omitempty" minimum:"0" maximum:"1000" doc:"How many, with missed all; missing: 100."`
	WindowSeconds    float64           `json:"window_seconds,omitempty" minimum:"0" maximum:"1e9" doc:"Ticks missed longer ago are not fired; missing: none is too old."`
	Overlap          string            `json:"overlap,omitempty" enum:"skip,queue,allow" doc:"What becomes of a tick before the task of the last one has finished; missing: allow."`
	Priority         *int              `json:"priority,omitempty" minimum:"0" maximum:"100"`
	TimeoutSeconds   float64           `json:"timeout_seconds,omitempty" minimum:"0" maximum:"1e9" doc:"Of each attempt."`
	MaxAttempts      int               `json:"max_attempts,omitempty" minimum:"-1" maximum:"1000000" doc:"-1: no bound."`
	MaxAgeSeconds    float64           `json:"max_age_seconds,omitempty" minimum:"0" maximum:"1e9"`
	Retry            *Retry            `json:"retry,omitempty" doc:"The rest of the retry policy; max_age_seconds goes before that of retry."`
	Labels           map[string]string `json:"labels,omitempty"`
}

// Schedule is a recurring task.
type Schedule struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	ScheduleBody
	Put         string    `json:"put,omitempty" enum:"new,changed,same,kept" doc:"What became of it by this request; who may not see parameters is told changed for same."`
	Owner       string    `json:"owner" doc:"hand, the name of a file's owner, or plugin NAME for one of a manifest."`
	Paused      float64   `json:"paused,omitempty" doc:"Since when; missing: it is not."`
	Error       string    `json:"error,omitempty" doc:"Why hosts cannot read it."`
	NextTicks   []float64 `json:"next_ticks,omitempty"`
	Last        float64   `json:"last,omitempty" doc:"The last tick with a task."`
	LastID      string    `json:"last_id,omitempty" doc:"That task."`
	Fired       int64     `json:"fired" doc:"Ticks with a task."`
	Skipped     int64     `json:"skipped" doc:"Ticks passed over because the task before had not finished."`
	MissedTicks int64     `json:"missed_ticks" doc:"Ticks passed over because no host was there."`
	Created     float64   `json:"created,omitempty"`
	Updated     float64   `json:"updated,omitempty"`
	Absent      float64   `json:"absent,omitempty" doc:"Since when no host has the plugin that owns it."`
}

// Schedule is the schedule of sdk/queue that the shape shows.
func (s *Schedule) Schedule() (*queue.Schedule, error) {
	shown, err := s.ScheduleBody.schedule(s.ID)
	shown.Owner = s.Owner
	shown.ScheduleState = queue.ScheduleState{
		Paused: Moment(s.Paused), Last: Moment(s.Last), LastID: s.LastID, Fired: s.Fired, Skipped: s.Skipped, MissedTicks: s.MissedTicks,
		Created: Moment(s.Created), Updated: Moment(s.Updated), Absent: Moment(s.Absent),
	}
	if len(s.NextTicks) > 0 {
		shown.Next = Moment(s.NextTicks[0])
	}
	return &shown, err
}

// ScheduleBodyOf is what a schedule says.
func ScheduleBodyOf(s *queue.Schedule) ScheduleBody {
	rest := s.Options.Retry
	rest.MaxAge = 0 // which has a field of its own
	body := ScheduleBody{
		Queue: s.Queue, Cron: s.Cron, Timezone: s.Timezone, Missed: string(s.Missed), MaxMissed: s.MaxMissed, WindowSeconds: s.Window.Seconds(),
		Overlap: string(s.Overlap), Priority: s.Options.Priority, TimeoutSeconds: s.Options.Timeout.Seconds(),
		MaxAttempts: s.Options.Retry.MaxAttempts, MaxAgeSeconds: s.Options.Retry.MaxAge.Seconds(), Retry: retryShape(rest), Labels: s.Options.Labels,
	}
	body.Parameters, body.ParametersBase64 = payload(s.Parameters, len(s.Parameters))
	return body
}

// NamedSchedule is a schedule in a list of those that are to be stored.
type NamedSchedule struct {
	ID string `json:"id" maxLength:"100"`
	ScheduleBody
}

// SyncSchedules are the schedules of an owner.
type SyncSchedules struct {
	InTenant
	Owner  string `query:"owner" required:"true" maxLength:"100" doc:"Whose they are: a word other than hand."`
	DryRun bool   `query:"dry_run" doc:"Only say what would change."`
	Body   struct {
		Schedules []NamedSchedule `json:"schedules" maxItems:"10000"`
	}
}

// ScheduleSync is what became of them, by ID.
type ScheduleSync struct {
	Body struct {
		New     []string `json:"new,omitempty"`
		Changed []string `json:"changed,omitempty"`
		Same    []string `json:"same,omitempty"`
		Deleted []string `json:"deleted,omitempty" doc:"The owner had them, and they are not in the list."`
	}
}

// InSchedule is in every path below a schedule.
type InSchedule struct {
	InTenant
	Schedule string `path:"schedule" maxLength:"100"`
}

// PutSchedule makes or changes a schedule.
type PutSchedule struct {
	InSchedule
	Missing bool `query:"missing" doc:"Leave one that exists as it is."`
	Body    ScheduleBody
}

// DeleteSchedule names a schedule that is to be deleted.
type DeleteSchedule struct {
	InSchedule
	Owner string `query:"owner" maxLength:"200" doc:"Only if this is its owner."`
}

func scheduleShape(tenant string, s *queue.Schedule, who *Principal) Schedule {
	next, err := host.NextTicks(s, shownTicks)
	shape := Schedule{
		ID: s.ID, Tenant: tenant, Owner: s.Owner, Paused: stamp(s.Paused), Last: stamp(s.Last), LastID: s.LastID,
		Fired: s.Fired, Skipped: s.Skipped, MissedTicks: s.MissedTicks, Created: stamp(s.Created), Updated: stamp(s.Updated), Absent: stamp(s.Absent),
		ScheduleBody: ScheduleBodyOf(s),
	}
	if !who.reads() {
		shape.Parameters, shape.ParametersBase64 = nil, nil
	}
	for _, tick := range next {
		shape.NextTicks = append(shape.NextTicks, stamp(tick))
	}
	if err != nil {
		shape.Error = err.Error()
	}
	return shape
}

// NewSchedule shows all of a schedule.
func NewSchedule(tenant string, s *queue.Schedule) Schedule {
	return scheduleShape(tenant, s, everyone)
}

// checked is what a request asks for.
func (b *ScheduleBody) checked(id string) (queue.Schedule, error) {
	if _, err := cron.Parse(b.Cron, b.Timezone); err != nil {
		return queue.Schedule{}, failed(http.StatusBadRequest, "%v", err)
	}
	return b.schedule(id)
}

func (b *ScheduleBody) schedule(id string) (queue.Schedule, error) {
	retry := b.Retry.policy()
	retry.MaxAttempts, retry.MaxAge = b.MaxAttempts, cmp.Or(period(b.MaxAgeSeconds), retry.MaxAge)
	s := queue.Schedule{
		ID: id, Queue: b.Queue, Cron: b.Cron, Timezone: b.Timezone, Parameters: b.ParametersBase64,
		Options: queue.Options{
			Priority: b.Priority, Timeout: period(b.TimeoutSeconds), Labels: b.Labels, Retry: retry,
		},
		Missed: queue.Missed(b.Missed), MaxMissed: b.MaxMissed, Window: period(b.WindowSeconds), Overlap: queue.Overlap(b.Overlap),
	}
	switch {
	case b.Parameters != nil && b.ParametersBase64 != nil:
		return s, failed(http.StatusBadRequest, "both parameters and parameters_base64: give one of them")
	case b.Parameters != nil:
		s.Parameters = []byte(*b.Parameters)
	}
	return s, nil
}

func (s *service) describeSchedules() {
	show := func(ctx context.Context, in *InSchedule) (*Of[Schedule], error) {
		found, err := s.tenants[in.Tenant].Schedule(ctx, in.Schedule)
		if err != nil {
			return nil, err
		}
		return &Of[Schedule]{scheduleShape(in.Tenant, found, principal(ctx))}, nil
	}
	add(s, looking("/tenants/{tenant}/schedules", "list-schedules", "List the schedules with their next ticks, by ID"),
		func(ctx context.Context, in *TenantPage) (*ListOf[Schedule], error) {
			page, next, err := s.tenants[in.Tenant].SchedulePage(ctx, in.Cursor, in.Limit)
			if err != nil {
				return nil, err
			}
			out := &ListOf[Schedule]{List[Schedule]{Items: []Schedule{}, Next: next}}
			for _, one := range page {
				out.Body.Items = append(out.Body.Items, scheduleShape(in.Tenant, one, principal(ctx)))
			}
			return out, nil
		})
	const path = "/tenants/{tenant}/schedules/{schedule}"
	add(s, looking(path, "show-schedule", "Show a schedule"), show)
	add(s, acting(Operator, http.MethodPut, path, "put-schedule",
		"Make a schedule, or change the one of that ID: hosts follow within a second. At each tick one task is enqueued, with the ID SCHEDULE@SECOND"),
		func(ctx context.Context, in *PutSchedule) (*Of[Schedule], error) {
			schedule, err := in.Body.checked(in.Schedule)
			if err != nil {
				return nil, err
			}
			callerOf(ctx).detail = strings.TrimSpace("queue=" + schedule.Queue + " cron=" + schedule.Cron + " " + schedule.Timezone)
			put, err := s.tenants[in.Tenant].PutSchedule(ctx, schedule, in.Missing)
			if err != nil {
				return nil, err
			}
			out, err := show(ctx, &in.InSchedule)
			if put == queue.PutSame && !principal(ctx).reads() {
				put = queue.PutChanged // or who guesses its parameters would learn that they are right
			}
			if err == nil {
				out.Body.Put = string(put)
			}
			return out, err
		})
	sync := acting(Operator, http.MethodPut, "/tenants/{tenant}/schedules", "sync-schedules", "Make these the only schedules of an owner: the owner's others are deleted, and nobody else's are touched")
	sync.maxBody = maxParameters
	add(s, sync, func(ctx context.Context, in *SyncSchedules) (*ScheduleSync, error) {
		if err := manifest.CheckWord(in.Owner); err != nil || in.Owner == queue.ScheduleByHand {
			return nil, failed(http.StatusBadRequest, "owner %q: use a word other than %s", in.Owner, queue.ScheduleByHand)
		}
		all := make([]queue.Schedule, len(in.Body.Schedules))
		for i := range in.Body.Schedules {
			var err error
			if all[i], err = in.Body.Schedules[i].checked(in.Body.Schedules[i].ID); err != nil {
				return nil, err
			}
		}
		callerOf(ctx).detail = fmt.Sprintf("owner=%s schedules=%d dry_run=%t", in.Owner, len(all), in.DryRun)
		done, err := s.tenants[in.Tenant].SyncSchedules(ctx, in.Owner, all, in.DryRun)
		if !principal(ctx).reads() { // as for one
			done.Changed, done.Same = append(done.Changed, done.Same...), nil
		}
		out := &ScheduleSync{}
		out.Body.New, out.Body.Changed, out.Body.Same, out.Body.Deleted = done.New, done.Changed, done.Same, done.Deleted
		return out, err
	})
	change := func(name, summary string, do func(t *tenant, ctx context.Context, id string) error) {
		add(s, acting(Operator, http.MethodPost, path+"/"+name, name+"-schedule", summary),
			func(ctx context.Context, in *InSchedule) (*Of[Schedule], error) {
				if err := do(s.tenants[in.Tenant], ctx, in.Schedule); err != nil {
					return nil, err
				}
				return show(ctx, in)
			})
	}
	change("pause", "Let no tick of a schedule fire", func(t *tenant, ctx context.Context, id string) error { return t.PauseSchedule(ctx, id) })
	change("resume", "End a pause; its ticks never come", func(t *tenant, ctx context.Context, id string) error { return t.ResumeSchedule(ctx, id) })
	add(s, acting(Operator, http.MethodPost, path+"/run", "run-schedule", "Enqueue a task of a schedule now, beside its ticks"),
		func(ctx context.Context, in *InSchedule) (*Of[Receipt], error) {
			t := s.tenants[in.Tenant]
			id, err := t.RunSchedule(ctx, in.Schedule)
			if err != nil {
				return nil, err
			}
			task, err := t.Task(ctx, id)
			if err != nil {
				return nil, err
			}
			return &Of[Receipt]{Receipt{ID: id, Tenant: in.Tenant, Queue: task.Queue}}, nil
		})
	add(s, acting(Operator, http.MethodDelete, path, "delete-schedule", "Delete a schedule; its tasks stay. One of a plugin's manifest comes back: pause it instead"),
		func(ctx context.Context, in *DeleteSchedule) (*struct{}, error) {
			return nil, s.tenants[in.Tenant].DeleteSchedule(ctx, in.Schedule, in.Owner)
		})
}
