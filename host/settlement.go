package host

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// policy returns the retry policy of the task. The task's own settings come first, then those of its plugin's manifest,
// then the host's. The result is limited to the bounds of the tenant.
func (t *task) policy(host queue.Retry) queue.Retry {
	return bounded(t.Retry.WithDefaults(manifestRetry(t.version.Manifest.Retry)).WithDefaults(host),
		t.version.Permissions.MostRetry)
}

// bounded limits a policy to the bounds of a tenant: see manifest.Permissions.MostRetry.
func bounded(r queue.Retry, most manifest.Retry) queue.Retry {
	r.MaxAttempts, r.MaxReschedules = r.Attempts(), r.Reschedules() // their defaults depend on fields that change below
	if most.MaxAttempts > 0 && (r.MaxAttempts == queue.Unlimited || r.MaxAttempts > most.MaxAttempts) {
		r.MaxAttempts = most.MaxAttempts
	}
	if most.MaxReschedules > 0 {
		r.MaxReschedules = min(r.MaxReschedules, most.MaxReschedules)
	}
	if most.MaxAge > 0 && (r.MaxAge == 0 || r.MaxAge > most.MaxAge) {
		r.MaxAge = most.MaxAge
	}
	if most.Min > r.Least() {
		r.Min = most.Min
		if r.Max != 0 {
			r.Max = max(r.Max, r.Min)
		}
	}
	return r
}

// expires returns until when the task can be tried again; zero for no bound. If the task sets a maximum age itself,
// t.Expires reflects that age alone; expires also applies the tenant's bound on the age, if that is lower.
func (t *task) expires() time.Time {
	own, most := t.Retry.MaxAge, t.version.Permissions.MostRetry.MaxAge
	switch {
	case most == 0 || own <= most || t.Expires.IsZero():
		return t.Expires
	case !t.Expires.Equal(t.Deadline):
		return t.Expires.Add(most - own)
	}
	// began is when the task began to wait. It cannot be computed from Expires, which is the deadline here.
	began := t.Created
	if t.RetriedAt.After(began) {
		began = t.RetriedAt
	}
	if t.Attempts == 0 {
		began = t.Since()
	}
	if bound := began.Add(most); bound.Before(t.Expires) {
		return bound
	}
	return t.Expires
}

func manifestRetry(r manifest.Retry) queue.Retry {
	return queue.Retry{
		MaxAttempts: r.MaxAttempts, Backoff: queue.Backoff(r.Backoff), Base: r.Base, Min: r.Min, Max: r.Max,
		Jitter: r.Jitter, MaxAge: r.MaxAge, MaxReschedules: r.MaxReschedules,
	}
}

// settlement decides what happens to a task after its run, from the outcome of the run and the retry policy. host is
// the policy of the host.
func settlement(e *ended, host queue.Retry) listen.Settlement {
	t := e.task
	s := listen.Settlement{Claim: t.Claim(), Result: e.outcome.Output, Failure: Failure(e.outcome)}
	if s.Failure == nil {
		s.Children, s.Publications = t.children.Waiting(), t.children.Publications()
		return s
	}
	policy, reason := t.policy(host), s.Failure.Reason
	switch {
	case errors.Is(e.outcome.Err, seal.ErrKey): // another host may have the key, and this one gets it some day
		s.Requeue, s.Delay = listen.RequeueReject, periodic.Doubled(time.Second, time.Minute, t.Rejects)
	case e.outcome.Kind == runtime.Cancelled:
		return s
	case e.outcome.Kind == runtime.Fatal, e.outcome.Kind == runtime.LimitExceeded && e.outcome.Limit.Name == "input":
		return s // another attempt would end the same way
	case e.outcome.Kind == runtime.Retry:
		delay := max(cmp.Or(e.outcome.RetryAfter, policy.Least()), t.version.Permissions.MostRetry.Min)
		s = s.PutOff(policy, t.Reschedules, delay)
		s.HoldKey = e.outcome.HoldKey && e.outcome.RetryAfter > 0
	default:
		if t.version.Manifest.Breaker.Failures > 0 && e.outcome.Kind != runtime.HostFault {
			s.Counts = reason // the reason of s changes with the last attempt
		}
		s = s.TryAgain(policy, t.Attempts+1)
		if after := e.outcome.RetryAfter; after > 0 && s.Requeue != "" {
			s.Delay = max(min(after, policy.Delay(math.MaxInt)), policy.Least()) // that of the last attempt is the longest
		}
	}
	now := t.Clock(time.Now())
	if e.outcome.Kind == runtime.LimitExceeded && e.outcome.Limit.Name == "timeout" && !t.Deadline.IsZero() &&
		!now.Before(t.Deadline) {
		s.Failure = &queue.Failure{
			Reason: queue.ReasonExpired, Message: "its deadline was over while it ran",
			Stderr: e.outcome.Stderr,
		}
		s.Requeue, s.Delay, s.Counts = "", 0, ""
		return s
	}
	return s.NoLaterThan(t.expires(), now)
}

// cancelled returns the settlement of a task that was cancelled before its outcome reached Redis.
func cancelled(e *ended) listen.Settlement {
	return listen.Settlement{
		Claim: e.task.Claim(), Failure: &queue.Failure{Reason: queue.ReasonCancelled, Message: "cancelled while it ran"},
	}
}

// limitReasons maps the name of an exceeded limit to the reason of the failure. The limit of the input is missing,
// because exceeding it has no specific reason.
var limitReasons = map[string]queue.Reason{
	"memory": queue.ReasonMemory, "timeout": queue.ReasonTimeout, "cpu": queue.ReasonCPU, "output": queue.ReasonOutput,
	"log": queue.ReasonOutput,
}

// Failure returns the failure to write to a task's hash for an outcome; nil if the task is complete.
func Failure(o runtime.Outcome) *queue.Failure {
	if o.Kind == runtime.Complete {
		return nil
	}
	f := &queue.Failure{
		Reason: queue.ReasonError, Message: o.Message, Stderr: o.Stderr, Backtrace: o.Backtrace,
		RetryAfter: o.RetryAfter.Seconds(),
	}
	switch o.Kind {
	case runtime.Retry, runtime.Fatal, runtime.Failed:
		code := o.Code // a copy, so that the failure does not keep the whole outcome in memory
		f.ExitCode = &code
	case runtime.Trap:
		f.Reason = queue.ReasonTrap
	case runtime.LimitExceeded:
		f.Limit = o.Limit.Name + "=" + o.Limit.Value
		f.Reason = cmp.Or(limitReasons[o.Limit.Name], queue.ReasonError)
	case runtime.Cancelled:
		if errors.Is(o.Err, queue.ErrCancelled) {
			f.Reason, f.Message = queue.ReasonCancelled, "cancelled while it ran"
			if o.Place != "" {
				f.Message += " at " + o.Place
			}
		}
	case runtime.HostFault:
		f.Message, f.Stderr = "internal error of the host", ""
		if errors.Is(o.Err, seal.ErrKey) || errors.Is(o.Err, seal.ErrDamaged) {
			f.Message = o.Err.Error()
		}
	}
	return f
}
