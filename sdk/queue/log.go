package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// logLines and logBytes bound what is kept of a task's log, lineBytes cuts a single line.
	logLines  = 1000
	logBytes  = 64 << 10
	lineBytes = 16 << 10
)

// LogLine is one line that a task's plugin wrote.
type LogLine struct {
	// Number counts the lines of the task from 1, also over several runs.
	Number int64
	// Time is when Redis got the line; lines are written in batches, about a second at most.
	Time time.Time
	Text string
}

// LogBatch is what a held task wrote since the last batch.
type LogBatch struct {
	Hold
	Lines []string
}

// AppendLogs adds lines to the logs of held tasks in one round trip; the last 1,000 lines and 64 KiB
// of each are kept, and of a line its first 16 KiB. It returns one error a batch: nil, ErrLost or ErrNoTask if the node does not hold
// the task (any more; the lines are dropped), or that nothing is known.
func (n *Node) AppendLogs(ctx context.Context, batches []LogBatch) []error {
	k := n.client.keys
	calls := make([]call, len(batches))
	for i, batch := range batches {
		left := max(0, len(batch.Lines)-logLines)
		args := []any{n.client.clock, n.id, batch.proof(), logLines, logBytes, left, batch.ID}
		for _, line := range batch.Lines[left:] {
			args = append(args, head(validText(line), lineBytes))
		}
		calls[i] = call{script: logScript, keys: []string{k.log(batch.ID)}, args: args}
	}
	errs := make([]error, len(batches))
	for i, reply := range n.client.evalAll(ctx, calls) {
		if errs[i] = reply.err; errs[i] == nil {
			errs[i] = verdict(reply.value, batches[i].ID)
		}
	}
	return errs
}

// Log reads the lines of a task's log that are kept and have a number greater than after.
func (c *Client) Log(ctx context.Context, id string, after int64) ([]LogLine, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	entries, err := c.rdb.LRange(ctx, c.keys.log(id), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read log of task %s: %w", id, err)
	}
	var lines []LogLine
	for _, entry := range entries {
		number, rest, _ := strings.Cut(entry, " ")
		moment, text, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= after {
			continue
		}
		lines = append(lines, LogLine{Number: n, Time: parseSeconds(moment), Text: text})
	}
	return lines, nil
}
