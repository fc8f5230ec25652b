package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Explain sets WaitsBecause of a task.
func (t *Direct) Explain(ctx context.Context, shape *Task) {
	if shape.Status == queue.Pending || shape.KeyHeld {
		shape.WaitsBecause = t.because(ctx, shape)
	}
}

// because says why a task waits although it is due. It is a help for people: what cannot be read is passed over. It
// returns "" if the task just waits for its turn.
func (t *Direct) because(ctx context.Context, shape *Task) string {
	pauses, _ := t.Pauses().List(ctx)
	if lane := shape.Lane; lane != nil && lane.Waits {
		return fmt.Sprintf("%d tasks with its concurrency key come first, and %d may run at once", lane.Taken+lane.Ahead,
			lane.Max)
	}
	serving, _ := t.Plugins(ctx)
	serves := func(plugin, digest string) bool {
		return slices.ContainsFunc(serving, func(p Plugin) bool {
			return p.State == plugins.StateServing && slices.Contains(p.Queues, shape.Queue) && p.Plugin == plugin &&
				(digest == "" || p.Digest == digest)
		})
	}
	for _, p := range pauses {
		whole := p.Queue == "" && (p.Plugin == "" || serves(p.Plugin, ""))
		if !p.Accepting && (whole || p.Queue == shape.Queue && (p.Key == "" || p.Key == shape.Key)) {
			return t.stopped(p)
		}
	}
	until := func(seconds float64) string { return Moment(seconds).UTC().Format(time.RFC3339) }
	if shape.KeyHeld {
		return fmt.Sprintf("a handler put off all tasks with the key %q until %s", shape.Key, until(shape.ETA))
	}
	counts, err := t.QueueCounts(ctx, []string{shape.Queue})
	if err == nil && Moment(counts[0].HeldUntil).After(time.Now()) {
		return "the server of its webhook asked for a pause until " + until(counts[0].HeldUntil)
	}
	nodes, err := t.Nodes(ctx)
	nodes = slices.DeleteFunc(nodes, func(n Node) bool { return !n.Alive || !slices.Contains(n.Queues, shape.Queue) })
	if err == nil && len(nodes) == 0 {
		return "no host or worker serves the queue " + shape.Queue
	}
	quarantines, _ := t.Quarantines(ctx)
	for _, q := range quarantines {
		switch {
		case !serves(q.Plugin, q.Digest):
		case q.Failures > 0:
			return fmt.Sprintf("the circuit breaker of the plugin %s is open after %d failures (%s): see `quern plugin ls`",
				q.Plugin, q.Failures, q.Reason)
		default:
			return fmt.Sprintf("the plugin %s is quarantined, because its tasks ended hosts: see `quern plugin ls`", q.Plugin)
		}
	}
	quotas, _ := manage.QuotaUses(ctx, t.Client)
	for _, use := range quotas {
		if use.Holds(shape.Queue) {
			return fmt.Sprintf("the tenant has used up its quota %s of %s: see `quern tenant show %s`", use.Name, use.Value,
				t.Tenant())
		}
	}
	if slices.ContainsFunc(nodes, func(n Node) bool { return slices.Contains(n.WaitsFor, shape.Queue) }) {
		return "its hosts have no memory for it now: see `quern node ls`"
	}
	busy := func(n Node) bool { return n.Slots != nil && n.SlotsInUse != nil && *n.SlotsInUse >= *n.Slots }
	if len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n Node) bool { return !busy(n) }) {
		return "all slots of its hosts are in use: see `quern node ls`"
	}
	return ""
}

// stopped says what a pause stops, and how to end it.
func (t *Direct) stopped(p manage.Pause) string {
	words := append([]string{"quern"}, p.ResumeCommand(t.Tenant())...)
	for i, word := range words {
		if !plainWord.MatchString(strings.TrimPrefix(word, "--")) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return fmt.Sprintf("%s is paused%s: end that with `%s`", p.What(), p.Why(), strings.Join(words, " "))
}
