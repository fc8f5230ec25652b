package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// inlineBytes is the most parameters that come with a reserve; larger ones are fetched by the
	// slot that runs the task. batchBytes bounds a whole reserve.
	inlineBytes = 64 << 10
	batchBytes  = 4 << 20
)

// Node is one listener ID of a tenant with all the queues that it listens to: what a host is in
// Redis. Its methods are safe for concurrent use; it starts no goroutine: whoever owns it renews it.
type Node struct {
	client *Client
	id     string
	pid    int

	mu     sync.Mutex
	queues map[string]bool // every queue that it was ever registered for; guarded by mu
}

// Node makes a listener with a new ID; Redis hears of it when it joins.
func (c *Client) Node() *Node {
	return &Node{client: c, id: newListenerID(), pid: os.Getpid(), queues: make(map[string]bool)}
}

// ID is the listener ID.
func (n *Node) ID() string { return n.id }

// Join makes the node known, with a lease, before it listens to any queue. Joining again renews.
func (n *Node) Join(ctx context.Context) error {
	_, err := n.client.eval(ctx, call{
		script: joinScript,
		keys:   []string{n.client.keys.nodes()},
		args:   []any{n.client.clock, n.id, n.client.config.Lease.Seconds()},
	})
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return nil
}

// Register makes the node, which has joined, a listener of the queue. Registering again is no change.
func (n *Node) Register(ctx context.Context, queue string) error {
	if err := ValidQueue(queue); err != nil {
		return err
	}
	n.mu.Lock()
	n.queues[queue] = true
	n.mu.Unlock()
	k := n.client.keys
	_, err := n.client.eval(ctx, call{
		script: registerScript,
		keys:   []string{k.listeners(queue), k.queues()},
		args:   []any{n.id, queue},
	})
	if err != nil {
		return fmt.Errorf("register listener for %q: %w", queue, err)
	}
	return nil
}

// Unlisted lists those of the queues that do not know the node as a listener, or that NS_queues does not have, because
// their keys were deleted, or an older state of Redis came back: Register mends both. Damaged ones are left out.
func (n *Node) Unlisted(ctx context.Context, queues []string) (unlisted []string, err error) {
	k := n.client.keys
	for block := range slices.Chunk(queues, pageTasks) {
		listens, known := make([]*redis.BoolCmd, len(block)), make([]*redis.FloatCmd, len(block))
		_, err := n.client.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, queue := range block {
				listens[i], known[i] = p.SIsMember(ctx, k.listeners(queue), n.id), p.ZScore(ctx, k.queues(), queue)
			}
			return nil
		})
		if err = passReplies(err); err != nil && !isNil(err) {
			return nil, fmt.Errorf("read listeners: %w", err)
		}
		for i, queue := range block {
			if listens[i].Err() == nil && !listens[i].Val() || isNil(known[i].Err()) {
				unlisted = append(unlisted, queue)
			}
		}
	}
	return unlisted, nil
}

// Unregister ends listening to the queue; what the node still holds of it can be settled.
func (n *Node) Unregister(ctx context.Context, queue string) error {
	return n.unregister(ctx, []string{queue})
}

