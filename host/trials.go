package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/release"
)

// TopicReleases is the topic to which hosts publish that they stopped a release.
const TopicReleases = "quern.releases"

// onTrial counts how the first run of a task ended, if its release is on trial or serves beside one that is. Tasks that
// waited for a host with their release come in bursts, so their durations are no measure, and they count without.
func (s *settler) onTrial(e *ended, outcome listen.Outcome) {
	t := e.task
	if t.release == 0 || t.apart || t.Instead > 0 || t.Attempts+t.Reschedules > 0 {
		return
	}
	switch f := e.settlement.Failure; {
	case outcome == listen.OutcomeComplete && t.Delayed:
		s.judge.Ran(t.version.Name, t.Queue.Name, t.release)
	case outcome == listen.OutcomeComplete:
		s.judge.Completed(t.version.Name, t.Queue.Name, t.release, e.outcome.GuestTime+e.outcome.WaitTime, e.outcome.Fuel)
	case outcome != listen.OutcomeFailed && outcome != listen.OutcomeRetried, f.Reason == queue.ReasonCancelled,
		errors.Is(e.outcome.Err, errTooLate):
	case e.outcome.Kind == runtime.Retry:
		s.judge.Ran(t.version.Name, t.Queue.Name, t.release)
	default:
		reason := f.Reason
		if reason == queue.ReasonExhausted { // there was one attempt: Failure tells why it failed
			reason = Failure(e.outcome).Reason
		}
		s.judge.Failed(t.version.Name, t.Queue.Name, t.release, reason)
	}
}

// runsOf returns how many runs of a release completed and failed lately.
func (a *tenantAccess) runsOf(ctx context.Context, r *release.Release) (complete, failed int64, err error) {
	all, err := manage.New(a.client).Versions(ctx)
	for _, one := range all {
		if one.Plugin == r.Plugin && one.Release == r.Number {
			complete, failed = complete+one.Complete, failed+one.Failed
		}
	}
	return complete, failed, err
}

// releaseStopped publishes that a release was stopped, if anybody subscribes to TopicReleases.
func (a *tenantAccess) releaseStopped(ctx context.Context, r *release.Release, reason string) {
	subscriptions, err := a.client.Subscriptions(ctx)
	ours := func(s queue.Subscription) bool { return s.Active && s.Topic == TopicReleases }
	if err == nil && !slices.ContainsFunc(subscriptions, ours) {
		return
	}
	body, _ := json.Marshal(map[string]any{ // texts and numbers
		"event": "stopped", "tenant": a.client.Tenant(), "plugin": r.Plugin, "release": r.Number, "version": r.Version,
		"reason": reason, "remedy": rollout.Remedy(a.client.Tenant(), r),
	})
	if err == nil {
		_, err = a.client.Publish(ctx, TopicReleases, body, queue.PublishOptions{
			ID:         fmt.Sprintf("release-stopped-%s-%d", r.Plugin, r.Number),
			Attributes: map[string]string{"event": "stopped", "plugin": r.Plugin},
		})
	}
	if err != nil {
		a.logger.Warn("a stopped release was not published", "topic", TopicReleases, "plugin", r.Plugin, "error", err)
	}
}
