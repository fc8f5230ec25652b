package admin

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/taskjson"
)

// shownTicks is the number of next ticks that NewSchedule adds to a schedule.
const shownTicks = 5

// ScheduleBody has the fields of a schedule that its author chooses.
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
	taskjson.TaskKeys
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

// NamedSchedule is a schedule in a list of schedules to store.
type NamedSchedule struct {
	ID string `json:"id" maxLength:"100"`
	ScheduleBody
}

// NewSchedule converts a schedule to the form that operators see, and adds its next ticks.
func NewSchedule(tenant string, s *queue.Schedule) Schedule {
	next, err := nextTicks(s, shownTicks)
	shape := Schedule{
		ID: s.ID, Tenant: tenant, Owner: s.Owner, Paused: Seconds(s.Paused), Last: Seconds(s.Last), LastID: s.LastID,
		Fired: s.Fired, Skipped: s.Skipped, MissedTicks: s.MissedTicks, Created: Seconds(s.Created),
		Updated: Seconds(s.Updated), Absent: Seconds(s.Absent),
		ScheduleBody: ScheduleBodyOf(s),
	}
	for _, tick := range next {
		shape.NextTicks = append(shape.NextTicks, Seconds(tick))
	}
	if err != nil {
		shape.Error = err.Error()
	}
	return shape
}

// nextTicks lists the next count ticks of a schedule, in the schedule's time zone. It lists none if the schedule is
// paused or no host has the schedule's plugin. The error says why the cron expression or the time zone cannot be read.
func nextTicks(s *queue.Schedule, count int) (ticks []time.Time, err error) {
	rule, err := cron.Parse(s.Cron, s.Timezone)
	if err != nil || !s.Paused.IsZero() || !s.Absent.IsZero() {
		return nil, err
	}
	zone, err := cron.Zone(s.Timezone)
	if err != nil {
		return nil, err
	}
	tick := s.Next
	if tick.IsZero() {
		tick = rule.Next(s.Since)
	}
	for ; len(ticks) < count && !tick.IsZero(); tick = rule.Next(tick) {
		ticks = append(ticks, tick.In(zone))
	}
	return ticks, nil
}

// Redact removes the parameters.
func (s *Schedule) Redact(v View) {
	if !v.Payloads {
		s.Parameters, s.ParametersBase64 = nil, nil
	}
}

// ScheduleBodyOf returns the body of a schedule.
func ScheduleBodyOf(s *queue.Schedule) ScheduleBody {
	rest := s.Options.Retry
	rest.MaxAge = 0 // the body has MaxAge in MaxAgeSeconds
	body := ScheduleBody{
		Queue: s.Queue, Cron: s.Cron, Timezone: s.Timezone, Missed: string(s.Missed), MaxMissed: s.MaxMissed,
		WindowSeconds: s.Window.Seconds(),
		Overlap:       string(s.Overlap), Priority: s.Options.Priority, TimeoutSeconds: s.Options.Timeout.Seconds(),
		MaxAttempts: s.Options.Retry.MaxAttempts, MaxAgeSeconds: s.Options.Retry.MaxAge.Seconds(), Retry: NewRetry(rest),
		Labels: s.Options.Labels, TaskKeys: taskjson.TaskKeysOf(&s.Options),
	}
	body.Parameters, body.ParametersBase64 = Payload(s.Parameters)
	return body
}

// Policy returns the retry policy that the body sets.
func (b *ScheduleBody) Policy() queue.Retry {
	retry := b.Retry.Policy()
	retry.MaxAttempts, retry.MaxAge = b.MaxAttempts, cmp.Or(Period(b.MaxAgeSeconds), retry.MaxAge)
	return retry
}

// Schedule converts the body to a schedule with the given ID.
func (b *ScheduleBody) Schedule(id string) (queue.Schedule, error) {
	if _, err := cron.Parse(b.Cron, b.Timezone); err != nil {
		return queue.Schedule{}, fmt.Errorf("%w: %w", queue.ErrInvalid, err)
	}
	s := queue.Schedule{
		ID: id, Queue: b.Queue, Cron: b.Cron, Timezone: b.Timezone, Parameters: b.ParametersBase64,
		Options: queue.Options{
			Priority: b.Priority, Timeout: Period(b.TimeoutSeconds), Labels: b.Labels, Retry: b.Policy(),
		},
		Missed: queue.Missed(b.Missed), MaxMissed: b.MaxMissed, Window: Period(b.WindowSeconds),
		Overlap: queue.Overlap(b.Overlap),
	}
	b.Apply(&s.Options)
	switch {
	case b.Parameters != nil && b.ParametersBase64 != nil:
		return s, fmt.Errorf("%w: both parameters and parameters_base64: give one of them", queue.ErrInvalid)
	case b.Parameters != nil:
		s.Parameters = []byte(*b.Parameters)
	}
	return s, nil
}
