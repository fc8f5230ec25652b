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

const (
	// MaxInline is the maximum size in bytes of parameters that a reserve returns together with the task.
	MaxInline = 64 << 10
	// batchBytes is the maximum size in bytes of all parameters that one ReserveRequest returns. tripBytes is roughly the
	// maximum for one round trip.
	batchBytes = 4 << 20
	tripBytes  = 16 << 20
)

// MaxReserve is the maximum number of tasks of one ReserveRequest.
const MaxReserve = 128

// maxClaims is the maximum number of tasks that one script call adopts or releases.
const maxClaims = store.BlockTasks

// ReserveRequest asks for tasks of one queue.
type ReserveRequest struct {
	Queue string
	Count int  // maximum number of tasks to reserve, up to MaxReserve
	Start bool // whether to mark the tasks at once as started by this process
	// Plugin and Digest name the plugin version that will run the tasks, and Version is its name for people ("": none).
	// With Start, all three are written to the tasks.
	Plugin, Digest, Version string
	MaxAge                  time.Duration // the maximum age of tasks that set none themselves (0: no maximum)
	// MaxRunning is the maximum number of tasks that run at once on all hosts, counted over all queues in Fleet (0: no
	// maximum). Fleet is only this queue by default.
	MaxRunning int
	Fleet      []string
	// Memory is how many bytes of memory a task may use, for the tenant's quota (0: unknown, and not counted).
	Memory int64
	// With Start, FailurePolicy is written to the tasks. If this node dies, the node that reclaims the tasks reads it.
	FailurePolicy FailurePolicy
	// Breaker is true if the version has a circuit breaker: see Breaker. Only with Start.
	Breaker bool
	// Release is the number of the release that the version is; 0 if it is none. Without one, or without Start, the fields
	// below do not count. Pin makes a task keep to this release in its further attempts.
	Release int
	Pin     bool
	// Canary is the release that gets a share of the tasks; nil if there is none. Its tasks, and those that are pinned to
	// another release, run on the release of that number in Others. Tasks whose release is not there wait a second for
	// another listener, for a minute in all; then the request's version runs them. A new canary begins on one listener
	// alone: its tasks wait in the same way on the others.
	Canary *CanaryShare
	Others []OtherRelease
}

// CanaryShare is a release with the tasks that are to run on it: a percentage of all, or those with a label.
type CanaryShare struct {
	Number  int
	Percent float64
	Needle  string // the label as JSON, as release.Share.Needle returns it; "" if Percent counts
}

// OtherRelease is a release of a plugin that can run tasks of a request beside the request's version. If Gone is true,
// nobody can get it any more: tasks that are pinned to it are no longer.
type OtherRelease struct {
	Number                  int
	Gone                    bool
	Plugin, Digest, Version string
	FailurePolicy           FailurePolicy
	Breaker                 bool // as in ReserveRequest
	Pin                     bool
}

// FailurePolicy has the settings of a plugin's manifest for tasks that fail for good, or whose host dies.
type FailurePolicy struct {
	// If NoRerun is true, a task fails if its host dies while the task runs. Otherwise the task runs again, until it has
	// crashed MaxCrashes hosts, or fewer if the reclaiming host's own number is smaller. If MaxCrashes is 0, the
	// reclaiming host's number counts.
	NoRerun    bool
	MaxCrashes int
	Dead       string // the queue of dead letters ("": none)
}

// fields returns the fields that Start writes to the tasks' hashes.
func (r *ReserveRequest) fields() []any {
	if !r.Start {
		return nil
	}
	return (&OtherRelease{
		Number: r.Release, Plugin: r.Plugin, Digest: r.Digest, Version: r.Version, FailurePolicy: r.FailurePolicy, Pin: r.Pin,
	}).fields()
}

