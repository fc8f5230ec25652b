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
)

// The calls of a session to Redis, as metrics and logs name them.
const (
	opJoin      = "join"
	opRenew     = "renew"
	opRegister  = "register"
	opSubscribe = "subscribe"
	opReserve   = "reserve"
	opSettle    = "settle"
	opPoll      = "poll"
	opDue       = "due"
	opLog       = "log"
	opReclaim   = "reclaim"
	opControl   = "control"
	opPurge     = "purge"
	opTally     = "tally"
	opPublish   = "publish"
	opAdvance   = "advance"

	opDeclareSubscription = "declare_subscription"
	opTick                = "tick"
	opDeclare             = "declare"
)

// health keeps which of a session's calls Redis serves. A Redis that is away or refuses everybody is trouble with an op; an
// error about one queue is the queue's alone, and no concern of others.
type health struct {
	metrics *metrics.Metrics
	logger  hclog.Logger
	wake    func() // called when reserving may be tried again

	mu        sync.Mutex       // guards what follows; no other lock is taken while it is held
	trouble   map[string]bool  // the ops that Redis did not serve the last time
	toldAway  bool             // the log says of this trouble that Redis is away
	toldNo    bool             // and that it refuses
	refused   map[queueOp]bool // what Redis refused the last time
	reserving backoff          // the pause after a reserve that failed
	// deadLetters is when a queue's last dead letter was not written.
	deadLetters map[string]time.Time
}

// deadLetterRow is the longest time between two unwritten dead letters of one row.
const deadLetterRow = time.Minute

type queueOp struct{ op, queue string }

func newHealth(metrics *metrics.Metrics, logger hclog.Logger, wake func()) *health {
	return &health{
		metrics: metrics, logger: logger, wake: wake,
		trouble: make(map[string]bool), refused: make(map[queueOp]bool),
		deadLetters: make(map[string]time.Time),
	}
}

// failed notes a failed call, for a queue or "" for none: each is counted. Of a row the log has the first call that Redis was
// away for, and the first that it refused: an outage must not hide a key that nothing but a repair mends. After a reserve
// that Redis did not serve, reserving pauses, for longer each time.
func (h *health) failed(op, name string, err error) {
	h.metrics.RedisError(op)
	away := queue.IsUnavailable(err)
	if name != "" && !away {
		h.failedQueue(queueOp{op, name}, err)
		return
	}
	h.mu.Lock()
	told := &h.toldNo
	if away {
		told = &h.toldAway
	}
	first := !*told
	*told = true
	h.trouble[op] = true
	if op == opReserve {
		time.AfterFunc(h.reserving.failed(time.Now()), h.wake)
	}
	h.mu.Unlock()
	var reply redis.Error
	switch {
	case first && away && errors.As(err, &reply):
		h.logger.Warn("Redis cannot serve now, as its error says; retrying", "op", op, "error", reasons(err))
	case first && away:
		h.logger.Warn("cannot reach Redis; retrying", "op", op, "error", reasons(err))
	case first:
		h.logger.Error("Redis refuses the tenant: repair the key or the Redis user that the error names; retrying", "op", op, "error", reasons(err))
	default:
		h.logger.Debug("Redis still cannot serve", "op", op, "error", reasons(err))
	}
}

// reasons is the text of an error in one line, which operators search for; of joined errors that say the same it has one.
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

// noDeadLetter notes why the dead letter of a failed task was not written; "" if it was. name is the queue, "" for any. The
// first of a row is logged: nobody notes the letters that were written, so time ends a row.
func (h *health) noDeadLetter(op, name, why string) {
	if why == "" {
		return
	}
	h.metrics.RedisError(op)
	now := time.Now()
	h.mu.Lock()
	maps.DeleteFunc(h.deadLetters, func(_ string, last time.Time) bool { return now.Sub(last) > deadLetterRow })
	_, again := h.deadLetters[name]
	h.deadLetters[name] = now
	h.mu.Unlock()
	level := hclog.Error
	if again {
		level = hclog.Debug
	}
	h.logger.Log(level, "a task failed and its dead letter was not written: rename or delete the key that the error names, then `quern task retry ID`",
		"op", op, "queue", name, "error", why)
}

// succeeded ends the trouble with an op, and what Redis refused of it for the queue. Trouble with other ops may go on: a Redis
// that is full renews a lease, but refuses to reserve.
func (h *health) succeeded(op, name string) {
	h.mu.Lock()
	delete(h.refused, queueOp{op, name})
	over := h.answered(op)
	h.mu.Unlock()
	if over {
		h.logger.Info("Redis answers again")
	}
}

// answered ends the trouble with an op, and tells whether it was the last one. The caller holds mu.
func (h *health) answered(op string) (over bool) {
	if op == opReserve {
		h.reserving.succeeded()
	}
	over = h.trouble[op] && len(h.trouble) == 1
	delete(h.trouble, op)
	if over {
		h.toldAway, h.toldNo = false, false
	}
	return over
}

// failedQuietly notes a failure that costs nothing but time.
func (h *health) failedQuietly(op string, err error) {
	h.metrics.RedisError(op)
	h.logger.Debug("Redis did not serve", "op", op, "error", reasons(err))
}

// healthy tells whether Redis served the last call of each op.
func (h *health) healthy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.trouble) == 0
}

// mayReserve tells whether the pause after a reserve that failed is over.
func (h *health) mayReserve(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reserving.over(now)
}
