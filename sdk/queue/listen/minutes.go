package listen

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

// Minute is what hosts counted in one.
type Minute struct {
	Begin            time.Time
	Complete, Failed int64
	Waits            Waits
}

// Minutes reads the last n minutes, KeptMinutes at most, of a queue or of all of them (""), oldest first; the last is the present one.
func (f *Fleet) Minutes(ctx context.Context, queue string, n int) ([]Minute, error) {
	now, err := f.client.Store().Now(ctx)
	if err != nil {
		return nil, err
	}
	fields := []string{tallyField("complete", queue), tallyField("failed", queue)}
	for size := range tallyWaits {
		fields = append(fields, tallyField("wait"+strconv.Itoa(size), queue))
	}
	minutes := make([]Minute, min(n, KeptMinutes))
	for i := range minutes {
		minutes[i].Begin = now.Truncate(time.Minute).Add(time.Duration(i+1-len(minutes)) * time.Minute)
	}
	cmds, err := store.Pipelined(ctx, f.client.Store(), minutes, func(p redis.Pipeliner, m Minute) *redis.SliceCmd {
		return p.HMGet(ctx, f.client.Store().Keys.Minute(strconv.FormatInt(m.Begin.Unix()/60, 10)), fields...)
	})
	for i, cmd := range cmds {
		err = cmp.Or(err, cmd.Err())
		if counts := cmd.Val(); len(counts) == len(fields) {
			m := &minutes[i]
			m.Complete, m.Failed = store.AsInt(counts[0]), store.AsInt(counts[1])
			for size := range m.Waits {
				m.Waits[size] = store.AsInt(counts[2+size])
			}
		}
	}
	return minutes, store.Wrap("read counts by minute", err)
}

// Recent sums up what hosts counted of each of these queues in the last n minutes, without waits.
func (f *Fleet) Recent(ctx context.Context, n int, queues ...string) ([]Minute, error) {
	now, err := f.client.Store().Now(ctx)
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	sums := make([]Minute, len(queues))
	var fields []string
	for i, name := range queues {
		sums[i].Begin = now.Truncate(time.Minute).Add(time.Duration(1-n) * time.Minute)
		fields = append(fields, tallyField("complete", name), tallyField("failed", name))
	}
	cmds, err := store.Pipelined(ctx, f.client.Store(), make([]struct{}, n), func(p redis.Pipeliner, _ struct{}) *redis.SliceCmd {
		n--
		return p.HMGet(ctx, f.client.Store().Keys.Minute(strconv.FormatInt(now.Unix()/60-int64(n), 10)), fields...)
	})
	for _, cmd := range cmds {
		for i, count := range cmd.Val() {
			if i%2 == 0 {
				sums[i/2].Complete += store.AsInt(count)
			} else {
				sums[i/2].Failed += store.AsInt(count)
			}
		}
	}
	return sums, store.Wrap("read counts by minute", err)
}
