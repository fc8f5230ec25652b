package listen

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
)

// The exit codes of a handler that asks to run later, and of one that failed for good.
const (
	ExitLater = 75
	ExitFatal = 65
)

// Requeue is the reason why a task waits for another run after a failed run.
type Requeue string

// Before a retry, the failed run counts as an attempt. Before a reschedule (by the handler) or a reject (by the
// listener) it does not; each of these two has its own counter.
const (
	RequeueRetry      Requeue = "retry"
	RequeueReschedule Requeue = "reschedule"
	RequeueReject     Requeue = "reject"
)

// Outcome is how a run of a held task ended.
type Outcome string

// The outcomes. A complete or failed task has ended. A retried, rescheduled or rejected task runs again. A released
// task also runs again, as if this run had never begun.
const (
	OutcomeComplete    Outcome = "complete"
	OutcomeFailed      Outcome = "failed"
	OutcomeRetried     Outcome = "retried"
	OutcomeRescheduled Outcome = "rescheduled"
	OutcomeRejected    Outcome = "rejected"
	OutcomeReleased    Outcome = "released"
	OutcomeLost        Outcome = "lost" // nothing was written: another listener holds the task, or it was deleted
)

// Settlement says how one run of a held task ended.
type Settlement struct {
	Claim
	Result  []byte         // the result of a complete task
	Failure *queue.Failure // why the run failed; nil means that the task is complete
	// Counts is the kind of the failure if the circuit breaker in the SettleRequest counts it, and otherwise "".
	Counts queue.Reason
	// If Requeue is not "", a task whose run failed waits for Delay and then runs again. Otherwise it has failed for
	// good.
	Requeue Requeue
	Delay   time.Duration
	// HoldKey lets no other task of the queue with the key of this one start within Delay, if the task is requeued and has
	// a key.
	HoldKey bool
	// Children, at most MaxChildren, are enqueued together with the completion of the task. They ignore the limits of
	// their queues.
	Children []Child
	// Publications are accepted together with the completion of the task. Their tasks are made afterwards, by a host or
	// by queue.Client.Republish.
	Publications []*queue.Publication
}

// Outcome returns the outcome that the run has after the settlement is written.
func (s *Settlement) Outcome() Outcome {
	switch {
	case s.Failure == nil:
		return OutcomeComplete
	case s.Requeue == RequeueRetry:
		return OutcomeRetried
	case s.Requeue == RequeueReschedule:
		return OutcomeRescheduled
	case s.Requeue == RequeueReject:
		return OutcomeRejected
	}
	return OutcomeFailed
}

// Reason returns why the run failed; "" if it did not.
func (s *Settlement) Reason() queue.Reason {
	if s.Failure == nil {
		return ""
	}
	return cmp.Or(s.Failure.Reason, queue.ReasonError)
}

// MaxWeight is the maximum sum of the weights of all settlements in one SettleRequest.
const MaxWeight = 128

// Weight estimates how much work the settlement is for Redis. The completion of a task without children takes about
// four commands and has weight 1.
func (s *Settlement) Weight() int {
	switch {
	case s.Failure == nil:
		weight := 1 + 2*(len(s.Children)+len(s.Publications))
		for _, child := range s.Children {
			weight += len(child.After)
		}
		return weight
	case s.Requeue != "":
		return 3
	}
	return 8 // it may need a dead letter
}

// TryAgain returns a settlement that lets the task wait for its next attempt. attempts is the number of attempts that
// have failed, including this one. If the policy allows no further attempt, the failure is final.
func (s Settlement) TryAgain(policy queue.Retry, attempts int) Settlement {
	switch {
	case policy.AttemptsLeft(attempts):
		s.Requeue, s.Delay = RequeueRetry, policy.JitteredDelay(attempts)
	case policy.Attempts() > 1:
		return s.exhausted(fmt.Sprintf("attempt %d of %d: %s", attempts, attempts,
			cmp.Or(s.Failure.Reason, queue.ReasonError)))
	}
	return s
}

// PutOff returns a settlement that lets the task wait for delay without counting an attempt. reschedules is how often
// the task was put off before. If the policy allows no further reschedule, the failure is final.
func (s Settlement) PutOff(policy queue.Retry, reschedules int, delay time.Duration) Settlement {
	if policy.MaxReschedules < 0 {
		last, later := *s.Failure, ExitLater
		last.ExitCode = &later
		s.Failure = &last
		return s
	}
	if reschedules >= policy.Reschedules() {
		return s.exhausted(fmt.Sprintf("put off %d times (max_reschedules)", reschedules))
	}
	s.Requeue, s.Delay = RequeueReschedule, delay
	return s
}