// unregister ends listening to many queues. A damaged one does not keep the node in the others.
func (n *Node) unregister(ctx context.Context, queues []string) error {
	k := n.client.keys
	var errs []error
	for block := range slices.Chunk(queues, pageTasks) {
		calls := make([]call, len(block))
		for i, queue := range block {
			calls[i] = call{script: unregisterScript, keys: []string{k.listeners(queue), k.queues()}, args: []any{n.id, queue}}
		}
		for i, reply := range n.client.evalAll(ctx, calls) {
			err := wrap(fmt.Sprintf("unregister listener from %q", block[i]), reply.err)
			if ctx.Err() != nil || IsUnavailable(err) {
				return err
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Renew renews the lease and publishes what the node says of itself (field → text); drain tells that
// somebody wishes it to end. ErrLeaseLost means that others count it as dead: it must drop what it held
// and start anew as another node.
func (n *Node) Renew(ctx context.Context, about map[string]string) (drain bool, err error) {
	k, lease := n.client.keys, n.client.config.Lease
	args := []any{n.client.clock, n.id, lease.Seconds(), int64((3 * lease).Seconds()), "lease", durationText(lease)}
	for field, text := range about {
		args = append(args, field, text)
	}
	answer, err := evalOn(ctx, n.client.beats, call{
		script: renewScript,
		keys:   []string{k.nodes()},
		args:   args,
	})
	if err != nil {
		return false, fmt.Errorf("renew lease of %s: %w", n.id, err)
	}
	if answer == "lost" || answer == "lost drain" {
		return answer != "lost", fmt.Errorf("%s: %w", n.id, ErrLeaseLost)
	}
	return answer == "drain", nil
}

// Leave takes the node out of every listener set and forgets it, if it holds nothing any more. What it holds stays its own
// until its lease ends. Leaving twice counts once.
func (n *Node) Leave(ctx context.Context) error {
	n.mu.Lock()
	queues := slices.Collect(maps.Keys(n.queues))
	n.mu.Unlock()
	if err := n.unregister(ctx, queues); err != nil {
		return err
	}
	if holds, err := n.holds(ctx, queues); holds || err != nil {
		return err
	}
	// A reserve may be on its way still. Once the node is condemned none takes anything, and what one has taken since that
	// look others reclaim.
	k := n.client.keys
	_, err := n.client.eval(ctx, call{script: condemnScript, keys: []string{k.nodes()}, args: []any{n.client.clock, n.id, "own"}})
	if err != nil {
		return fmt.Errorf("end lease of %s: %w", n.id, err)
	}
	if holds, err := n.holds(ctx, queues); holds || err != nil {
		return err
	}
	return n.client.retire(ctx, n.id, "")
}

// holds tells whether the node holds a task of one of many queues, damaged ones left out.
func (n *Node) holds(ctx context.Context, queues []string) (bool, error) {
	for block := range slices.Chunk(queues, pageTasks) {
		cmds := make([]*redis.IntCmd, len(block))
		_, err := n.client.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, queue := range block {
				cmds[i] = p.LLen(ctx, n.client.keys.reserved(queue, n.id))
			}
			return nil
		})
		if err = passReplies(err); err != nil {
			return false, fmt.Errorf("read reserved lists: %w", err)
		}
		if slices.ContainsFunc(cmds, func(cmd *redis.IntCmd) bool { return cmd.Val() > 0 }) {
			return true, nil
		}
	}
	return false, nil
}

// MaxReserve is how many tasks one Want brings at most.
const MaxReserve = blockTasks

// Want asks for tasks of one queue.
type Want struct {
	Queue string
	// Count is the most tasks to reserve (1 to MaxReserve; the rest of a larger one is not reserved).
	Count int
	// Start marks them as started by this process at once, for slots that are free.
	Start bool
	// Plugin and Digest name what will run them; they are written with Start.
	Plugin, Digest string
	// MaxAge is the longest age of a task that names none itself (0: none).
	MaxAge time.Duration
	// MaxRunning bounds the tasks that run in the fleet (0: not), together in the queues of Fleet
	// (default: this one).
	MaxRunning int
	Fleet      []string
	// Terms are written with Start, for whoever finds the tasks when this node has died.
	Terms Terms
}

// Terms are what a plugin's manifest says about the end of its tasks.
type Terms struct {
	// NoRerun fails a task whose host dies while it runs; else it runs again, until it has lost
	// MaxCrashes hosts, or as many as the reclaiming host is set to if that is less (0: as that is set).
	NoRerun    bool
	MaxCrashes int
	// Dead is the queue that gets a dead letter of a task that failed for good ("": none).
	Dead string
}

// fields are what the hash says of the terms; none for the default.
func (t Terms) fields() []any {
	var fields []any
	if t.NoRerun {
		fields = append(fields, "on_crash", "fail")
	}
	if t.MaxCrashes > 0 {
		fields = append(fields, "max_crashes", t.MaxCrashes)
	}
	if t.Dead != "" {
		fields = append(fields, "dead", t.Dead)
	}
	return fields
}

// Reservation is a task that the node holds.
type Reservation struct {
	ID   string
	Run  int64 // proves the hold, together with the node and what Hold keeps
	born string
	// Created and ETA are when the task was enqueued and due; zero if unknown.
	Created, ETA          time.Time
	Attempts, MaxAttempts int
	// Retry is what the task itself sets of its policy, Timeout its limit of an attempt (0: none),
	// Deadline by when it must be done, and Expires until when it may be tried again (zero: none).
	Retry                Retry
	Timeout              time.Duration
	Deadline, Expires    time.Time
	Reschedules, Rejects int
	// Last is why its attempt before has failed; zero if there was none: a host that died is no attempt.
	Last Failure
	// Parent, Depth, Traceparent and Key are those of its Options.
	Parent, Key, Traceparent string
	Depth                    int
	// Parameters have Size bytes; they are nil when Large: then Client.Parameters fetches them.
	Parameters []byte
	Size       int64
	Large      bool
}

// Since is when the task began to wait: when it was enqueued, or due if that is later.
func (r *Reservation) Since() time.Time {
	if r.ETA.After(r.Created) {
		return r.ETA
	}
	return r.Created
}

// Hold proves that the node holds the task.
func (r *Reservation) Hold() Hold { return Hold{ID: r.ID, Run: r.Run, born: r.born} }

// Batch is what one Want brought.
type Batch struct {
	Tasks []Reservation
	// Dropped counts IDs without a task, or of a task that is finished or held already; Passed those
	// that were taken from the list and not reserved, because they expired or wait for another listener.
	Dropped, Passed int
	// Quarantined says that nothing was reserved because the version that would run it is quarantined.
	Quarantined bool
	// DeadError is why a task that expired has no dead letter; "" if all have theirs.
	DeadError string
	// Clock is Redis's time of the reserve, and NextETA when the queue's next scheduled task is due
	// (zero: none); both are zero from Adopt.
	Clock, NextETA time.Time
	// Err says that nothing is known of this Want: the tasks may be reserved although the answer did
	// not come. Adopt finds them.
	Err error
}

// Reserve asks for tasks of several queues in one round trip. It must not be repeated blindly: see
// Batch.Err.
func (n *Node) Reserve(ctx context.Context, wants []Want) []Batch {
	k := n.client.keys
	calls := make([]call, len(wants))
	for i, want := range wants {
		calls[i] = call{
			script: reserveScript,
			keys:   []string{k.pending(want.Queue), k.reserved(want.Queue, n.id)},
			args: []any{
				n.client.clock, want.Queue, n.id, min(want.Count, MaxReserve), n.startAs(want), inlineBytes, batchBytes, want.Plugin, want.Digest,
				optional(want.MaxAge > 0, durationText(want.MaxAge)), optional(want.MaxRunning > 0, strconv.Itoa(want.MaxRunning)),
				cmp.Or(strings.Join(want.Fleet, " "), want.Queue),
			},
		}
		if want.Start {
			calls[i].args = append(calls[i].args, want.Terms.fields()...)
		}
	}
	batches := make([]Batch, len(wants))
	for i, reply := range n.client.evalAll(ctx, calls) {
		batches[i] = newBatch(reply)
		if batches[i].Err != nil {
			batches[i].Err = fmt.Errorf("reserve from %q: %w", wants[i].Queue, batches[i].Err)
		}
	}
	return batches
}

// Held reads the IDs in the node's own reserved list of the queue, newest first.
func (n *Node) Held(ctx context.Context, queue string) ([]string, error) {
	ids, err := n.client.rdb.LRange(ctx, n.client.keys.reserved(queue, n.id), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read reserved list of %q: %w", queue, err)
	}
	return ids, nil
}

// HeldAll reads what Held does of many queues, those that hold nothing or are damaged left out.
func (n *Node) HeldAll(ctx context.Context, queues []string) (map[string][]string, error) {
	held := make(map[string][]string)
	for block := range slices.Chunk(queues, pageTasks) {
		cmds := make([]*redis.StringSliceCmd, len(block))
		_, err := n.client.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, queue := range block {
				cmds[i] = p.LRange(ctx, n.client.keys.reserved(queue, n.id), 0, -1)
			}
			return nil
		})
		if err = passReplies(err); err != nil {
			return nil, fmt.Errorf("read reserved lists: %w", err)
		}
		for i, cmd := range cmds {
			if ids := cmd.Val(); len(ids) > 0 {
				held[block[i]] = ids
			}
		}
	}
	return held, nil
}

