package listen

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Due has the schedules whose next tick is due.
type Due struct {
	Schedules []*queue.Schedule
	Clock     time.Time // Redis's time
	Next      time.Time // when the next schedule after these is due; zero if there is none
}

// DueSchedules reads up to limit schedules that are due, and fewer if they are large. The schedule that has been due
// for longest comes first.
func (f *Fleet) DueSchedules(ctx context.Context, limit int64) (Due, error) {
	c := f.client
	var clock *redis.TimeCmd
	var ticks *redis.ZSliceCmd
	_, err := c.Store().RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		ticks = p.ZRangeWithScores(ctx, c.Store().Keys.Ticks(), 0, limit)
		return nil
	})
	if err != nil {
		return Due{}, store.Wrap("read ticks "+c.Store().Keys.Ticks(), err)
	}
	due := Due{Clock: clock.Val()}
	if c.Store().Clock != "" {
		due.Clock = store.ParseSeconds(c.Store().Clock)
	}
	var ids []string
	for _, z := range ticks.Val() {
		id, _ := z.Member.(string)
		at := store.ParseETA(strconv.FormatFloat(z.Score, 'f', 6, 64))
		if z.Score > float64(due.Clock.UnixMicro())/1e6 || int64(len(ids)) == limit {
			due.Next = at
			break
		}
		ids = append(ids, id)
	}
	found, read, err := c.ReadSchedules(ctx, ids)
	due.Schedules = found
	for _, id := range ids[:read] { // the next call reads the other IDs
		if err == nil && !slices.ContainsFunc(due.Schedules, func(s *queue.Schedule) bool { return s.ID == id }) {
			_ = c.DeleteSchedule(ctx, id, "") // its hash was deleted by hand
		}
	}
	return due, err
}

// TickEnd is the result of Tick.
type TickEnd string

// The results of Tick.
const (
	TickFired   TickEnd = "fired"   // the task was enqueued
	TickPlanned TickEnd = "planned" // there was no tick to fire
	TickSkipped TickEnd = "skipped" // no task, because the task of the tick before has not finished
	TickBusy    TickEnd = "busy"    // the tick waits, because the task of the tick before has not finished
	TickFull    TickEnd = "full"    // the tick waits for room in the queue, or for the tenant to have fewer queues
	TickEarly   TickEnd = "early"   // the tick is not due yet
	TickChanged TickEnd = "changed" // the schedule has changed since it was read, or another host was first
)

// PostponeTick makes hosts leave a due schedule alone for the given pause. It is for a schedule whose plugin is absent,
// or which this host could not fire.
func (f *Fleet) PostponeTick(ctx context.Context, s *queue.Schedule, pause time.Duration) error {
	c := f.client
	_, err := c.Store().Eval(ctx, store.NewCall("tick", c.Store().Keys.Ticks(), c.Store().Clock, s.ID, s.Revision,
		s.Stored, "later", 0, 0, "", pause.Seconds()))
	return store.Wrap("postpone schedule "+s.ID, err)
}

// busyPause is how long hosts leave a waiting tick alone before they check it again.
const busyPause = time.Second

// PassedTicks counts ticks that are not fired. Skipped ticks came while an earlier tick waited for room or for an
// unfinished task. Missed ticks came while no host ran.
type PassedTicks struct{ Skipped, Missed int }

// Tick fires the tick at the time fire (zero: none), adds passed to the schedule's counts, and plans the tick at the
// time next (zero: no further tick). s is the schedule as the caller read it. All of this is one script: if several
// hosts call Tick for the same tick, one succeeds. Tick updates s, so that the caller can call Tick with s again. After
// an error the outcome is unknown, and the caller must read the schedule again.
func (f *Fleet) Tick(ctx context.Context, s *queue.Schedule, fire time.Time, passed PassedTicks,
	next time.Time,
) (TickEnd, error) {
	c := f.client
	args := []any{
		c.Store().Clock, s.ID, s.Revision, s.Stored, tickText(fire), passed.Missed, passed.Skipped,
		tickText(next), busyPause.Seconds(), s.Queue, string(s.Overlap),
	}
	if !fire.IsZero() {
		spec := s.Spec(TickID(s.ID, fire))
		if s.Sealed != nil {
			return "", fmt.Errorf("fire schedule %s: its parameters: %w", s.ID, s.Sealed)
		}
		if err := spec.Validate(); err != nil { // the hash was changed by hand
			return "", fmt.Errorf("fire schedule %s: %w", s.ID, err)
		}
		args = spec.Arguments(c.Store().Seal, args, spec.ID, s.Queue, true)
	}
	reply, err := c.Store().Eval(ctx, store.NewCall("tick", c.Store().Keys.Ticks(), args...))
	if err != nil {
		return "", store.Wrap("fire schedule "+s.ID, err)
	}
	end := TickEnd(store.AsString(reply))
	switch end {
	case TickFired, TickPlanned, TickSkipped:
		s.Stored, s.Next = tickText(next), next
	}
	return end, nil
}

// TickID returns the ID of the task that a tick enqueues.
func TickID(schedule string, tick time.Time) string { return schedule + "@" + tickText(tick) }

// tickText formats the time of a tick as Redis stores it, in whole seconds; "" for the zero time.
func tickText(tick time.Time) string {
	if tick.IsZero() {
		return ""
	}
	return strconv.FormatInt(tick.Unix(), 10)
}
