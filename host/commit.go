package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// maxRaces is how often a task runs again at once because its transaction lost against another one.
	maxRaces = 5
	// maxLosses is how often a task is put off before a run that loses its connection, after one that lost it too, counts
	// as an attempt.
	maxLosses = 3
	// maxShortages is the same for runs for which the server is out of memory.
	maxShortages = 10
	// A task whose database does not serve is put off for shortestAway, and longer each time, up to longestAway.
	shortestAway, longestAway = time.Second, time.Minute
)

// settled is a settlement as a row of quern.runs stores it.
type settled struct {
	Failure      *queue.Failure       `json:"failure,omitempty"` // nil if the task is complete
	Result       []byte               `json:"result,omitempty"`
	Children     []listen.Child       `json:"children,omitempty"`
	Publications []*queue.Publication `json:"publications,omitempty"`
}

func encode(s *listen.Settlement) []byte {
	text, _ := json.Marshal(settled{s.Failure, s.Result, s.Children, s.Publications}) // no value of these types fails
	return text
}

// decode returns the settlement that an earlier run of the task has stored. The role of the tenant's handlers can write
// such rows, so children and publications need the same permissions as those of a handler.
func decode(t *task, stored []byte) (listen.Settlement, error) {
	s := listen.Settlement{Claim: t.Claim()}
	var d settled
	if err := json.Unmarshal(stored, &d); err != nil {
		return s, fmt.Errorf("the task's row in quern.runs: %w", err)
	}
	allowed := t.version.Permissions
	if int64(len(d.Result)) > allowed.Limits.Output {
		return s, fmt.Errorf("the result in the task's row in quern.runs has %d bytes: return less, or raise limits.output",
			len(d.Result))
	}
	if len(d.Publications) > manifest.MaxPublications {
		return s, fmt.Errorf("the task's row in quern.runs has %d publications", len(d.Publications))
	}
	if len(d.Children) > listen.MaxChildren {
		return s, fmt.Errorf("the task's row in quern.runs has %d children", len(d.Children))
	}
	for i := range d.Children {
		c := &d.Children[i]
		c.Parent, c.Depth = t.ID, t.Depth+1
		if err := errors.Join(c.Validate(), allowed.DenyQueue(c.Queue), allowed.DenyDepth(t.Depth)); err != nil {
			return s, fmt.Errorf("a child in the task's row in quern.runs: %w", err)
		}
	}
	for _, p := range d.Publications {
		if p == nil {
			return s, errors.New("an empty publication in the task's row in quern.runs")
		}
		p.Parent, p.Depth = t.ID, t.Depth+1
		if err := errors.Join(p.Validate(), allowed.DenyTopic(p.Topic)); err != nil {
			return s, fmt.Errorf("a publication in the task's row in quern.runs: %w", err)
		}
	}
	s.Failure, s.Result, s.Children, s.Publications = d.Failure, d.Result, d.Children, d.Publications
	return s, nil
}

// attempt runs the guest of a task, and commits what it did in its database. If the task has run before, attempt first
// looks whether an earlier run has committed.
func (r *runner) attempt(ctx context.Context, t *task) *ended {
	var spent runtime.Outcome // by runs that raced
	for races := 0; ; races++ {
		e := &ended{task: t}
		services := r.servicesOf(t)
		if t.Run > 1 && races == 0 {
			if stored, err := t.databases.Stored(ctx); stored != nil || err != nil {
				r.adopt(ctx, e, stored, err)
				return e
			}
		}
		e.outcome = r.call(ctx, t, services)
		ran := e.outcome // commit may replace it
		e.settlement = settlement(e, r.config.Retry)
		again := t.databases != nil && r.commit(ctx, e, races < maxRaces)
		t.databases.Close()
		e.outcome.CPU, e.outcome.Fuel = spent.CPU+ran.CPU, spent.Fuel+ran.Fuel
		e.outcome.GuestTime, e.outcome.WaitTime = spent.GuestTime+ran.GuestTime, spent.WaitTime+ran.WaitTime
		if !again {
			return e
		}
		spent = e.outcome
		r.access.logger.Debug("task runs again: its transaction lost against another one", t.logged("times", races+1)...)
	}
}

// adopt settles a task with what an earlier run has stored, where err is why that cannot be read.
func (r *runner) adopt(ctx context.Context, e *ended, stored []byte, err error) {
	if err == nil {
		e.settlement, err = decode(e.task, stored)
	}
	if err != nil {
		r.failOrPutOff(ctx, e, err)
		return
	}
	e.outcome = runtime.Outcome{Kind: runtime.Complete, Output: e.settlement.Result}
}

// fail makes a failure of what a database said.
func (r *runner) fail(e *ended, err error) {
	e.outcome = runtime.Outcome{
		Kind: runtime.Failed, Code: 1, Message: e.task.secrets.Text([]byte(service.Told(err))), CPU: e.outcome.CPU,
		Fuel: e.outcome.Fuel, GuestTime: e.outcome.GuestTime, WaitTime: e.outcome.WaitTime, Stderr: e.outcome.Stderr,
	}
	e.settlement = settlement(e, r.config.Retry)
}

