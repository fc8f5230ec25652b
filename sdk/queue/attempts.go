package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// How a run ended that was not the task's last; the last one's is the task's status.
const (
	OutcomeRetry      = "retry"      // failed, and counted
	OutcomeReschedule = "reschedule" // put off by the handler
	OutcomeReject     = "reject"     // the listener would not have it
	OutcomeCrashed    = "crashed"    // its host died
)

// Attempt is one run of a task.
type Attempt struct {
	Run            int64
	Started, Ended time.Time
	Node           string // the listener
	Plugin, Digest string
	// Outcome is one of the constants above, complete, or failed.
	Outcome string
	// Failure is why it did not succeed; nil if it did, or its host died.
	Failure *Failure
}

// History reads the last runs of a task that have ended, at most 21, oldest first.
func (c *Client) History(ctx context.Context, task *Task) ([]Attempt, error) {
	entries, err := c.rdb.LRange(ctx, c.keys.attempts(task.ID), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read attempts of task %s: %w", task.ID, err)
	}
	var attempts []Attempt
	for _, entry := range entries {
		if attempt, ok := parseAttempt(entry); ok {
			attempts = append(attempts, attempt)
		}
	}
	if task.Status.Finished() && !task.StartedAt.IsZero() {
		last := Attempt{
			Run: task.Run, Started: task.StartedAt, Ended: task.FinishedAt, Node: task.Node, Plugin: task.Plugin,
			Digest: task.Digest, Outcome: string(task.Status),
		}
		if task.Status == Failed {
			failure := task.Failure()
			last.Failure = &failure
		}
		attempts = append(attempts, last)
	}
	return attempts, nil
}

// parseAttempt reads "RUN STARTED ENDED LISTENER PLUGIN DIGEST OUTCOME TEXT".
func parseAttempt(entry string) (Attempt, bool) {
	words := strings.SplitN(entry, " ", 8)
	if len(words) < 8 {
		return Attempt{}, false
	}
	for i, word := range words[:7] {
		if word == "-" {
			words[i] = ""
		}
	}
	run, _ := strconv.ParseInt(words[0], 10, 64)
	attempt := Attempt{
		Run: run, Started: parseSeconds(words[1]), Ended: parseSeconds(words[2]), Node: words[3], Plugin: words[4],
		Digest: words[5], Outcome: words[6],
	}
	if words[7] != "" {
		failure := parseFailure(words[7])
		attempt.Failure = &failure
	}
	return attempt, true
}

// ProgressReport is how far a held task is.
type ProgressReport struct {
	Hold
	Queue    string
	Fraction float64 // 0 to 1
	Message  string
}

// maxMessage bounds the message of a progress report, in bytes.
const maxMessage = 1 << 10

// Progress writes how far held tasks are, in one round trip. It returns one error a report: nil,
// ErrLost or ErrNoTask if the node does not hold the task (any more), or that nothing is known.
func (n *Node) Progress(ctx context.Context, reports []ProgressReport) []error {
	calls := make([]call, len(reports))
	for i, r := range reports {
		fraction := strconv.FormatFloat(min(max(r.Fraction, 0), 1), 'f', -1, 64)
		calls[i] = call{
			script: progressScript,
			keys:   []string{n.client.keys.reserved(r.Queue, n.id)},
			args:   []any{n.client.clock, n.id, r.ID, r.proof(), fraction, head(validText(r.Message), maxMessage)},
		}
	}
	errs := make([]error, len(reports))
	for i, reply := range n.client.evalAll(ctx, calls) {
		if errs[i] = reply.err; errs[i] == nil {
			errs[i] = verdict(reply.value, reports[i].ID)
		}
	}
	return errs
}

// MaxCheckpoint is the most bytes that a task may keep for its next run.
const MaxCheckpoint = 1 << 20

// Checkpoint keeps bytes of a held task for its next run, also after a crash; none removes them. They
// go when the task is complete. ErrInvalid if there are too many.
func (n *Node) Checkpoint(ctx context.Context, queue string, hold Hold, value []byte) error {
	if len(value) > MaxCheckpoint {
		return fmt.Errorf("%w: checkpoint of %d bytes: at most %d", ErrInvalid, len(value), MaxCheckpoint)
	}
	answer, err := n.client.eval(ctx, call{
		script: checkpointScript,
		keys:   []string{n.client.keys.reserved(queue, n.id)},
		args:   []any{n.client.clock, n.id, hold.ID, hold.proof(), value},
	})
	if err != nil {
		return fmt.Errorf("keep checkpoint of task %s: %w", hold.ID, err)
	}
	return verdict(answer, hold.ID)
}

// Checkpoint reads what an earlier run of the task kept; nil if nothing.
func (c *Client) Checkpoint(ctx context.Context, id string) ([]byte, error) {
	value, err := c.rdb.HGet(ctx, c.keys.bytes(id), "checkpoint").Bytes()
	if isNil(err) {
		return nil, nil
	}
	return value, wrap("read checkpoint of task "+id, err)
}

// Cancelled tells which of these held tasks are to be stopped: somebody asked for it.
func (c *Client) Cancelled(ctx context.Context, ids []string) ([]string, error) {
	cancelled, _, err := c.marks(ctx, "", ids)
	return cancelled, err
}

// Marks tells which of these tasks, which the node holds, are to be stopped, and whether the node is to be drained. A host
// looks at every message on the control channel, and every third of a lease.
func (n *Node) Marks(ctx context.Context, ids []string) (cancelled []string, drain bool, err error) {
	return n.client.marks(ctx, n.id, ids)
}

func (c *Client) marks(ctx context.Context, listener string, ids []string) (cancelled []string, drain bool, err error) {
	cmds := make([]*redis.SliceCmd, len(ids))
	var drains *redis.BoolCmd
	_, err = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		if listener != "" {
			drains = p.HExists(ctx, c.keys.node(listener), "drain")
		}
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, c.keys.task(id), "cancel")
		}
		return nil
	})
	if err = passReplies(err); err != nil {
		return nil, false, fmt.Errorf("look at cancel and drain marks: %w", err)
	}
	for i, cmd := range cmds {
		if values := cmd.Val(); len(values) == 1 && values[0] != nil {
			cancelled = append(cancelled, ids[i])
		}
	}
	return cancelled, drains != nil && drains.Val(), nil
}
