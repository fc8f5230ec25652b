package manage

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Usage is what the tasks that hosts ran on a day have used. Tasks of workers and of Python listeners are not counted,
// nor are the last seconds of a host that died, and the time in which a host could not reach Redis.
type Usage struct {
	Day        string  `json:"day" doc:"The day, in UTC."`
	Runs       int64   `json:"runs" doc:"Runs that began."`
	Complete   int64   `json:"complete" doc:"Tasks; deliveries of webhooks are tasks."`
	Failed     int64   `json:"failed"`
	Retried    int64   `json:"retried" doc:"Runs after which the task is tried again."`
	Fuel       int64   `json:"fuel" doc:"About one unit for each instruction."`
	CPUSeconds float64 `json:"cpu_seconds" doc:"Processor time, in plugins and in host functions."`
	RunSeconds float64 `json:"run_seconds" doc:"Time from the start to the end of the runs."`
	BytesIn    int64   `json:"bytes_in" doc:"Of parameters."`
	BytesOut   int64   `json:"bytes_out" doc:"Of results."`
	LogBytes   int64   `json:"log_bytes" doc:"Of lines that handlers logged."`
}

// Usage reads the usage of each day from one to another, both as 2006-01-02 in UTC, at most 400 days. Days without
// tasks are left out. If to is "", it is today; if from is "", it is the first day of to's month.
func (m *Manager) Usage(ctx context.Context, from, to string) ([]Usage, error) {
	last, err := m.store.Now(ctx)
	if err == nil && to != "" {
		last, err = day("to", to)
	}
	if err != nil {
		return nil, err
	}
	last = last.UTC().Truncate(24 * time.Hour)
	first := last.AddDate(0, 0, 1-last.Day())
	if from != "" {
		if first, err = day("from", from); err != nil {
			return nil, err
		}
	}
	switch n := int(last.Sub(first).Hours()/24) + 1; {
	case n < 1:
		return nil, fmt.Errorf("%w: from %s to %s: the first day is after the last one: exchange them", queue.ErrInvalid,
			first.Format(time.DateOnly), last.Format(time.DateOnly))
	case n > store.KeptDays:
		return nil, fmt.Errorf("%w: from %s to %s: those are %d days, and %d are kept: ask for fewer", queue.ErrInvalid,
			first.Format(time.DateOnly), last.Format(time.DateOnly), n, store.KeptDays)
	}
	var days []time.Time
	for d := first; !d.After(last); d = d.AddDate(0, 0, 1) {
		days = append(days, d)
	}
	cmds, err := store.Pipelined(ctx, m.store, days, func(p redis.Pipeliner, d time.Time) *redis.SliceCmd {
		return p.HMGet(ctx, m.store.Keys.Usage(strconv.FormatInt(d.Unix()/86400, 10)), store.UsageFields...)
	})
	list := []Usage{}
	for i, cmd := range cmds {
		err = cmp.Or(err, cmd.Err())
		var n [10]int64
		some := false
		for at, value := range cmd.Val() {
			n[at] = store.AsInt(value)
			some = some || value != nil
		}
		if some {
			list = append(list, Usage{
				Day: days[i].Format(time.DateOnly), Runs: n[0], Complete: n[1], Failed: n[2], Retried: n[3], Fuel: n[4],
				CPUSeconds: float64(n[5]) / 1e6, RunSeconds: float64(n[6]) / 1e6, BytesIn: n[7], BytesOut: n[8], LogBytes: n[9],
			})
		}
	}
	return list, store.Wrap("read usage", err)
}

func day(name, text string) (time.Time, error) {
	d, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return d, fmt.Errorf("%w: %s %q: use a day in UTC, such as 2026-11-30", queue.ErrInvalid, name, text)
	}
	return d, nil
}
