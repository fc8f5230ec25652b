package tenant

import (
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/sdk/queue"
)

// retryFlags add the flags of a retry policy.
func retryFlags(f *pflag.FlagSet, retry *queue.Retry, noJitter *bool) {
	option.Attempts(f, &retry.MaxAttempts, "number of attempts, or unlimited (not set by QUERN_MAX_ATTEMPTS, which is a host's)")
	option.Choice(f, &retry.Backoff, "backoff", "growth of the delay before a retry: exponential or linear", "exponential", "linear")
	option.Lasting(f, &retry.Base, "backoff-base", "the first delay, which grows")
	option.Lasting(f, &retry.Min, "backoff-min", "shortest delay before a retry")
	option.Lasting(f, &retry.Max, "backoff-max", "longest delay before a retry")
	f.BoolVar(noJitter, "no-jitter", false, "do not shorten the delay at random")
	option.Lasting(f, &retry.MaxAge, "max-age", "begin no attempt later than this after it was due: then it fails as expired")
	option.Count(f, &retry.MaxReschedules, "max-reschedules", "how often it may reschedule itself")
	cli.NotSettings(f, "max-attempts")
}
