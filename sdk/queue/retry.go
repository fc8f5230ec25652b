package queue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Unlimited is the Retry.MaxAttempts without a bound: the task is tried until it is complete, expires or is cancelled.
const Unlimited = -1

// Backoff chooses how the delay grows from one retry to the next.
type Backoff string

// Exponential doubles the delay with each attempt, Linear adds the base each time.
const (
	Exponential Backoff = "exponential"
	Linear      Backoff = "linear"
)

// The defaults of a retry policy, and the maximum of MaxAttempts.
const (
	defaultBase        = time.Second
	defaultLeast       = time.Second
	defaultMost        = 12 * time.Hour
	defaultReschedules = 1000
	maxTaskAttempts    = 1_000_000
)

// Retry is a retry policy: it decides how often, and after which delays, a failed task is tried again. A zero field is
// not set. A field that the task's own policy does not set is taken from its plugin's manifest, or else from the host's
// configuration. By default a task has one attempt, as in Blueque.
//
// Delays before the second, third, ... attempt, without jitter, with a base of 1 s:
//
//	exponential  1 s, 2 s, 4 s, 8 s, 16 s, ... base × 2ⁿ, at most Max
//	linear       1 s, 2 s, 3 s, 4 s, 5 s, ... base × n, at most Max
type Retry struct {
	// MaxAttempts is the number of attempts; when all have failed, the task has failed for good (default 1, or
	// Unlimited if MaxAge is set).
	MaxAttempts int
	// Backoff chooses how the delay grows (default Exponential). The delay begins with Base (default 1 s). It is at least
	// Min (default 1 s) and at most Max (default 12 h).
	Backoff        Backoff
	Base, Min, Max time.Duration
	// Jitter shortens the delay by a random part of up to half of it, so that tasks that failed together are not
	// retried together (default true).
	Jitter *bool
	// MaxAge is the time within which the attempts of a task must begin, counted from its eta, or from its creation if it
	// has none. A task that waits longer fails with ReasonExpired, even if its queue is paused or has no listener.
	MaxAge time.Duration
	// MaxReschedules is how often a handler can reschedule its task (default 1,000). -1 is for a task whose producer puts
	// it off itself: it fails with exit code 75 and Failure.RetryAfter instead.
	MaxReschedules int
}

// WithDefaults returns the policy with its zero fields set from another policy.
func (r Retry) WithDefaults(other Retry) Retry {
	if r.MaxAttempts == 0 && r.MaxAge == 0 {
		r.MaxAttempts = other.MaxAttempts
	}
	r.Backoff = cmp.Or(r.Backoff, other.Backoff)
	r.Base = cmp.Or(r.Base, other.Base)
	r.Min = cmp.Or(r.Min, other.Min)
	r.Max = cmp.Or(r.Max, other.Max)
	r.MaxAge = cmp.Or(r.MaxAge, other.MaxAge)
	r.Jitter = cmp.Or(r.Jitter, other.Jitter)
	r.MaxReschedules = cmp.Or(r.MaxReschedules, other.MaxReschedules)
	return r
}

// Attempts returns the maximum number of attempts, or Unlimited.
func (r Retry) Attempts() int {
	switch {
	case r.MaxAttempts != 0:
		return r.MaxAttempts
	case r.MaxAge > 0:
		return Unlimited
	}
	return 1
}

// AttemptsLeft reports whether another attempt is allowed after the given number of attempts.
func (r Retry) AttemptsLeft(attempts int) bool {
	most := r.Attempts()
	return most == Unlimited || attempts < most
}

// Reschedules returns how often the task can be rescheduled.
func (r Retry) Reschedules() int {
	return cmp.Or(r.MaxReschedules, defaultReschedules)
}

// Least returns the minimum delay. A reschedule without a delay waits this long.
func (r Retry) Least() time.Duration {
	if r.Min == 0 {
		return min(defaultLeast, r.most())
	}
	return r.Min
}

func (r Retry) most() time.Duration {
	if r.Max == 0 {
		return max(defaultMost, r.Min)
	}
	return r.Max
}

