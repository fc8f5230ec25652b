package rollout

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/host/rollout/trial"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue/release"
)

const (
	// maxNeeded is the maximum number of releases of a plugin that pinned tasks need at a time.
	maxNeeded = 4
	// neededTime is how long a release is kept after the last task that needed it. After busyTime, it makes room for
	// another one: that is less than the minute for which a task waits for a host that has its release.
	neededTime = 10 * time.Minute
	busyTime   = 15 * time.Second
	// refusedTime is how long after its step began a canary is halted that all hosts refuse.
	refusedTime = 30 * time.Second
	// absentTime is how long no host must have a canary before its tasks run on the release that serves.
	absentTime = time.Minute
)

// staged has the releases of a plugin beside the one that serves.
type staged struct {
	canary      *release.Release // nil if there is none
	absentSince time.Time        // since when no host seems to have the canary, by the clock of Redis; zero if one has it
	absent      bool             // no host has had the canary for absentTime
	// needed has the releases that pinned tasks need, and when one last did. gone are those of them that nobody can get:
	// they were deleted, halted or rolled back.
	needed map[int]time.Time
	gone   map[int]bool
	others map[int]fetched // what the directory was given
}

// Staged returns the canary of a plugin, nil if there is none or no host has it for long, and the releases that pinned
// tasks need but nobody can get.
func (t *Tenant) Staged(plugin string) (canary *release.Release, gone []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.staged[plugin]
	if s == nil {
		return nil, nil
	}
	if !s.absent {
		canary = s.canary
	}
	return canary, slices.Sorted(maps.Keys(s.gone))
}

// setPresent records whether a host has the canary of a plugin.
func (t *Tenant) setPresent(c *release.Release, has bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.staged[c.Plugin]
	if s == nil || s.canary == nil || s.canary.Number != c.Number {
		return
	}
	if has {
		s.absentSince, s.absent = time.Time{}, false
		return
	}
	if s.absentSince.IsZero() {
		s.absentSince = now
	}
	if !s.absent && now.Sub(s.absentSince) >= absentTime {
		s.absent = true
		t.Logger.Warn("no host has the canary: its tasks run on the release that serves", "plugin", c.Plugin,
			"release", c.Number)
	}
}

// Need records that a task needs a release other than the one that serves, and reports whether the next look has to
// fetch it. If too many releases are needed already, it records nothing.
func (t *Tenant) Need(plugin string, number int, now time.Time) (isNew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stagedOf(plugin)
	if s.canary != nil && s.canary.Number == number {
		return false
	}
	if _, known := s.needed[number]; !known {
		if len(s.needed) >= maxNeeded && !s.makeRoom(now) {
			return false
		}
		t.news, isNew = true, true
	}
	s.needed[number] = now
	return isNew
}

// makeRoom forgets the release that was needed longest ago, unless that was within busyTime.
func (s *staged) makeRoom(now time.Time) bool {
	oldest := slices.MinFunc(slices.Collect(maps.Keys(s.needed)), func(a, b int) int {
		return s.needed[a].Compare(s.needed[b])
	})
	if now.Sub(s.needed[oldest]) < busyTime {
		return false
	}
	delete(s.needed, oldest)
	return true
}

// stagedOf returns the entry of a plugin, and makes it if there is none. The caller holds mu.
func (t *Tenant) stagedOf(plugin string) *staged {
	s := t.staged[plugin]
	if s == nil {
		s = &staged{needed: make(map[int]time.Time)}
		t.staged[plugin] = s
	}
	return s
}

// expire forgets releases that no task has needed for long. The caller holds mu.
func (t *Tenant) expire(now time.Time) {
	for _, s := range t.staged {
		before := len(s.needed)
		maps.DeleteFunc(s.needed, func(_ int, at time.Time) bool { return now.Sub(at) > neededTime })
		t.news = t.news || len(s.needed) < before
	}
}