// Adopt takes on tasks that the node holds without knowing, because the answer to their Reserve did
// not come: IDs that Held brought and the caller does not have. The caller makes sure that no
// Reserve of the queue is on its way meanwhile.
func (n *Node) Adopt(ctx context.Context, want Want, ids []string) Batch {
	if len(ids) == 0 {
		return Batch{}
	}
	k := n.client.keys
	var terms []any
	if want.Start {
		terms = want.Terms.fields()
	}
	args := []any{
		n.client.clock, want.Queue, n.id, n.startAs(want), inlineBytes, batchBytes, want.Plugin, want.Digest, len(terms),
	}
	args = append(args, terms...)
	for _, id := range ids {
		args = append(args, id)
	}
	value, err := n.client.eval(ctx, call{
		script: adoptScript,
		keys:   []string{k.reserved(want.Queue, n.id)},
		args:   args,
	})
	batch := newBatch(reply{value, err})
	if batch.Err != nil {
		batch.Err = fmt.Errorf("adopt from %q: %w", want.Queue, batch.Err)
	}
	return batch
}

// startAs is the process that starts what is wanted, "" if it is only to be reserved.
func (n *Node) startAs(want Want) string {
	if !want.Start {
		return ""
	}
	return strconv.Itoa(n.pid)
}