// Delay returns how long to wait after the nth attempt (counted from 1), without jitter.
func (r Retry) Delay(n int) time.Duration {
	factor := float64(max(n, 1))
	if r.Backoff != Linear {
		factor = math.Pow(2, float64(max(n, 1)-1))
	}
	delay := r.most()
	if grown := float64(cmp.Or(r.Base, defaultBase)) * factor; grown < float64(delay) {
		delay = time.Duration(grown)
	}
	return max(delay, r.Least())
}

// JitteredDelay is Delay, with jitter if the policy has it.
func (r Retry) JitteredDelay(n int) time.Duration {
	delay := r.Delay(n)
	if r.Jitter != nil && !*r.Jitter {
		return delay
	}
	return max(delay-rand.N(delay/2+1), r.Least())
}

func (r Retry) validate() error {
	for _, delay := range [...]struct {
		name  string
		value time.Duration
	}{{"base", r.Base}, {"min", r.Min}, {"max", r.Max}, {"max age", r.MaxAge}} {
		if delay.value < 0 || delay.value > store.Longest {
			return fmt.Errorf("%w: %s %s of the retry policy: use 0s to %s", ErrInvalid, delay.name, delay.value, store.Longest)
		}
	}
	switch {
	case r.MaxAttempts < Unlimited || r.MaxAttempts > maxTaskAttempts:
		return fmt.Errorf("%w: max attempts %d: use 1 to %d, or %d for no bound", ErrInvalid, r.MaxAttempts, maxTaskAttempts,
			Unlimited)
	case r.Backoff != "" && r.Backoff != Exponential && r.Backoff != Linear:
		return fmt.Errorf("%w: backoff %q: use %s or %s", ErrInvalid, r.Backoff, Exponential, Linear)
	case r.Max > 0 && r.Min > r.Max:
		return fmt.Errorf("%w: min %s of the retry policy is above its max %s: swap them", ErrInvalid, r.Min, r.Max)
	case r.MaxReschedules < -1:
		return fmt.Errorf("%w: max reschedules %d: use 1 or more", ErrInvalid, r.MaxReschedules)
	}
	return nil
}

// retryText is the JSON of a policy in a task's hash, with durations in seconds. MaxAttempts and MaxAge are separate
// fields of the hash.
type retryText struct {
	Backoff        Backoff `json:"backoff,omitempty"`
	Base           float64 `json:"base,omitempty"`
	Min            float64 `json:"min,omitempty"`
	Max            float64 `json:"max,omitempty"`
	Jitter         *bool   `json:"jitter,omitempty"`
	MaxReschedules int     `json:"max_reschedules,omitempty"`
}

func (r Retry) encode() string {
	t := retryText{
		Backoff: r.Backoff, Base: r.Base.Seconds(), Min: r.Min.Seconds(), Max: r.Max.Seconds(), Jitter: r.Jitter,
		MaxReschedules: r.MaxReschedules,
	}
	if t == (retryText{}) {
		return ""
	}
	text, _ := json.Marshal(t) // numbers and a word can always be encoded
	return string(text)
}

// ParseRetry reads a policy from fields of a hash. text is the JSON of a retryText; if it cannot be parsed, it counts
// as empty. If any value is out of range, ParseRetry returns the zero policy.
func ParseRetry(text, maxAttempts, maxAge string) Retry {
	var t retryText
	if text != "" && json.Unmarshal([]byte(text), &t) != nil {
		t = retryText{}
	}
	r := Retry{
		MaxAttempts: int(store.AsInt(maxAttempts)), Backoff: t.Backoff, Base: store.ParseDuration(t.Base),
		Min: store.ParseDuration(t.Min),
		Max: store.ParseDuration(t.Max), Jitter: t.Jitter, MaxAge: store.SecondsDuration(maxAge),
		MaxReschedules: t.MaxReschedules,
	}
	if r.validate() != nil {
		return Retry{}
	}
	return r
}