// cancel makes a cancelled task of one whose context has ended. What it has done may be lost, so it is not complete.
func (r *runner) cancel(ctx context.Context, e *ended) {
	e.outcome = runtime.Outcome{Kind: runtime.Cancelled, Err: context.Cause(ctx)}
	e.settlement = settlement(e, r.config.Retry)
}

// failOrPutOff makes a failure of what a database said. If the database does not serve, the task runs again later
// without an attempt being counted. A task whose runs lose their connection again and again may end it itself, and one
// for which the server is out of memory may use it up, so the next such run counts. If the context has ended, the task
// is cancelled.
func (r *runner) failOrPutOff(ctx context.Context, e *ended, why error) {
	if ctx.Err() != nil && (errors.Is(why, context.Canceled) || errors.Is(context.Cause(ctx), queue.ErrCancelled)) {
		r.cancel(ctx, e)
		return
	}
	t := e.task
	r.fail(e, why)
	again := func(of error, most int) bool {
		return errors.Is(why, of) && t.Reschedules >= most && strings.Contains(t.Last.Message, of.Error())
	}
	if !errors.Is(why, service.ErrUnavailable) || again(sql.ErrConnectionLost, maxLosses) ||
		again(sql.ErrOutOfMemory, maxShortages) {
		return
	}
	e.away = why
	delay := periodic.Doubled(shortestAway, longestAway, t.Reschedules)
	s := listen.Settlement{Claim: t.Claim(), Failure: Failure(e.outcome)}
	policy := t.policy(r.config.Retry)
	policy.MaxReschedules = max(policy.MaxReschedules, 0) // -1 is for what the handler asks for: see queue.Retry
	e.settlement = s.PutOff(policy, t.Reschedules, delay).NoLaterThan(t.expires(), t.Clock(time.Now()))
}

// commit commits the transaction of a task that has ended, or undoes it, and changes the settlement accordingly. again
// is true if the task has to run again at once.
func (r *runner) commit(ctx context.Context, e *ended, mayRace bool) (again bool) {
	databases := e.task.databases
	switch failure := e.settlement.Failure; {
	case e.outcome.Kind == runtime.Cancelled:
		return false
	case failure == nil && ctx.Err() != nil:
		r.cancel(ctx, e)
		return false
	case failure == nil:
		end := e.task.span.Commit(databases.Completes())
		stored, err := databases.Complete(ctx, encode(&e.settlement))
		end(err)
		switch {
		case errors.As(err, &e.unknown):
			return false
		case errors.Is(err, sql.ErrRaced) && mayRace:
			return true
		case stored != nil:
			r.adopt(ctx, e, stored, nil)
			return false
		case err == nil:
			return false
		}
		r.failOrPutOff(ctx, e, err)
	case databases.Raced() && mayRace && e.outcome.Kind != runtime.Fatal:
		return true
	case databases.Away() != nil && mayBePutOff(e.outcome.Kind):
		r.failOrPutOff(ctx, e, databases.Away())
	}
	r.bury(ctx, e)
	return false
}

// bury keeps an earlier run of a task that has failed for good, on a host that has lost the task, from committing. If
// that run has committed already, the task is settled with what it stored.
func (r *runner) bury(ctx context.Context, e *ended) {
	if e.settlement.Requeue != "" || e.task.Run == 1 || e.outcome.Kind == runtime.Cancelled {
		return
	}
	e.task.databases.Close() // the row must not wait for the task's own transaction
	if stored, err := e.task.databases.Fail(ctx, encode(&e.settlement)); stored != nil || err != nil {
		r.adopt(ctx, e, stored, err)
	}
}

// mayBePutOff reports whether a run of that kind may have failed because its database did not serve.
func mayBePutOff(kind runtime.OutcomeKind) bool {
	return kind == runtime.Failed || kind == runtime.Trap || kind == runtime.Retry
}

// resolve finds out whether the transaction of a task was committed, for as long as it takes. If it was not, the task
// fails or is put off, depending on why the answer is missing.
func (r *runner) resolve(ctx context.Context, e *ended) {
	r.access.logger.Warn("the answer to a commit was lost: asking the database whether the task is complete",
		e.task.logged("error", e.unknown)...)
	pause := periodic.Pause{Shortest: 100 * time.Millisecond, Longest: 10 * time.Second}
	for {
		stored, err := e.task.databases.Resolve(ctx)
		switch {
		case stored != nil:
			r.adopt(ctx, e, stored, nil)
			return
		case err == nil:
			r.failOrPutOff(ctx, e, e.unknown.Why)
			r.bury(ctx, e)
			return
		case !errors.Is(err, service.ErrUnavailable):
			r.failOrPutOff(ctx, e, err)
			return
		}
		if !pause.Sleep(ctx) {
			r.cancel(ctx, e)
			return
		}
	}
}
