package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// sampleTerm is how old a sample may be before somebody counts anew, and sampleLife how old if nobody does.
	sampleTerm = 10 * time.Second
	sampleLife = 30 * time.Second
	// sampleBytes is the most that one queue takes in a sample.
	sampleBytes = 320
)

// FleetStats counts the tenant's queues as Client.Stats does, without their limits, pauses and totals: own ones and most
// others at most, those with listeners first. Damaged ones are left out. One node counts for the whole fleet, and the others
// read what it wrote, which may be some seconds old.
func (n *Node) FleetStats(ctx context.Context, most int, own []string) (map[string]Stats, error) {
	counted, err := n.sample(ctx, most)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range own {
		if _, ok := counted[name]; !ok {
			missing = append(missing, name)
		}
	}
	err = n.client.count(ctx, missing, counted)
	return counted, err
}

func (n *Node) sample(ctx context.Context, most int) (map[string]Stats, error) {
	// A Redis that is full refuses the sample: then each node counts for itself, as it does if nobody knows whose the duty is.
	mine, _ := n.TakeDuty(ctx, "sample", sampleTerm)
	if !mine {
		text, err := n.client.rdb.GetRange(ctx, n.client.keys.sample(), 0, int64(most)*sampleBytes).Result()
		if err = passReplies(err); err != nil {
			return nil, fmt.Errorf("read sample of queues: %w", err)
		}
		if text != "" {
			return parseSample(text, most), nil
		}
	}
	counted, err := n.client.countQueues(ctx, most)
	if err == nil && mine {
		_ = n.client.rdb.Set(ctx, n.client.keys.sample(), formatSample(counted), sampleLife).Err()
	}
	return counted, err
}

func (c *Client) countQueues(ctx context.Context, most int) (map[string]Stats, error) {
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.SortedFunc(maps.Keys(queues), func(a, b string) int {
		return cmp.Or(cmp.Compare(min(1, queues[b]), min(1, queues[a])), cmp.Compare(a, b))
	})
	names = names[:min(len(names), most)]
	counted := make(map[string]Stats, len(names))
	err = c.count(ctx, names, counted)
	return counted, err
}

// count adds what these queues hold, but for damaged ones.
func (c *Client) count(ctx context.Context, queues []string, counted map[string]Stats) error {
	stats, err := c.Stats(ctx, queues...)
	for i, s := range stats {
		if s.Err == nil {
			counted[queues[i]] = s
		}
	}
	return err
}

// formatSample writes a line for each queue: its name, its tasks by state, its listeners, and the age of its oldest pending
// task in microseconds.
func formatSample(counted map[string]Stats) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		s := counted[name]
		text.WriteString(name)
		for _, status := range Statuses() {
			fmt.Fprintf(&text, " %d", s.Depth[status])
		}
		fmt.Fprintf(&text, " %d %d\n", s.Listeners, s.OldestPendingAge.Round(time.Microsecond).Microseconds())
	}
	return text.String()
}

// parseSample reads what formatSample wrote, or whatever somebody put in its place.
func parseSample(text string, most int) map[string]Stats {
	counted := make(map[string]Stats)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 3+len(Statuses()) || ValidQueue(words[0]) != nil || len(counted) >= most {
			continue
		}
		numbers := make([]int64, len(words)-1)
		for i := range numbers {
			numbers[i], _ = strconv.ParseInt(words[i+1], 10, 64)
		}
		s := Stats{Depth: make(map[Status]int64, len(Statuses()))}
		for i, status := range Statuses() {
			s.Depth[status] = numbers[i]
		}
		s.Listeners, s.OldestPendingAge = numbers[len(numbers)-2], time.Duration(numbers[len(numbers)-1])*time.Microsecond
		counted[words[0]] = s
	}
	return counted
}
