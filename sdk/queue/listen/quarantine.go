package listen

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Breaker is the circuit breaker of a version of a plugin. It opens after this number of Failures of one kind in a
// row, on all hosts together: nothing is reserved for the version for Pause, and then one task as a probe. If the
// probe completes, the breaker closes. If it fails, the next pause is twice as long, up to MaxPause. Other tasks that
// end while the breaker is open began before, and do not count.
type Breaker struct {
	Plugin, Digest string
	// Queues are the plugin's. Their listeners are woken when the breaker opens, and when its probe has ended.
	Queues          []string
	Failures        int
	Pause, MaxPause time.Duration
}

// Weight is as that of a Settlement; 0 for nil.
func (b *Breaker) Weight() int {
	if b == nil {
		return 0
	}
	return 1 + len(b.Queues)/4
}

// text returns the argument for the script; "" for nil.
func (b *Breaker) text() string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("%d %.6f %.6f %s %s %s", b.Failures, b.Pause.Seconds(), b.MaxPause.Seconds(), b.Plugin, b.Digest,
		strings.Join(b.Queues, " "))
}

// Cause is why a version of a plugin is quarantined.
type Cause string

// A version is quarantined if its tasks crashed several hosts, or while its circuit breaker is open: see Breaker.
const (
	CauseCrashes  Cause = "crashes"
	CauseFailures Cause = "failures"
)

// causes are the causes in the reply of reserve.lua.
var causes = map[string]Cause{"1": CauseCrashes, "2": CauseFailures}

// Quarantine is a version of a plugin for which hosts reserve nothing until the quarantine ends.
type Quarantine struct {
	Plugin, Digest string
	Cause          Cause
	Until          time.Time // when the quarantine ends by itself, or the circuit breaker lets a task run as a probe
	Listeners      []string  // those that crashed; none if Cause is CauseFailures
	// With CauseFailures, this number of runs in a row failed for Reason. Probe is the task that runs as a probe; "" if
	// none does yet.
	Failures int
	Reason   queue.Reason
	Probe    string
}

// Why says for people why the version is quarantined.
func (q *Quarantine) Why() string {
	switch {
	case q.Cause == CauseCrashes:
		return "its tasks ended " + strings.Join(q.Listeners, ", ")
	case q.Probe != "":
		return fmt.Sprintf("%d of its runs in a row failed (%s), and the task %s runs as a probe", q.Failures, q.Reason, q.Probe)
	}
	return fmt.Sprintf("%d of its runs in a row failed (%s), and a task runs as a probe at %s", q.Failures, q.Reason,
		q.Until.UTC().Format(time.RFC3339))
}

// Quarantines lists the quarantines of the tenant, by plugin and digest. A circuit breaker is left out if its pause is
// over and it waits for a task, because no task waits for it then.
func (f *Fleet) Quarantines(ctx context.Context) ([]Quarantine, error) {
	c := f.client
	versions, err := c.Store().RDB.HGetAll(ctx, c.Store().Keys.Crashes()).Result()
	if err != nil || len(versions) == 0 {
		return nil, store.Wrap("read quarantines of "+c.Store().Keys.Crashes(), err)
	}
	now, err := c.Store().Now(ctx)
	if err != nil {
		return nil, err
	}
	var list []Quarantine
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		words := strings.Fields(versions[version])
		if len(words) == 0 {
			continue
		}
		q := Quarantine{Cause: CauseCrashes, Until: store.ParseSeconds(words[0])}
		q.Plugin, q.Digest, _ = strings.Cut(version, " ")
		if digest, failures := strings.CutSuffix(q.Digest, store.Failures); failures {
			q.Digest = digest
			if !q.readBreaker(words, now) || len(list) > 0 && list[len(list)-1].is(&q) {
				continue
			}
		} else {
			if !q.Until.After(now) {
				continue
			}
			for i := 1; i < len(words); i += 2 { // "UNTIL LISTENER SECOND LISTENER SECOND ..."
				q.Listeners = append(q.Listeners, words[i])
			}
		}
		list = append(list, q)
	}
	return list, nil
}

// is reports whether both quarantines are of the same version.
func (q *Quarantine) is(other *Quarantine) bool {
	return q.Plugin == other.Plugin && q.Digest == other.Digest
}

// readBreaker reads the state of a circuit breaker, "UNTIL REASON FROM PAUSE ROW LISTENER ID", and reports whether it
// holds tasks back.
func (q *Quarantine) readBreaker(words []string, now time.Time) bool {
	if len(words) != 7 || store.SecondsDuration(words[3]) == 0 {
		return false
	}
	q.Cause, q.Reason, q.Failures = CauseFailures, queue.Reason(words[1]), int(store.AsInt(words[4]))
	if words[6] != "-" {
		q.Probe = words[6]
	}
	return q.Probe != "" || q.Until.After(now) && !store.ParseSeconds(words[2]).After(now)
}