// releases returns the arguments for the function runners of the scripts, after the number of the release that serves.
func (r *ReserveRequest) releases() []any {
	if !r.Start || r.Release == 0 {
		return []any{"", 0}
	}
	if r.Canary == nil && len(r.Others) == 0 {
		return []any{r.Release, 0}
	}
	args := []any{r.Release, 0, ""}
	switch c := r.Canary; {
	case c == nil:
	case c.Needle != "":
		args[2] = fmt.Sprintf("%d label %s", c.Number, c.Needle)
	default:
		args[2] = fmt.Sprintf("%d %s", c.Number, strconv.FormatFloat(c.Percent, 'f', -1, 64))
	}
	for _, o := range r.Others {
		fields, version := o.fields(), store.Optional(!o.Gone, o.Plugin+" "+o.Digest)
		args = append(append(args, o.Number, version, store.Optional(o.Breaker, "1"), len(fields)), fields...)
	}
	args[1] = len(args) - 2
	return args
}

func (r *OtherRelease) fields() []any {
	p := r.FailurePolicy
	return store.AppendFields(nil,
		"plugin", r.Plugin,
		"digest", strings.TrimPrefix(r.Digest, store.DigestPrefix),
		"version", r.Version,
		"release", store.Optional(r.Number > 0, strconv.Itoa(r.Number)),
		"on_crash", store.Optional(p.NoRerun, "fail"),
		"max_crashes", store.Optional(p.MaxCrashes > 0, strconv.Itoa(p.MaxCrashes)),
		"dead", p.Dead,
		"pinned", store.Optional(r.Pin && r.Number > 0, strconv.Itoa(r.Number)),
	)
}

// Reservation is a task that the node holds.
type Reservation struct {
	ID   string
	Run  int64 // Run and Born are parts of the Claim
	Born string
	// Created is when the task was enqueued, ETA when it was due, and RetriedAt when an operator retried it. A time is
	// zero if it is unknown, or if there is none.
	Created, ETA, RetriedAt time.Time
	Attempts                int // number of attempts that have ended before
	// Retry has the fields of the policy that the task itself sets. Timeout is the task's time limit for one attempt (0:
	// none). Deadline is when the task must be complete, and Expires when it fails if it still waits (zero: never).
	Retry                queue.Retry
	Timeout              time.Duration
	Deadline, Expires    time.Time
	Reschedules, Rejects int
	// Last is the failure of the last failed attempt; zero if no attempt has failed. A run during which the host died is
	// no failed attempt.
	Last queue.Failure
	// Parent, Depth, Traceparent, Key and Headers are those of the task's queue.Options. Headers include traceparent.
	Parent, Key, Traceparent string
	Depth                    int
	Headers                  map[string]string
	// Parameters are Size bytes long in Redis. If Large is true, Parameters are nil, because they are many or cannot be
	// decrypted, and queue.Client.Parameters reads them or says what is wrong with them.
	Parameters []byte
	Size       int64
	Large      bool
	// Checkpointed is true if an earlier run has left a checkpoint, which Node.ReadCheckpoint reads.
	Checkpointed bool
	// Release is the number in ReserveRequest.Others of the release that runs the task; 0 if the request's version does.
	// Instead is the number of the task's release if the request's version runs it only because no host has that one.
	Release, Instead int
	Delayed          bool // the task waited until a host that may run its release took it
}

// Since returns when the task began to wait: when it was enqueued, due, or retried by hand, whichever is latest.
func (r *Reservation) Since() time.Time {
	since := r.Created
	for _, later := range [...]time.Time{r.ETA, r.RetriedAt} {
		if later.After(since) {
			since = later
		}
	}
	return since
}

// Claim returns the claim with which the node settles the task.
func (r *Reservation) Claim() Claim { return Claim{ID: r.ID, Run: r.Run, Born: r.Born} }

// ReserveReply is the reply to one ReserveRequest.
type ReserveReply struct {
	Tasks []Reservation
	// Dropped is the number of IDs that were removed from the pending list because their task does not exist, is
	// finished, already held or not yet due. Passed is the number of IDs that were removed because their task expired,
	// was cancelled, or must wait for another listener.
	Dropped, Passed int
	// Quarantined is why nothing was reserved for the plugin version, or only the probe of its circuit breaker; "": it is
	// not quarantined.
	Quarantined Cause
	// Lacking has the numbers of releases of tasks that must wait, because this node does not have them, or another one
	// tries the canary.
	Lacking []int
	// Early is true if the reserve ended before it had enough tasks, although the queue may have further ones: it met
	// many that it had to remove.
	Early     bool
	DeadError string // why the dead letter of an expired task was not written; "" if all were written
	// Clock is Redis's time of the reserve. NextETA is when the queue's next scheduled task is due. It is zero if no task
	// is scheduled; Adopt always leaves it zero.
	Clock, NextETA time.Time
	// If Err is not nil, the outcome is unknown: tasks may be reserved although the reply did not arrive. Held and Adopt
	// find these tasks.
	Err error
}

