package rollout

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/rollout/trial"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/release"
)

const (
	// countPause is the minimum time between two writes of counts, and countWait the maximum: deaths of hosts come with
	// the answer.
	countPause = time.Second
	countWait  = 5 * time.Second
	// coldRuns is how many runs of each release a host counts without duration and fuel, because its caches are cold.
	coldRuns = 10
)

// onTrial is a release on trial, with its Stage if it is a canary.
type onTrial struct{ release.Release }

// trials are the releases that may be on trial, by plugin: canaries, and what serves.
type trials struct {
	mu      sync.Mutex                 // guards over
	over    map[string]int             // by plugin: the release whose trial is over
	stopped map[string]release.Stopped // by plugin; guarded by mu
	current atomic.Pointer[map[string]onTrial]
}

// Stopped returns the releases that hosts stopped by themselves, by plugin. The caller must not change the map.
func (t *Tenant) Stopped() map[string]release.Stopped {
	t.trials.mu.Lock()
	defer t.trials.mu.Unlock()
	return t.trials.stopped
}

// set replaces the trials by those of what hosts are to serve.
func (t *trials) set(all map[string]release.Served, stopped map[string]release.Stopped) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = stopped
	current := make(map[string]onTrial)
	for plugin, one := range all {
		switch {
		case one.Err != nil:
		case one.Canary != nil:
			current[plugin] = onTrial{*one.Canary}
		case one.Before != nil && t.over[plugin] != one.Number:
			current[plugin] = onTrial{one.Release}
		}
	}
	t.current.Store(&current)
}

// end removes a trial.
func (t *trials) end(plugin string, number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over == nil {
		t.over = make(map[string]int)
	}
	t.over[plugin] = number
	current := maps.Clone(t.all())
	if current[plugin].Number == number {
		delete(current, plugin)
		t.current.Store(&current)
	}
}

// all returns the trials. The caller must not change the map.
func (t *trials) all() map[string]onTrial {
	if current := t.current.Load(); current != nil {
		return *current
	}
	return nil
}

// Judge counts how tasks of releases on trial end, and stops releases that are bad. Each host judges the counts of all
// hosts; the first one stops the release.
type Judge struct {
	periodic.Duty
	*Tenant
	// Runs returns the runs of a release in this hour and the one before that completed, and that failed.
	Runs func(ctx context.Context, r *release.Release) (complete, failed int64, err error)
	// Stopped is called after this host has stopped a release.
	Stopped func(ctx context.Context, r *release.Release, reason string)
	// StepOver is called when a step of a canary has the tasks after which it ends. It must not block.
	StepOver func()

	told map[string]int // by plugin: the release that was reported as bad; only RunOnce uses it

	mu     sync.Mutex          // guards counts
	counts map[string]*counted // by plugin: what Redis does not have yet
}

// counted are the counts of a release on trial.
type counted struct {
	release.Trial
	cold map[int]int // by release: runs that were counted without duration and fuel
}

// Completed counts a task of a queue that completed with its first run, on the release of its plugin with this number.
func (j *Judge) Completed(plugin, name string, number int, took time.Duration, fuel int64) {
	j.count(plugin, name, number, func(c *release.Counts, cold bool) {
		if cold {
			c.Runs++
		} else {
			c.Complete(took, fuel)
		}
	})
}

// Ran counts a task whose first run did not fail, and whose duration and fuel are no measure: it asked to run again
// later, or waited for a host with its release.
func (j *Judge) Ran(plugin, name string, number int) {
	j.count(plugin, name, number, func(c *release.Counts, _ bool) { c.Runs++ })
}

// Failed counts a task that failed with its first run.
func (j *Judge) Failed(plugin, name string, number int, why queue.Reason) {
	j.count(plugin, name, number, func(c *release.Counts, _ bool) { c.Fail(release.KindOf(why)) })
}

// count adds a task to the counts of its plugin's trial. Beside a canary counts whatever runs there: a host that
// refuses the release that is to serve runs an earlier one.
func (j *Judge) count(plugin, name string, number int, add func(c *release.Counts, cold bool)) {
	of, known := j.trials.all()[plugin]
	if number == 0 || !known || number != of.Number && of.Stage == nil ||
		len(of.Queues) > 0 && !slices.Contains(of.Queues, name) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.counts[plugin]
	if c == nil || c.Number != of.Number {
		c = &counted{Trial: release.Trial{Number: of.Number}, cold: make(map[int]int)}
		if j.counts == nil {
			j.counts = make(map[string]*counted)
		}
		j.counts[plugin] = c
	}
	if len(c.Steps) == 0 {
		j.Ask()
	}
	step := c.At(of.step())
	side := &step.New
	if number != of.Number {
		side = &step.Old
	}
	c.cold[number]++
	add(side, c.cold[number] <= coldRuns)
}

// step returns the index of the canary's step; 0 for a release that serves.
func (t *onTrial) step() int {
	if t.Stage == nil {
		return 0
	}
	return t.Stage.Step
}

// take returns the counts that Redis does not have yet.
func (j *Judge) take(of *onTrial) release.Trial {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.counts[of.Plugin]
	if c == nil || c.Number != of.Number {
		return release.Trial{Number: of.Number}
	}
	taken := c.Trial
	c.Steps = nil
	return taken
}

