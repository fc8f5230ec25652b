package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Due are schedules that a host is to look at.
type Due struct {
	Schedules []*Schedule
	Clock     time.Time // Redis's
	Next      time.Time // when the next one after these is due; zero if none is
}

// DueSchedules reads up to limit schedules that are due, those first that have been for longest, and fewer if these are large.
func (f *Fleet) DueSchedules(ctx context.Context, limit int64) (Due, error) {
	c := f.client
	var clock *redis.TimeCmd
	var ticks *redis.ZSliceCmd
	_, err := c.store.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		clock = p.Time(ctx)
		ticks = p.ZRangeWithScores(ctx, c.store.keys.ticks(), 0, limit)
		return nil
	})
	if err != nil {
		return Due{}, wrap("read ticks "+c.store.keys.ticks(), err)
	}
	due := Due{Clock: clock.Val()}
	if c.store.clock != "" {
		due.Clock = parseSeconds(c.store.clock)
	}
	var ids []string
	for _, z := range ticks.Val() {
		id, _ := z.Member.(string)
		at := parseETA(strconv.FormatFloat(z.Score, 'f', 6, 64))
		if z.Score > float64(due.Clock.UnixMicro())/1e6 || int64(len(ids)) == limit {
			due.Next = at
			break
		}
		ids = append(ids, id)
	}
	found, read, err := c.ReadSchedules(ctx, ids)
	due.Schedules = found
	for _, id := range ids[:read] { // the others are due as well: the next call reads them
		if err == nil && !slices.ContainsFunc(due.Schedules, func(s *Schedule) bool { return s.ID == id }) {
			_ = c.DeleteSchedule(ctx, id, "") // its hash was deleted by hand
		}
	}
	return due, err
}

// TickEnd is what became of a tick.
type TickEnd string

// The ends of Tick. Planned: none was to be fired. Skipped: the task of the tick before has not finished. Busy, full: the tick
// waits, for that task or for room in the queue. Changed: the schedule is not as it was read, or another host was first.
const (
	TickFired   TickEnd = "fired"
	TickPlanned TickEnd = "planned"
	TickSkipped TickEnd = "skipped"
	TickBusy    TickEnd = "busy"
	TickFull    TickEnd = "full"
	TickEarly   TickEnd = "early"
	TickChanged TickEnd = "changed"
)

// PostponeTick lets hosts look at a schedule that is due again after a while: this one cannot read it.
func (f *Fleet) PostponeTick(ctx context.Context, s *Schedule, pause time.Duration) error {
	c := f.client
	_, err := c.store.eval(ctx, newCall("tick", c.store.keys.ticks(), c.store.clock, s.ID, s.revision, s.next, "later", 0, 0, "", pause.Seconds()))
	return wrap("postpone schedule "+s.ID, err)
}

// busyPause is after how long a tick is looked at again that waits.
const busyPause = time.Second

// PassedTicks are ticks for which there is no task, because the one before had not finished or had no room, or because no host was
// there.
type PassedTicks struct{ Skipped, Missed int }

// Tick fires a tick of a schedule that was read, zero for none, counts those before it, and plans the next one, zero for never, all
// in one script: of hosts that call it at the same time one succeeds. The schedule is then as the script left it, so that another
// Tick may follow. After an error nothing is known: read the schedule again.
func (f *Fleet) Tick(ctx context.Context, s *Schedule, fire time.Time, passed PassedTicks, next time.Time) (TickEnd, error) {
	c := f.client
	args := []any{c.store.clock, s.ID, s.revision, s.next, tickText(fire), passed.Missed, passed.Skipped, tickText(next), busyPause.Seconds(), s.Queue, string(s.Overlap)}
	if !fire.IsZero() {
		spec := s.spec(TickID(s.ID, fire))
		if err := spec.validate(); err != nil { // the hash was changed by hand
			return "", fmt.Errorf("fire schedule %s: %w", s.ID, err)
		}
		args = spec.arguments(args, spec.ID, s.Queue, true)
	}
	reply, err := c.store.eval(ctx, newCall("tick", c.store.keys.ticks(), args...))
	if err != nil {
		return "", wrap("fire schedule "+s.ID, err)
	}
	end := TickEnd(asString(reply))
	switch end {
	case TickFired, TickPlanned, TickSkipped:
		s.next, s.Next = tickText(next), next
	}
	return end, nil
}

// TickID is the ID of the task of a tick.
func TickID(schedule string, tick time.Time) string { return schedule + "@" + tickText(tick) }

// tickText is a tick in Redis, a whole second; "" for zero.
func tickText(tick time.Time) string {
	if tick.IsZero() {
		return ""
	}
	return strconv.FormatInt(tick.Unix(), 10)
}