// Reserve asks for tasks of several queues at once. It must not be repeated blindly: see ReserveReply.Err.
func (n *Node) Reserve(ctx context.Context, requests []ReserveRequest) []ReserveReply {
	k := n.client.Store().Keys
	calls := make([]store.Call, len(requests))
	for i, r := range requests {
		version := store.Optional(r.Start && r.Plugin != "", r.Plugin+" "+r.Digest)
		fleet := fmt.Sprint(r.MaxRunning, " ", cmp.Or(strings.Join(r.Fleet, " "), r.Queue))
		calls[i] = store.Call{
			Script: store.AllScripts["reserve"],
			Keys:   []string{k.Pending(r.Queue), k.Reserved(r.Queue, n.id)}, Args: append([]any{
				n.client.Store().Clock, r.Queue, n.id, min(r.Count, MaxReserve), n.startAs(r), MaxInline, batchBytes, version,
				store.Optional(r.Breaker, "1"), store.DurationText(r.MaxAge), store.Optional(r.MaxRunning > 0, fleet), r.Memory,
			}, append(r.releases(), r.fields()...)...),
		}
	}
	replies := make([]ReserveReply, len(requests))
	for from := 0; from < len(calls); {
		to, size := from, 0
		for ; to < len(calls) && (to == from || size < tripBytes); to++ {
			size += min(max(requests[to].Count, 0)*MaxInline, batchBytes)
		}
		for i, reply := range n.client.Store().EvalAll(ctx, calls[from:to]) {
			replies[from+i] = n.readReserveReply(reply, requests[from+i].Start,
				fmt.Sprintf("reserve from %q", requests[from+i].Queue))
		}
		from = to
	}
	return replies
}

// Held reads the IDs in the node's own reserved list of the queue, newest first.
func (n *Node) Held(ctx context.Context, name string) ([]string, error) {
	ids, err := n.client.Store().RDB.LRange(ctx, n.client.Store().Keys.Reserved(name, n.id), 0, -1).Result()
	return ids, store.Wrap(fmt.Sprintf("read reserved list of %q", name), err)
}

// HeldAll is Held for many queues. It leaves out queues whose list is empty or damaged.
func (n *Node) HeldAll(ctx context.Context, queues []string) (map[string][]string, error) {
	held := make(map[string][]string)
	lists := make([]reservedList, len(queues))
	for i, queue := range queues {
		lists[i] = reservedList{n.id, queue, held}
	}
	return held, readReserved(ctx, n.client.Store(), lists)
}

// Adopt repeats the reply of Reserve for tasks that Held lists but the caller does not know, because the reply to their
// Reserve was lost. With request.Start, it also starts the tasks. Call Adopt only while no Reserve of the queue is on
// its way. If it fails, its reply has Err and the tasks that it has read before.
func (n *Node) Adopt(ctx context.Context, request ReserveRequest, ids []string) (all ReserveReply) {
	fields := request.fields()
	for part := range slices.Chunk(ids, maxClaims) {
		args := append([]any{
			n.client.Store().Clock, request.Queue, n.id, n.startAs(request), MaxInline, batchBytes, len(fields),
		}, append(request.releases(), fields...)...)
		for _, id := range part {
			args = append(args, id)
		}
		answer := store.NewCall("adopt", n.client.Store().Keys.Reserved(request.Queue, n.id), args...).On(ctx,
			n.client.Store().RDB)
		reply := n.readReserveReply(answer, request.Start, fmt.Sprintf("adopt from %q", request.Queue))
		if reply.Err != nil {
			all.Err = reply.Err
			break
		}
		all.Tasks, all.Clock = append(all.Tasks, reply.Tasks...), reply.Clock
		all.Dropped, all.Passed = all.Dropped+reply.Dropped, all.Passed+reply.Passed
	}
	return all
}