// RunOnce implements periodic.Worker.
func (j *Judge) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	trials := j.trials.all()
	if len(trials) == 0 {
		return countPause, periodic.UntilAsked, nil
	}
	var errs []error
	for _, of := range trials {
		err := j.try(ctx, &of)
		errs = append(errs, err)
		if queue.IsUnavailable(err) {
			break
		}
	}
	return countPause, periodic.Jitter(countWait), errors.Join(errs...)
}

// try adds the counts of a release, and judges it. Counts that cannot be written are lost, because a repeated call
// might count them twice.
func (j *Judge) try(ctx context.Context, of *onTrial) error {
	counts := j.take(of)
	tried, err := j.store.AddTrial(ctx, &of.Release, &counts)
	if errors.Is(err, release.ErrNoTrial) {
		j.trials.end(of.Plugin, of.Number)
		return nil
	}
	if err != nil {
		return err
	}
	verdict, err := j.judge(ctx, of, &tried)
	switch {
	case err != nil:
		return err
	case verdict.Bad():
		return j.stop(ctx, of, verdict)
	case of.tasksOver(&tried.Trial):
		j.StepOver()
	}
	return nil
}

// tasksOver reports whether the canary's step has the tasks after which it ends.
func (t *onTrial) tasksOver(counts *release.Trial) bool {
	if t.Stage == nil || t.Stage.Step >= len(t.Stage.Share.Steps) {
		return false
	}
	tasks := t.Stage.Share.Steps[t.Stage.Step].Tasks
	return tasks > 0 && counts.At(t.step()).New.Runs >= int64(tasks)
}

// judgeCanary judges a canary by the counts of all hosts.
func judgeCanary(canary *release.Release, tried *release.Tried) trial.Verdict {
	if v := trial.JudgeDeaths(tried.Deaths); v.Bad() {
		return v
	}
	steps := StepsOf(canary, &tried.Trial)
	if canary.Stage.Share.Label != "" {
		old, next := trial.Sum(steps)
		return trial.JudgeChosen(&old, &next)
	}
	return trial.Judge(steps)
}

func (j *Judge) judge(ctx context.Context, of *onTrial, tried *release.Tried) (trial.Verdict, error) {
	if of.Stage != nil {
		return judgeCanary(&of.Release, tried), nil
	}
	if v := trial.JudgeDeaths(tried.Deaths); v.Bad() {
		return v, nil
	}
	_, next := trial.Sum(StepsOf(&of.Release, &tried.Trial))
	if !trial.Suspect(&next) {
		return trial.Verdict{}, nil
	}
	before, err := j.before(ctx, &of.Release)
	if err != nil || before == nil {
		return trial.Verdict{}, err
	}
	complete, failed, err := j.Runs(ctx, before)
	return trial.JudgeAlone(&next, complete, failed), err
}

// StepsOf returns the steps of a trial with the shares of its canary.
func StepsOf(r *release.Release, t *release.Trial) []trial.Step {
	steps := make([]trial.Step, len(t.Steps))
	for i, one := range t.Steps {
		steps[i] = trial.Step{Old: one.Old, New: one.New}
		if r.Stage != nil && one.Index < len(r.Stage.Share.Steps) {
			steps[i].Share = r.Stage.Share.Steps[one.Index].Percent / 100
		}
	}
	return steps
}

// before returns the release to which hosts go back from one that serves; nil if there is none.
func (j *Judge) before(ctx context.Context, r *release.Release) (*release.Release, error) {
	all, _, err := j.store.Serving(ctx)
	if err != nil {
		return nil, err
	}
	one := all[r.Plugin]
	if one.Number != r.Number || one.Before == nil {
		return nil, nil
	}
	return one.Before, nil
}

// stop stops a bad release, and tells so if no other host has stopped it.
func (j *Judge) stop(ctx context.Context, of *onTrial, v trial.Verdict) error {
	fields := []any{
		"plugin", of.Plugin, "release", of.Number, "version", of.Version, "measure", string(v.Measure), "reason", v.Reason,
	}
	if j.ReportOnly {
		if j.told == nil {
			j.told = make(map[string]int)
		}
		if j.told[of.Plugin] != of.Number {
			j.told[of.Plugin] = of.Number
			j.Logger.Error("release is bad, and --keep-bad-releases leaves it", fields...)
		}
		return nil
	}
	stopped, err := j.store.StopRelease(ctx, of.Plugin, of.Number, v.Reason)
	if err != nil || !stopped {
		return err
	}
	j.Logger.Error("release stopped", append(fields, "remedy", Remedy(j.Client.Tenant(), &of.Release))...)
	j.Stopped(ctx, &of.Release, v.Reason)
	return nil
}

// Remedy returns the command that runs the failed tasks of a stopped release on the one that serves in its place.
func Remedy(tenant string, r *release.Release) string {
	name := r.Plugin
	if !plainWord.MatchString(name) { // a shell must not run a part of it
		name = "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return "quern plugin halt " + name + " --retry-failed --tenant " + tenant
}

// plainWord matches words that need no quotes in a shell.
var plainWord = regexp.MustCompile(`^[\w.][\w.-]*$`)
