package manage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Minute has the fleet's counts of one minute: completed tasks, failed runs, and waits.
type Minute struct {
	Begin            time.Time
	Complete, Failed int64
	Waits            listen.Waits
}

// Minutes reads the counts of the last n minutes, at most 360, for one queue, or for all queues if name is "". The
// oldest minute is first; the last one is the current minute.
func (m *Manager) Minutes(ctx context.Context, name string, n int) ([]Minute, error) {
	now, err := m.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	fields := []string{store.TallyField("complete", name), store.TallyField("failed", name)}
	for size := range len(listen.Waits{}) {
		fields = append(fields, store.TallyField("wait"+strconv.Itoa(size), name))
	}
	minutes := make([]Minute, min(n, store.KeptMinutes))
	for i := range minutes {
		minutes[i].Begin = now.Truncate(time.Minute).Add(time.Duration(i+1-len(minutes)) * time.Minute)
	}
	cmds, err := store.Pipelined(ctx, m.store, minutes, func(p redis.Pipeliner, minute Minute) *redis.SliceCmd {
		return p.HMGet(ctx, m.store.Keys.Minute(strconv.FormatInt(minute.Begin.Unix()/60, 10)), fields...)
	})
	for i, cmd := range cmds {
		err = cmp.Or(err, cmd.Err())
		if counts := cmd.Val(); len(counts) == len(fields) {
			minute := &minutes[i]
			minute.Complete, minute.Failed = store.AsInt(counts[0]), store.AsInt(counts[1])
			for size := range minute.Waits {
				minute.Waits[size] = store.AsInt(counts[2+size])
			}
		}
	}
	return minutes, store.Wrap("read counts by minute", err)
}

// Recent returns a Minute for each of the queues. Its Complete and Failed are the sums of the last n minutes, and Begin
// is the beginning of the first of them. Waits is not set.
func (m *Manager) Recent(ctx context.Context, n int, queues ...string) ([]Minute, error) {
	now, err := m.store.Now(ctx)
	if err != nil || len(queues) == 0 {
		return nil, err
	}
	sums := make([]Minute, len(queues))
	var fields []string
	for i, name := range queues {
		sums[i].Begin = now.Truncate(time.Minute).Add(time.Duration(1-n) * time.Minute)
		fields = append(fields, store.TallyField("complete", name), store.TallyField("failed", name))
	}
	cmds, err := store.Pipelined(ctx, m.store, make([]struct{}, n), func(p redis.Pipeliner, _ struct{}) *redis.SliceCmd {
		n--
		return p.HMGet(ctx, m.store.Keys.Minute(strconv.FormatInt(now.Unix()/60-int64(n), 10)), fields...)
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

// VersionTally counts the completed tasks and the failed runs of one plugin version in this hour and the one before.
type VersionTally struct {
	Plugin, Digest, Version string // Version is the version's name, or "" if it has none
	Release                 int    // the number of the release that the version is; 0 for none
	Complete, Failed        int64
}

// Versions reads the tallies of all versions, sorted by plugin.
func (m *Manager) Versions(ctx context.Context) ([]VersionTally, error) {
	now, err := m.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	var list []VersionTally
	places := make(map[string]int)
	for ago := range int64(store.KeptHours) {
		hour := strconv.FormatInt(now.Unix()/3600-ago, 10)
		counts, err := m.store.RDB.HGetAll(ctx, m.store.Keys.Hour(hour)).Result()
		if err != nil {
			return nil, fmt.Errorf("read counts of versions: %w", err)
		}
		if len(counts) > 2*store.TallyFields {
			return nil, fmt.Errorf("key %s has %d fields, which is %w: delete the fields that were written by hand",
				m.store.Keys.Hour(hour), len(counts), queue.ErrTooLarge)
		}
		for field, n := range counts {
			what, version, _ := strings.Cut(field, " ")
			digest, plugin, ok := strings.Cut(version, " ")
			if !ok {
				continue
			}
			digest, release, name := store.ParseVersion(digest)
			i, known := places[version]
			if !known {
				i, list = len(list), append(list, VersionTally{Plugin: plugin, Digest: digest, Version: name, Release: release})
				places[version] = i
			}
			switch what {
			case "complete":
				list[i].Complete += store.AsInt(n)
			case "failed":
				list[i].Failed += store.AsInt(n)
			}
		}
	}
	slices.SortFunc(list, func(a, b VersionTally) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Release, b.Release), cmp.Compare(a.Digest, b.Digest),
			cmp.Compare(a.Version, b.Version))
	})
	return list, nil
}