func (s Settlement) exhausted(after string) Settlement {
	last := *s.Failure
	last.Reason, last.Message = queue.ReasonExhausted, after+": "+last.Message
	s.Failure = &last
	return s
}

// NoLaterThan returns a settlement in which the failure is final if the task would expire before its next run. expires
// is zero if the task never expires. Both times are Redis's.
func (s Settlement) NoLaterThan(expires, now time.Time) Settlement {
	if s.Requeue == "" || expires.IsZero() || !now.Add(s.Delay).After(expires) {
		return s
	}
	last := *s.Failure
	last.Message = fmt.Sprintf("expires before it could be tried again; %s: %s", last.Why(), last.Message)
	last.Reason = queue.ReasonExpired
	s.Failure, s.Requeue, s.Delay = &last, "", 0
	return s
}

// Child is a task that another task enqueues when it completes. It needs an ID. If a task with this ID already exists,
// the existing task stays as it is. A child can wait for earlier children of the same settlement, and for other tasks.
// A dependency that does not exist counts as failed.
type Child struct {
	Queue string
	queue.Spec
}

// MaxChildren is the maximum number of children of one task. MaxChildDependencies is the maximum number of dependencies
// of all these children together.
const (
	MaxChildren          = 256
	MaxChildDependencies = 1024
)

// Validate returns an error if the child could not be enqueued.
func (c *Child) Validate() error {
	return cmp.Or(queue.ValidTarget(c.Queue), queue.ValidID(c.ID), c.ValidateTarget(), c.Options.Validate())
}

// SettleRequest ends the runs of held tasks of one queue. The weights of the settlements and of the circuit breaker
// should sum up to at most MaxWeight, which takes Redis a few milliseconds.
type SettleRequest struct {
	Queue       string
	Settlements []Settlement
	// Wake names queues whose tasks may have waited for these runs to end. The settlement wakes the listeners of these
	// queues.
	Wake []string
	// Breaker is the circuit breaker of the plugin version that ran all of these tasks; nil if it has none.
	Breaker *Breaker
}

// SettleReply is the reply to one SettleRequest.
type SettleReply struct {
	// Errs has an entry for each settlement: nil if it was written, or one of these errors.
	//
	//   - queue.ErrLost, queue.ErrNoTask: nothing was written.
	//   - queue.ErrCancelled: the task was cancelled, and has failed instead of running again.
	//   - queue.ErrDamaged: a child or publication could not be stored, and the task is still held.
	//   - queue.ErrQueueFull: the children and publications would exceed twice a quota of the tenant, and the task is
	//     still held.
	//   - queue.ErrNoLetter: the task failed, but its dead letter was not written.
	Errs []error
	// If Err is not nil, the outcome is unknown. The same request can be repeated: Redis recognizes settlements that were
	// written.
	Err error
}

// Settle is SettleAll for one queue.
func (n *Node) Settle(ctx context.Context, name string, settlements []Settlement) ([]error, error) {
	reply := n.SettleAll(ctx, []SettleRequest{{Queue: name, Settlements: settlements}})[0]
	return reply.Errs, reply.Err
}

// SettleAll settles tasks of several queues in one round trip, with one script call for each request.
func (n *Node) SettleAll(ctx context.Context, requests []SettleRequest) []SettleReply {
	calls := make([]store.Call, len(requests))
	for i := range requests {
		calls[i] = store.NewCall("settle", n.client.Store().Keys.Reserved(requests[i].Queue, n.id),
			n.settleArguments(&requests[i])...)
	}
	replies := make([]SettleReply, len(requests))
	for i, answer := range n.client.Store().EvalAll(ctx, calls) {
		r := &requests[i]
		replies[i].Errs, replies[i].Err = n.verdicts(answer, "settle", r.Queue, len(r.Settlements),
			func(j int) string { return r.Settlements[j].ID })
	}
	return replies
}