func newBatch(r reply) Batch {
	if r.err != nil && strings.HasPrefix(r.err.Error(), "LEASELOST") {
		return Batch{Err: fmt.Errorf("%w: %w", ErrLeaseLost, r.err)}
	}
	if r.err != nil {
		return Batch{Err: r.err}
	}
	rows := asList(r.value)
	if len(rows) == 0 {
		return Batch{Err: errors.New("unexpected answer of a script")}
	}
	header := asList(rows[0])
	if len(header) < 5 {
		return Batch{Err: errors.New("unexpected answer of a script")}
	}
	batch := Batch{
		Dropped: int(asInt(header[0])), Passed: int(asInt(header[3])), Clock: parseSeconds(asString(header[1])), NextETA: parseETA(asString(header[2])),
		Quarantined: asInt(header[4]) == 1, Tasks: make([]Reservation, 0, len(rows)-1),
	}
	if len(header) > 5 {
		batch.DeadError = asString(header[5])
	}
	for _, row := range rows[1:] {
		f := asList(row)
		if len(f) < 19 {
			return Batch{Err: errors.New("unexpected answer of a script")}
		}
		task := Reservation{
			ID: asString(f[0]), Run: asInt(f[1]), born: bornAt(asString(f[2])), Created: parseSeconds(asString(f[2])), ETA: parseSeconds(asString(f[3])),
			Attempts: int(asInt(f[4])), MaxAttempts: int(asInt(f[5])), Expires: parseSeconds(asString(f[7])),
			Retry:       parseRetry(asString(f[6]), asString(f[5]), asString(f[12])),
			Reschedules: int(asInt(f[8])), Rejects: int(asInt(f[9])),
			Timeout: secondsDuration(asString(f[10])), Deadline: parseSeconds(asString(f[11])),
			Parent: asString(f[14]), Key: asString(f[15]), Depth: int(asInt(f[16])), Traceparent: asString(f[17]),
			Size: asInt(f[18]), Large: true,
		}
		if text := asString(f[13]); text != "" {
			task.Last = parseFailure(text)
		}
		if len(f) > 19 && f[19] != nil {
			task.Parameters, task.Large = []byte(asString(f[19])), false
		}
		batch.Tasks = append(batch.Tasks, task)
	}
	return batch
}

// Hold is the proof of holding a task: which run of it the node has. That of a Reservation tells also a
// task from a later one of the same ID.
type Hold struct {
	ID  string
	Run int64
	// PID is the process that started it (default: this one).
	PID int
	// born is what bornAt says of the task; "" if it is not known.
	born string
}

// bornAt tells a task from others of its ID, by the text of its hash that says when it was created.
func bornAt(created string) string { return "@" + created }

// proof is the run as scripts take it.
func (h *Hold) proof() string { return strconv.FormatInt(h.Run, 10) + h.born }

// Again is why a task is tried again that did not fail for good.
type Again string

// A retry counts an attempt, a reschedule (by the handler's wish) and a reject (the listener would not
// have it) count their own.
const (
	AgainRetry      Again = "retry"
	AgainReschedule Again = "reschedule"
	AgainReject     Again = "reject"
)

// Settlement is how one run of a held task ends.
type Settlement struct {
	Hold
	// Result of a task that is complete.
	Result []byte
	// Failure of a task that failed; nil means complete.
	Failure *Failure
	// Again says that the failure is not the last word: the task waits for the delay and runs again.
	Again Again
	Delay time.Duration
	// Children are tasks that come into being with the completion of this one, or not at all: 256 at most. A queue that
	// is full takes them all the same: its limit is for who can be told to wait.
	Children []Child
}

// MaxWeight is how much one Settle should weigh together, in units of Weight.
const MaxWeight = blockTasks