// startAs returns the process ID with which a reserve starts the tasks; "" if it does not start them.
func (n *Node) startAs(r ReserveRequest) string { return store.Optional(r.Start, strconv.Itoa(n.pid)) }

// readReserveReply parses the reply of reserve.lua or adopt.lua. started is true if the script started the tasks.
func (n *Node) readReserveReply(answer *redis.Cmd, started bool, what string) ReserveReply {
	reply, err := answer.Result()
	if redis.HasErrorPrefix(err, "LEASELOST") {
		err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	v := store.ValuesOf(reply)
	r := ReserveReply{Tasks: make([]Reservation, 0, len(v.Left)/rowValues), Dropped: v.Count()}
	clock := v.Text()
	r.Clock, r.NextETA = store.ParseSeconds(clock), v.Eta()
	r.Passed, r.Quarantined, r.DeadError = v.Count(), causes[v.Text()], v.Text()
	for _, number := range strings.Fields(v.Text()) {
		r.Lacking = append(r.Lacking, int(store.AsInt(number)))
	}
	r.Early = v.Flag()
	for err = cmp.Or(err, v.Err()); err == nil && v.More(); err = v.Err() {
		task := readReservation(&v)
		parameters, sealed := n.client.Store().Seal.Open(task.Parameters)
		if task.Parameters = parameters; sealed != nil {
			task.Large = true // queue.Client.Parameters says what is wrong with them
		}
		if started {
			task.Born += store.StartedAt(clock)
		}
		r.Tasks = append(r.Tasks, task)
	}
	if err != nil {
		return ReserveReply{Err: fmt.Errorf("%s: %w", what, err)}
	}
	return r
}

// rowValues is the number of values in the reply for a task that has no optional fields.
const rowValues = 7

func readReservation(v *store.Values) (r Reservation) {
	r.ID, r.Run = v.Text(), v.Number()
	if parameters := v.Next(); parameters != nil {
		r.Parameters = []byte(store.AsString(parameters))
	} else {
		r.Large = true
	}
	r.Size = v.Number()
	r.Born = store.BornAt("")
	var retry, maxAttempts, maxAge, headers string
	for n := v.Count(); n > 0 && !v.Short; n -= 2 {
		switch field, text := v.Text(), v.Text(); field {
		case "created":
			r.Born, r.Created = store.BornAt(text), store.ParseSeconds(text)
		case "started_at":
			r.Born += store.StartedAt(text)
		case "eta":
			r.ETA = store.ParseSeconds(text)
		case "retried_at":
			r.RetriedAt = store.ParseSeconds(text)
		case "attempts":
			r.Attempts = int(store.AsInt(text))
		case "max_attempts":
			maxAttempts = text
		case "retry":
			retry = text
		case "checkpoint":
			r.Checkpointed = text != "0"
		case "expires":
			r.Expires = store.ParseSeconds(text)
		case "reschedules":
			r.Reschedules = int(store.AsInt(text))
		case "rejects":
			r.Rejects = int(store.AsInt(text))
		case "timeout":
			r.Timeout = store.SecondsDuration(text)
		case "deadline":
			r.Deadline = store.ParseSeconds(text)
		case "max_age":
			maxAge = text
		case "last_error":
			r.Last = queue.ParseFailure(text)
		case "parent":
			r.Parent = text
		case "key":
			r.Key = text
		case "depth":
			r.Depth = int(store.AsInt(text))
		case "traceparent":
			r.Traceparent = text
		case "headers":
			headers = text
		case "release", "delayed":
			r.Release, r.Delayed = int(store.AsInt(text)), field == "delayed"
		case "instead":
			r.Instead = int(store.AsInt(text))
		}
	}
	r.Headers = queue.ParseHeaders(headers, r.Traceparent)
	r.Retry = queue.ParseRetry(retry, maxAttempts, maxAge)
	return r
}