func (n *Node) settleArguments(r *SettleRequest) []any {
	args := append(make([]any, 0, 6+5*len(r.Settlements)),
		n.client.Store().Clock, r.Queue, n.id, n.pid, strings.Join(r.Wake, " "), r.Breaker.text())
	for i := range r.Settlements {
		s := &r.Settlements[i]
		action, value := string(queue.Complete), s.Result
		if s.Failure != nil {
			action, value = cmp.Or(string(s.Requeue), string(queue.Failed)), s.Failure.Encode()
		}
		keys := n.client.Store().Seal
		if s.Failure == nil {
			value = keys.Seal(s.ID, value)
		}
		text, companion := store.EncodeValue(value)
		var further []any
		switch {
		case s.Failure != nil && s.Requeue != "":
			if further = []any{s.Delay.Seconds()}; s.HoldKey {
				further = append(further, "key")
			}
		case s.Failure != nil:
			further = []any{string(s.Failure.Why())}
		case companion != nil || len(s.Children)+len(s.Publications) > 0:
			further = []any{companion}
			for _, child := range s.Children {
				further = append(further, child.Queue)
				further = child.Arguments(keys, further, child.ID, child.Queue, true)
			}
			for _, p := range s.Publications {
				further = p.Arguments(keys, append(further, ""), true)
			}
		}
		if s.Failure != nil && s.Counts != "" {
			further = append(further, string(s.Counts))
		}
		args = append(append(args, s.ID, s.proof(), action, text, len(further)), further...)
	}
	return args
}

// Release gives held tasks back to the front of the queue. Pass the newest claim first, so that the oldest task ends up
// at the very front. The errors are as in Settle.
func (n *Node) Release(ctx context.Context, name string, claims []Claim) (errs []error, err error) {
	for part := range slices.Chunk(claims, maxClaims) {
		args := []any{n.client.Store().Clock, name, n.id}
		for _, c := range part {
			args = append(args, c.ID, c.proof(), n.pid)
		}
		answer := store.NewCall("release", n.client.Store().Keys.Reserved(name, n.id), args...).On(ctx, n.client.Store().RDB)
		given, err := n.verdicts(answer, "release", name, len(part), func(i int) string { return part[i].ID })
		if err != nil {
			return errs, err
		}
		errs = append(errs, given...)
	}
	return errs, nil
}

// verdicts parses the reply of a script, which has a line for each of count tasks. id returns the ID of the i-th task.
func (n *Node) verdicts(answer *redis.Cmd, script, name string, count int, id func(int) string) ([]error, error) {
	value, err := answer.Result()
	lines := strings.FieldsFunc(store.AsString(value), func(r rune) bool { return r == '\n' })
	if err == nil && len(lines) != count {
		err = store.ErrReply
	}
	if err != nil {
		return nil, fmt.Errorf("%s tasks of %q: %w", script, name, err)
	}
	errs := make([]error, count)
	for i, line := range lines {
		if over := n.client.Store().OverText(strings.TrimPrefix(line, "refused ")); over != nil {
			errs[i] = store.Wrap("enqueue and publish for task "+id(i), over)
		} else {
			errs[i] = store.Verdict(line, id(i))
		}
	}
	return errs, nil
}

// Start marks a task as started that was reserved without ReserveRequest.Start. It returns the claim for later calls.
// The error is queue.ErrLost or queue.ErrNoTask if the node does not hold the task.
func (n *Node) Start(ctx context.Context, name string, claim Claim) (Claim, error) {
	answer, err := n.client.Store().Eval(ctx, store.NewCall("start", n.client.Store().Keys.Reserved(name, n.id),
		n.client.Store().Clock, name, n.id, claim.ID, claim.proof(), n.pid))
	if err != nil {
		return claim, store.Wrap("start task "+claim.ID, err)
	}
	clock, ok := strings.CutPrefix(store.AsString(answer), "ok ")
	if !ok {
		return claim, store.Verdict(answer, claim.ID)
	}
	if born := strings.SplitN(claim.Born, "@", 3); len(born) > 1 {
		claim.Born = store.BornAt(born[1]) + store.StartedAt(clock)
	}
	return claim, nil
}

// report calls scripts in one round trip, each for the task whose ID has the same index. It returns an error, or nil,
// for each.
func (n *Node) report(ctx context.Context, verb string, ids []string, calls ...store.Call) []error {
	errs := make([]error, len(calls))
	for i, reply := range n.client.Store().EvalAll(ctx, calls) {
		err := cmp.Or(n.client.Store().Over(reply.Err()), reply.Err())
		if errs[i] = store.Wrap(verb+" task "+ids[i], err); errs[i] == nil {
			errs[i] = store.Verdict(reply.Val(), ids[i])
		}
	}
	return errs
}

// ProgressReport says how far a held task has progressed.
type ProgressReport struct {
	Claim
	Queue    string
	Fraction float64 // 0 to 1
	Message  string
}

