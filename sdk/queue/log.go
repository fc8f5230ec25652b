package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// logLines and logBytes bound what is kept of a task's log.
	logLines = 1000
	logBytes = 64 << 10
)

// LogLine is one line that a task's plugin wrote.
type LogLine struct {
	// Number counts the lines of the task from 1, also over several runs.
	Number int64
	// Time is when Redis got the line; lines are written in batches, about a second at most.
	Time time.Time
	Text string
}

// AppendLog adds lines to a held task's log; the last 1,000 lines and 64 KiB are kept. ErrLost or
// ErrNoTask if the node does not hold the task (any more): the lines are dropped then.
func (n *Node) AppendLog(ctx context.Context, hold Hold, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	k := n.client.keys
	args := []any{n.client.clock, n.id, hold.Run, logLines, logBytes}
	for _, line := range lines[max(0, len(lines)-logLines):] {
		args = append(args, validText(line))
	}
	answer, err := n.client.eval(ctx, call{script: logScript, keys: []string{k.log(hold.ID), k.task(hold.ID)}, args: args})
	if err != nil {
		return fmt.Errorf("append to log of task %s: %w", hold.ID, err)
	}
	return verdict(answer, hold.ID)
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