// note records the canaries before anything is fetched: tasks of a canary must not run on another release meanwhile.
func (t *Tenant) note(all map[string]release.Served) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.news = false
	for _, f := range t.pulls {
		f.wanted = false
	}
	for plugin := range all {
		one := all[plugin]
		if s := t.staged[plugin]; one.Canary != nil || s != nil {
			s := t.stagedOf(plugin)
			if one.Canary == nil || s.canary == nil || s.canary.Number != one.Canary.Number {
				s.absentSince, s.absent = time.Time{}, false
			}
			s.canary = one.Canary
		}
	}
	maps.DeleteFunc(t.staged, func(plugin string, s *staged) bool {
		_, known := all[plugin]
		return !known || s.canary == nil && len(s.needed)+len(s.others)+len(s.gone) == 0
	})
}

// stage fetches the releases beside the one that serves, serving, and gives them to the directory. It returns why a
// release for pinned tasks, and why the canary was not fetched.
func (t *Tenant) stage(ctx context.Context, now time.Time, plugin string, serving fetched, blobs Blobs,
) (needed, err error) {
	t.mu.Lock()
	s := t.staged[plugin]
	if s == nil {
		t.mu.Unlock()
		return nil, nil
	}
	canary, before := s.canary, s.others
	numbers := slices.Sorted(maps.Keys(s.needed))
	t.mu.Unlock()
	others, gone := make(map[int]fetched), make(map[int]bool)
	get := func(r *release.Release) error {
		old := serving
		if have, has := before[r.Number]; has {
			old = have
		}
		got, err := t.obtain(ctx, now, r, old, blobs)
		if err == nil {
			others[r.Number] = got
		}
		return err
	}
	keep := func(number int) { // what runs goes on, whatever cannot be read now
		if have, has := before[number]; has && others[number].folder == "" {
			others[number] = have
		}
	}
	for _, number := range numbers {
		if number == serving.Number || canary != nil && number == canary.Number {
			continue
		}
		r, err := t.store.Release(ctx, plugin, number)
		switch {
		case errors.Is(err, release.ErrNoRelease), err == nil && (r.State() == release.StateHalted || r.RolledBack > 0):
			gone[number] = true
		case err == nil:
			err = get(&r)
			fallthrough
		default:
			if err != nil {
				keep(number)
			}
			if !errors.Is(err, errFetching) {
				needed = errors.Join(needed, err)
			}
		}
	}
	if canary != nil {
		if err = get(canary); err != nil {
			keep(canary.Number)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	same := func(a, b fetched) bool { return a.Number == b.Number && a.folder == b.folder }
	changed := !maps.EqualFunc(s.others, others, same)
	s.others, s.gone = others, gone
	if changed || canary != nil { // a canary may have become, or ceased to be, a release for pinned tasks
		t.set()
	}
	return needed, err
}

// beside lists the releases of a plugin beside the one that serves. The caller holds mu.
func (t *Tenant) beside(plugin string) (list []plugins.Beside) {
	s := t.staged[plugin]
	if s == nil {
		return nil
	}
	for _, number := range slices.Sorted(maps.Keys(s.others)) {
		list = append(list, plugins.Beside{
			Number: number, Dir: s.others[number].folder, Canary: s.canary != nil && s.canary.Number == number,
		})
	}
	return list
}

// canaries lists the canaries of the tenant.
func (t *Tenant) canaries() (all []*release.Release) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.staged {
		if s.canary != nil {
			all = append(all, s.canary)
		}
	}
	return all
}

// advance ends the steps of canaries whose time is over, and halts canaries that all hosts refuse. Every host may do
// it: Redis does each once. A step of a canary that no host has proves nothing: hosts that have it end its steps. It
// returns the time until the next step ends; 0 if there is none.
func (f *Follower) advance(ctx context.Context) (next time.Duration, err error) {
	canaries := f.canaries()
	if len(canaries) == 0 {
		return 0, nil
	}
	now, err := f.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range canaries {
		age := now.Sub(time.UnixMilli(int64(c.Stage.Since * 1000)))
		in := Presence{Has: f.has(c)}
		if !in.Has && age >= refusedTime {
			var failed error
			if in, failed = f.Fleet(ctx, c.Plugin, c.Number); failed != nil {
				err = errors.Join(err, failed)
				continue
			}
		}
		f.setPresent(c, in.Has, now)
		if c.Stage.Step < len(c.Stage.Share.Steps) {
			step := c.Stage.Share.Steps[c.Stage.Step]
			least := step.Duration()
			if step.Tasks > 0 {
				ran, failed := f.ran(ctx, c)
				if err = errors.Join(err, failed); ran >= step.Tasks {
					least = f.CrashLoop
				}
			}
			over := least > 0 && age >= least
			if over && in.Has {
				why, failed := f.unproved(ctx, now, c)
				if err = errors.Join(err, failed); why != "" || failed != nil { // a Judge halts it if it is bad
					f.tellStuck(c, why)
					next = cmp.Or(min(next, countWait), countWait)
					continue
				}
				_, failed = f.store.AdvanceRelease(ctx, c.Plugin, c.Number, c.Stage.Step)
				err = errors.Join(err, ignored(failed))
				continue
			}
			if left := least - age; left > 0 && (next == 0 || left < next) {
				next = left
			}
		}
		if age >= refusedTime && !in.Has && !in.May {
			err = errors.Join(err, f.haltRefused(ctx, c))
		}
	}
	return next, err
}

// ran returns how many tasks have ended on a canary in its step, on all hosts.
func (t *Tenant) ran(ctx context.Context, canary *release.Release) (tasks int, err error) {
	counts, err := t.store.Trial(ctx, canary.Plugin)
	if err != nil || counts.Number != canary.Number {
		return 0, err
	}
	return int(counts.At(canary.Stage.Step).New.Runs), nil
}

// unproved returns why the step of a canary must not end; "" if it may. Its tasks hang, it may have killed a host, or it
// is bad: the host that counted its tasks may have died before it judged the canary.
func (f *Follower) unproved(ctx context.Context, now time.Time, canary *release.Release) (why string, err error) {
	if f.ReportOnly {
		return "", nil
	}
	tried, err := f.store.AddTrial(ctx, canary, &release.Trial{Number: canary.Number})
	if err != nil {
		if errors.Is(err, release.ErrNoTrial) { // somebody has ended it
			err = nil
		}
		return "", err
	}
	tried.At(canary.Stage.Step)
	if steps := StepsOf(canary, &tried.Trial); trial.Hangs(&steps[len(steps)-1]) {
		return "none of its tasks has ended in this step", nil
	}
	// A crash in the future is from before Redis's clock was set back.
	if age := now.Sub(tried.Crashed); age >= 0 && age < f.CrashLoop {
		return "a host died that ran one of its tasks: if the task is the cause, the next host dies soon", nil
	}
	return judgeCanary(canary, &tried).Reason, nil
}

// tellStuck logs once that a step does not end although its time or number of tasks is over.
func (f *Follower) tellStuck(c *release.Release, why string) {
	step := stuckStep{c.Number, c.Stage.Step}
	if why == "" || f.stuck[c.Plugin] == step {
		return
	}
	f.stuck[c.Plugin] = step
	f.Logger.Warn("the step of a canary does not end", "plugin", c.Plugin, "release", c.Number, "step", c.Stage.Step+1,
		"why", why)
}

// ignored returns nil for what happens if somebody ended or froze the canary meanwhile.
func ignored(err error) error {
	if errors.Is(err, release.ErrNoCanary) || errors.Is(err, release.ErrFrozen) {
		return nil
	}
	return err
}

// has reports whether this host has a canary ready.
func (t *Tenant) has(c *release.Release) bool {
	return slices.ContainsFunc(t.Directory.List(), func(s plugins.Status) bool {
		return s.Tenant == t.Client.Tenant() && s.Plugin == c.Plugin && s.Release == c.Number &&
			s.State != plugins.StateRefused
	})
}

// haltRefused halts a canary that all hosts refuse, if this one is among them and knows why.
func (f *Follower) haltRefused(ctx context.Context, c *release.Release) error {
	why := ""
	for _, s := range append(f.Directory.List(), f.Refused()...) {
		if s.Tenant == f.Client.Tenant() && s.Plugin == c.Plugin && s.Release == c.Number &&
			s.State == plugins.StateRefused && !s.Unfetched {
			why = s.Error
		}
	}
	if why == "" {
		return nil
	}
	_, err := f.store.HaltRelease(ctx, c.Plugin, c.Number, short("no host can run it: "+why))
	return ignored(err)
}

// short cuts a reason to what Redis keeps.
func short(text string) string {
	const most = 1000
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