// Weight is about how much work the settlement is for Redis. One unit is the work of completing a task without children,
// about ten commands of Redis.
func (s *Settlement) Weight() int {
	switch {
	case s.Failure == nil:
		return 1 + len(s.Children)
	case s.Again != "":
		return 2
	}
	return 4 // it may need a dead letter
}

// Child is a task that comes of another one. It needs an ID; one that exists already is left as it is.
type Child struct {
	Queue string
	Spec
}

// MaxChildren is how many tasks may come of one.
const MaxChildren = 256

// Validate refuses what could not be enqueued.
func (c *Child) Validate() error {
	if err := ValidQueue(c.Queue); err != nil {
		return err
	}
	if err := ValidID(c.ID); err != nil {
		return err
	}
	return c.validate()
}

// Size is about how many bytes it takes.
func (c *Child) Size() int { return len(c.Parameters) + c.metadata() }

// Settle ends the runs of held tasks of one queue in one script, of a Weight of MaxWeight together at most, and wakes the listeners
// of the queues in wake, whose tasks may have waited for these to end. It returns one error a settlement: nil, ErrLost
// (somebody else holds it; nothing was written), ErrNoTask, or ErrDamaged (a child's queue takes nothing; the task is still
// held), ErrNoLetter (it has failed); or, as the second value, that nothing is known: then the same call may be repeated, and finds its own mark on what
// was done. The bound is no refusal: it is how much Redis does in a few milliseconds.
func (n *Node) Settle(ctx context.Context, queue string, settlements []Settlement, wake ...string) ([]error, error) {
	k := n.client.keys
	args := []any{n.client.clock, queue, n.id, strings.Join(wake, " ")}
	holds := make([]Hold, len(settlements))
	for i, s := range settlements {
		action, reason, value := string(Complete), Reason(""), s.Result
		if s.Failure != nil {
			action, reason, value = string(Failed), s.Failure.reason(), s.Failure.encode()
		}
		if s.Failure != nil && s.Again != "" {
			action = string(s.Again)
		}
		text, companion := encodeValue(value)
		args = append(args, s.ID, s.proof(), s.pid(n), action, string(reason), text, companion, durationText(s.Delay), len(s.Children))
		for _, child := range s.Children {
			args = append(args, child.Queue)
			args = append(args, child.arguments(child.ID, child.Queue)...)
		}
		holds[i] = s.Hold
	}
	value, err := n.client.eval(ctx, call{
		script: settleScript,
		keys:   []string{k.reserved(queue, n.id)},
		args:   args,
	})
	return verdicts("settle", queue, holds, value, err)
}

// Release gives held tasks back to the front of the queue, at most MaxWeight; the newest come first.
// The answers are those of Settle.
func (n *Node) Release(ctx context.Context, queue string, held []Hold) ([]error, error) {
	k := n.client.keys
	args := []any{n.client.clock, queue, n.id}
	for _, h := range held {
		args = append(args, h.ID, h.proof(), h.pid(n))
	}
	value, err := n.client.eval(ctx, call{
		script: releaseScript,
		keys:   []string{k.reserved(queue, n.id)},
		args:   args,
	})
	return verdicts("release", queue, held, value, err)
}

func (h *Hold) pid(n *Node) int {
	if h.PID != 0 {
		return h.PID
	}
	return n.pid
}

func verdicts(verb, queue string, asked []Hold, value any, err error) ([]error, error) {
	answers := asList(value)
	if err == nil && len(answers) != len(asked) {
		err = errors.New("unexpected answer of a script")
	}
	if err != nil {
		return nil, fmt.Errorf("%s tasks of %q: %w", verb, queue, err)
	}
	errs := make([]error, len(answers))
	for i, answer := range answers {
		errs[i] = verdict(answer, asked[i].ID)
	}
	return errs, nil
}

// Start marks a task that was reserved without Want.Start: ErrLost or ErrNoTask if it is not held.
func (n *Node) Start(ctx context.Context, queue string, hold Hold) error {
	k := n.client.keys
	answer, err := n.client.eval(ctx, call{
		script: startScript,
		keys:   []string{k.reserved(queue, n.id)},
		args:   []any{n.client.clock, queue, n.id, hold.ID, hold.proof(), hold.pid(n)},
	})
	if err != nil {
		return fmt.Errorf("start task %s: %w", hold.ID, err)
	}
	return verdict(answer, hold.ID)
}

// optional is the text if it holds, else nothing.
func optional(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

func isNil(err error) bool { return errors.Is(err, redis.Nil) }