// Progress writes reports of held tasks in one round trip. It returns an error, or nil, for each report. The error is
// queue.ErrLost or queue.ErrNoTask if the node does not hold the task (any more); after any other error the outcome is
// unknown.
func (n *Node) Progress(ctx context.Context, reports []ProgressReport) []error {
	calls, ids := make([]store.Call, len(reports)), make([]string, len(reports))
	for i, r := range reports {
		fraction := strconv.FormatFloat(min(max(r.Fraction, 0), 1), 'f', -1, 64)
		ids[i] = r.ID
		calls[i] = store.NewCall("progress", n.client.Store().Keys.Reserved(r.Queue, n.id),
			n.client.Store().Clock, n.id, r.ID, r.proof(), fraction, store.Head(store.ValidText(r.Message), store.MaxMessage))
	}
	return n.report(ctx, "report progress of", ids, calls...)
}

// lineBytes is the maximum length of a log line in bytes. Longer lines are cut.
const lineBytes = 16 << 10

// LogBatch has the log lines that a held task wrote since its last batch.
type LogBatch struct {
	Claim
	Lines []string
}

// AppendLogs adds lines to the logs of tasks. Each log keeps its last 1,000 lines, at most 64 KiB, and each line its
// first 16 KiB. The errors are as in Progress. Lines are dropped if the run that wrote them neither holds the task nor
// has settled it. The error is a manage.QuotaError if they are dropped because the logs of the tenant have no room.
func (n *Node) AppendLogs(ctx context.Context, batches []LogBatch) []error {
	calls, ids := make([]store.Call, len(batches)), make([]string, len(batches))
	for i, batch := range batches {
		left := max(0, len(batch.Lines)-store.LogLines)
		args := []any{n.client.Store().Clock, n.id, batch.proof(), store.LogLines, store.LogBytes, left, batch.ID}
		for _, line := range batch.Lines[left:] {
			args = append(args, store.Head(store.ValidText(line), lineBytes))
		}
		calls[i], ids[i] = store.NewCall("log", n.client.Store().Keys.Log(batch.ID), args...), batch.ID
	}
	return n.report(ctx, "append to log of", ids, calls...)
}

// RunRecord is the record of a run of a task that the caller holds or has settled.
type RunRecord struct {
	Claim
	Bytes []byte // nil if the record is too large to be kept, which the task then says
	// Encrypted is what the task says of the bytes.
	Encrypted bool
}

// KeepRecords stores records, and deletes the oldest ones of the tenant if all together have more than 64 MiB. The
// errors are as in Progress.
func (n *Node) KeepRecords(ctx context.Context, records []RunRecord) []error {
	calls, ids := make([]store.Call, len(records)), make([]string, len(records))
	for i, r := range records {
		mark := ""
		if r.Encrypted {
			mark = store.Encrypted
		}
		calls[i], ids[i] = store.NewCall("record", n.client.Store().Keys.Records(), n.id, r.proof(), r.ID, r.Run,
			n.client.Store().Seal.Seal(r.ID, r.Bytes),
			store.RecordBytes, mark), r.ID
	}
	return n.report(ctx, "keep the record of", ids, calls...)
}

// MaxCheckpoint is the maximum size of a checkpoint in bytes.
const MaxCheckpoint = 1 << 20

// Checkpoint stores value for the next run of a held task, even if this run ends in a crash. An empty value deletes the
// checkpoint, and so does the completion of the task. The error is queue.ErrInvalid if value is longer than
// MaxCheckpoint.
func (n *Node) Checkpoint(ctx context.Context, name string, claim Claim, value []byte) error {
	if len(value) > MaxCheckpoint {
		return fmt.Errorf("%w: checkpoint of %d bytes: at most %d", queue.ErrInvalid, len(value), MaxCheckpoint)
	}
	return n.report(ctx, "keep checkpoint of", []string{claim.ID},
		store.NewCall("checkpoint", n.client.Store().Keys.Reserved(name, n.id),
			n.client.Store().Clock, n.id, claim.ID, claim.proof(), n.client.Store().Seal.Seal(claim.ID, value)))[0]
}

// ReadCheckpoint reads the checkpoint that an earlier run of a task left; nil if there is none.
func (n *Node) ReadCheckpoint(ctx context.Context, id string) ([]byte, error) {
	value, err := n.client.Store().RDB.HGet(ctx, n.client.Store().Keys.Bytes(id), "checkpoint").Bytes()
	if store.IsNil(err) {
		return nil, nil
	}
	if err == nil {
		value, err = n.client.Store().Seal.Open(value)
	}
	return value, store.Wrap("read checkpoint of task "+id, err)
}
