package manage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
)

const (
	// sampleLife is the age at which Redis deletes a sample.
	sampleLife = 30 * time.Second
	// sampleBytes is the maximum length in bytes of one queue's line in a sample.
	sampleBytes = 320
)

// FleetStats counts the tasks of the node's own queues, and of up to limit queues of the tenant, those with listeners
// first. One node counts for the fleet and stores a sample. The other nodes read the sample, which can be some seconds
// old. Stats from a sample lack Limit, Held and Totals. FleetStats leaves out damaged queues.
func (m *Manager) FleetStats(ctx context.Context, n *listen.Node, limit int, own []string) (map[string]Stats, error) {
	var text string
	// If Redis is full, it refuses the duty and the sample. Then each node counts for itself.
	mine, _ := n.TakeDuty(ctx, "sample", store.SampleTerm)
	if !mine {
		var err error
		text, err = m.store.RDB.GetRange(ctx, m.store.Keys.Sample(), 0, int64(limit)*sampleBytes).Result()
		if err = store.PassReplies(err); err != nil {
			return nil, fmt.Errorf("read sample of queues: %w", err)
		}
	}
	counted := parseSample(text, limit)
	if text == "" {
		names, err := m.sampled(ctx, int64(limit))
		if err != nil {
			return nil, err
		}
		if err := m.count(ctx, names, counted); err != nil {
			return nil, err
		}
		if mine {
			_ = m.store.RDB.Set(ctx, m.store.Keys.Sample(), formatSample(counted), sampleLife).Err()
		}
	}
	missing := slices.DeleteFunc(slices.Clone(own), func(name string) bool { _, ok := counted[name]; return ok })
	return counted, m.count(ctx, missing, counted)
}

// sampled chooses up to limit queues for a sample: first those with listeners, fewest listeners first, then the others
// by name.
func (m *Manager) sampled(ctx context.Context, limit int64) (names []string, err error) {
	for _, of := range []redis.ZRangeBy{{Min: "(0", Max: "+inf"}, {Min: "-inf", Max: "0"}} {
		if of.Count = limit - int64(len(names)); of.Count > 0 && err == nil {
			var more []string
			more, err = m.store.RDB.ZRangeByScore(ctx, m.store.Keys.Queues(), &of).Result()
			names = append(names, slices.DeleteFunc(more, func(name string) bool { return queue.ValidQueue(name) != nil })...)
		}
	}
	return names, store.Wrap("list queues in "+m.store.Keys.Queues(), err)
}

// count adds the stats of queues to counted. It leaves out damaged queues.
func (m *Manager) count(ctx context.Context, queues []string, counted map[string]Stats) error {
	stats, err := m.Stats(ctx, queues...)
	for i, s := range stats {
		if s.Err == nil {
			counted[queues[i]] = s
		}
	}
	return err
}

// formatSample writes a line for each queue: name, number of tasks by status, number of listeners, age of the oldest
// pending task in µs, 1 if the queue is paused or else 0, and number of blocked tasks.
func formatSample(counted map[string]Stats) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		s := counted[name]
		text.WriteString(name)
		for _, status := range queue.Statuses() {
			fmt.Fprintf(&text, " %d", s.Depth[status])
		}
		paused := 0
		if s.Paused {
			paused = 1
		}
		fmt.Fprintf(&text, " %d %d %d %d\n", s.Listeners, s.OldestPendingAge.Round(time.Microsecond).Microseconds(), paused,
			s.Blocked)
	}
	return text.String()
}

// parseSample parses up to limit lines that formatSample wrote. Lines of other releases may have fewer or more fields
// after the age.
func parseSample(text string, limit int) map[string]Stats {
	counted := make(map[string]Stats)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		numbers := 1 + len(queue.Statuses()) // index of the first field after the counts by status
		if len(words) < numbers+2 || queue.ValidQueue(words[0]) != nil || len(counted) >= limit {
			continue
		}
		s := Stats{Depth: make(map[queue.Status]int64, len(queue.Statuses()))}
		for i, status := range queue.Statuses() {
			s.Depth[status] = store.AsInt(words[1+i])
		}
		s.Listeners, s.OldestPendingAge = store.AsInt(words[numbers]), time.Duration(store.AsInt(words[numbers+
			1]))*time.Microsecond
		s.Paused = len(words) > numbers+2 && words[numbers+2] == "1"
		if len(words) > numbers+3 {
			s.Blocked = store.AsInt(words[numbers+3])
		}
		counted[words[0]] = s
	}
	return counted
}
