package host

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// The names under which metrics and logs report a session's calls to Redis. The calls of its listener and of its upkeep
// have their own names.
const (
	opReserve = "reserve"
	opSettle  = "settle"
	opPoll    = "poll"
	opWeigh   = "weights"
	opLog     = "log"
	opTally   = "tally"
)

// health records which kinds of calls (ops) Redis answers now. If Redis is away, or refuses a call that concerns no
// single queue, the whole op is in trouble. If Redis refuses a call for one queue, only the op for that queue is marked
// as refused.
type health struct {
	metrics *metrics.Metrics
	logger  hclog.Logger
	wake    func() // called when the pause after a failed reserve is over

	mu                        sync.Mutex       // guards the fields below; no other lock is taken while it is held
	trouble                   map[string]bool  // the ops that are in trouble
	loggedAway, loggedRefusal bool             // whether this trouble was logged: Redis is away, Redis refuses
	refused                   map[queueOp]bool // the ops whose last call for a queue was refused
	reserving                 periodic.Pause   // the pause after a reserve that failed
	// deadLetters maps a queue to the last time at which the dead letter of one of its tasks could not be written.
	deadLetters map[string]time.Time
}

// deadLetterRow is the longest gap in a series of unwritten dead letters: see NoDeadLetter.
const deadLetterRow = time.Minute

type queueOp struct{ op, queue string }

func newHealth(metrics *metrics.Metrics, logger hclog.Logger, wake func()) *health {
	return &health{
		metrics: metrics, logger: logger, wake: wake,
		trouble: make(map[string]bool), refused: make(map[queueOp]bool),
		deadLetters: make(map[string]time.Time),
	}
}

// Failed counts a failed call. name is the queue of the call, or "" if the call concerns no single queue. While trouble
// lasts, Failed logs the first call for which Redis was away and the first that Redis refused: an outage must not hide
// a key that needs repair. When the reserve op is in trouble, reserving pauses, longer after each failure.
func (h *health) Failed(op, name string, err error) {
	h.metrics.RedisError(op)
	away := queue.IsUnavailable(err)
	if name != "" && !away {
		h.failedQueue(queueOp{op, name}, err)
		return
	}
	h.mu.Lock()
	logged := &h.loggedRefusal
	if away {
		logged = &h.loggedAway
	}
	first := !*logged
	*logged = true
	h.trouble[op] = true
	if op == opReserve {
		time.AfterFunc(h.reserving.Failed(time.Now()), h.wake)
	}
	h.mu.Unlock()
	var reply redis.Error
	switch {
	case first && away && errors.As(err, &reply):
		h.logger.Warn("Redis cannot serve now, as its error says; retrying", "op", op, "error", reasons(err))
	case first && away:
		h.logger.Warn("cannot reach Redis; retrying", "op", op, "error", reasons(err))
	case first:
		h.logger.Error("Redis refuses the tenant: repair the key or the Redis user that the error names; retrying", "op", op,
			"error", reasons(err))
	default:
		h.logger.Debug("Redis still cannot serve", "op", op, "error", reasons(err))
	}
}

// reasons formats an error as one line, so that operators can search for it. A text that joined errors repeat in a row
// appears once.
func reasons(err error) string {
	return strings.Join(slices.Compact(strings.Split(err.Error(), "\n")), "; ")
}

func (h *health) failedQueue(of queueOp, err error) {
	h.mu.Lock()
	first := !h.refused[of]
	h.refused[of] = true
	over := h.answered(of.op)
	h.mu.Unlock()
	if over {
		h.logger.Info("Redis answers again")
	}
	if first {
		h.logger.Error("Redis refuses a queue; retrying", "op", of.op, "queue", of.queue, "error", reasons(err))
	} else {
		h.logger.Debug("Redis still refuses a queue", "op", of.op, "queue", of.queue, "error", reasons(err))
	}
}

// NoDeadLetter counts and logs why the dead letter of a failed task was not written. It does nothing if why is "". name
// is the queue of the task, or "" if unknown. Only the first failure of a series is logged as an error. A series ends
// after deadLetterRow without a failure, because successful writes are not recorded.
func (h *health) NoDeadLetter(op, name, why string) {
	if why == "" {
		return
	}
	h.metrics.RedisError(op)
	now := time.Now()
	h.mu.Lock()
	maps.DeleteFunc(h.deadLetters, func(_ string, last time.Time) bool { return now.Sub(last) > deadLetterRow })
	_, repeated := h.deadLetters[name]
	h.deadLetters[name] = now
	h.mu.Unlock()
	level := hclog.Error
	if repeated {
		level = hclog.Debug
	}
	h.logger.Log(level, "a task failed and its dead letter was not written: rename or delete the key that the error names, then `quern task retry ID`",
		"op", op, "queue", name, "error", why)
}

// Succeeded records a successful call. It ends the trouble with the op, and the refusal of the op for the queue. Other
// ops can still be in trouble: a full Redis renews a lease, but refuses to reserve.
func (h *health) Succeeded(op, name string) {
	h.mu.Lock()
	delete(h.refused, queueOp{op, name})
	over := h.answered(op)
	h.mu.Unlock()
	if over {
		h.logger.Info("Redis answers again")
	}
}

// answered ends the trouble with an op, and reports whether that was the last trouble. The caller holds mu.
func (h *health) answered(op string) (over bool) {
	if op == opReserve {
		h.reserving.Succeeded()
	}
	over = h.trouble[op] && len(h.trouble) == 1
	delete(h.trouble, op)
	if over {
		h.loggedAway, h.loggedRefusal = false, false
	}
	return over
}

// FailedQuietly counts a failure that only delays work, and logs it for debugging.
func (h *health) FailedQuietly(op string, err error) {
	h.metrics.RedisError(op)
	h.logger.Debug("Redis did not serve", "op", op, "error", reasons(err))
}

// healthy reports whether no op is in trouble. The refusal of an op for one queue does not count.
func (h *health) healthy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.trouble) == 0
}

// mayReserve reports whether the pause after a failed reserve is over.
func (h *health) mayReserve(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reserving.Over(now)
}
