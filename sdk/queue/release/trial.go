package release

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

const (
	// keptTrial is how long the counts of a trial are kept after the last task was counted.
	keptTrial = 7 * 24 * time.Hour
	// watched is how long a release is on trial that a push has made to serve.
	watched = time.Hour
	// trialFields is the maximum number of fields with counts of a trial.
	trialFields = 6000
)

// Trial has the counts of a release that is on trial: a canary, or a release that a push made to serve in the last
// hour.
type Trial struct {
	Number int
	Steps  []TrialStep // those with counts, in the order of Index
}

// TrialStep has the counts of a step of a canary, and of the release that served beside it. For a release that serves,
// Index is 0, and Old is empty.
type TrialStep struct {
	Index    int
	Old, New Counts
}

// At returns the step with an index. It adds the step if there is none.
func (t *Trial) At(index int) *TrialStep {
	i, found := slices.BinarySearchFunc(t.Steps, index, func(s TrialStep, index int) int { return s.Index - index })
	if !found {
		t.Steps = slices.Insert(t.Steps, i, TrialStep{Index: index})
	}
	return &t.Steps[i]
}

// Tried is a trial as it is in Redis.
type Tried struct {
	Trial
	// Deaths is how many hosts have died over a task of the release: one that was in a crash before or may crash only
	// once, or any while the release began on one host alone.
	Deaths int
	// Crashed is when the last host was found dead that ran a task of the release, whatever it died of; zero if none was.
	Crashed time.Time
}

// AddTrial adds the counts of a host to those of all hosts, and returns the sum. r is the release on trial. The error
// is ErrNoTrial if r is not on trial; nothing is counted then.
func (s *Store) AddTrial(ctx context.Context, r *Release, counts *Trial) (Tried, error) {
	args := []any{
		s.store.Clock, r.Plugin, r.Number, int(watched.Seconds()), int(keptTrial.Seconds()), trialFields,
	}
	for i := range counts.Steps {
		step := &counts.Steps[i]
		args = step.Old.appendFields(args, fmt.Sprint(step.Index, " old "))
		args = step.New.appendFields(args, fmt.Sprint(step.Index, " new "))
	}
	reply, err := s.store.Eval(ctx, store.NewCall("trial", s.store.Keys.Trial(r.Plugin), args...))
	if err != nil {
		return Tried{}, store.Wrap("count tasks of releases of plugin "+r.Plugin, err)
	}
	parts := store.AsList(reply)
	if len(parts) != 2 {
		return Tried{}, fmt.Errorf("release %d of plugin %s: %w", r.Number, r.Plugin, ErrNoTrial)
	}
	tried := Tried{Trial: Trial{Number: r.Number}}
	if deaths := strings.Fields(store.AsString(parts[0])); len(deaths) > 0 { // "CRASHED LISTENER SECOND LISTENER SECOND ..."
		tried.Deaths = len(deaths) / 2
		tried.Crashed = time.UnixMilli(int64(seconds(deaths[0]) * 1000))
	}
	fields := store.AsList(parts[1])
	for i := 0; i+1 < len(fields); i += 2 {
		tried.read(store.AsString(fields[i]), store.AsString(fields[i+1]))
	}
	return tried, nil
}

// Trial reads the counts of the plugin's last trial. Its Number is 0 if there is none.
func (s *Store) Trial(ctx context.Context, plugin string) (t Trial, err error) {
	if err := ValidPlugin(plugin); err != nil {
		return t, err
	}
	hash, err := s.store.RDB.HGetAll(ctx, s.store.Keys.Trial(plugin)).Result()
	for field, value := range hash {
		t.read(field, value)
	}
	return t, store.Wrap("read counts of releases of plugin "+plugin, err)
}

// The fields of counts in Redis are "STEP SIDE NAME", or "STEP SIDE NAME BUCKET" for histograms.
const (
	fieldRuns = "runs"
	fieldTook = "took"
	fieldFuel = "fuel"
)

func (c *Counts) appendFields(args []any, prefix string) []any {
	add := func(name string, n int64) {
		if n > 0 {
			args = append(args, prefix+name, n)
		}
	}
	add(fieldRuns, c.Runs)
	for kind, n := range c.Failures {
		add(Kind(kind).String(), n)
	}
	for i := range buckets {
		add(fieldTook+" "+strconv.Itoa(i), c.Duration[i])
		add(fieldFuel+" "+strconv.Itoa(i), c.Fuel[i])
	}
	return args
}

// read adds a field of a trial. It ignores fields that it does not know.
func (t *Trial) read(field, value string) {
	n := store.AsInt(value)
	if field == "number" {
		t.Number = int(n)
		return
	}
	words := strings.Split(field, " ")
	index, err := strconv.Atoi(words[0])
	if err != nil || index < 0 || index >= maxSteps || len(words) < 3 || n < 0 {
		return
	}
	step := t.At(index)
	side := &step.New
	if words[1] == "old" {
		side = &step.Old
	}
	bucket := 0
	if len(words) > 3 {
		if bucket, err = strconv.Atoi(words[3]); err != nil || bucket < 0 || bucket >= buckets {
			return
		}
	}
	switch words[2] {
	case fieldRuns:
		side.Runs = n
	case fieldTook:
		side.Duration[bucket] = n
	case fieldFuel:
		side.Fuel[bucket] = n
	}
	for kind := range kinds {
		if words[2] == kind.String() {
			side.Failures[kind] = n
		}
	}
}

// Stopped says that hosts stopped a release by themselves.
type Stopped struct {
	Plugin  string  `json:"plugin"`
	Number  int     `json:"number" doc:"The release that was stopped."`
	Serving int     `json:"serving" doc:"The release that serves in its place."`
	At      float64 `json:"at" doc:"When it was stopped."`
	Reason  string  `json:"reason"`
}

// StopRelease ends the canary with this number, or goes back from the release with this number that serves, because it
// is bad. It reports whether it did so: otherwise somebody was faster, or there is no release before.
func (s *Store) StopRelease(ctx context.Context, plugin string, number int, reason string) (bool, error) {
	changed, _, err := s.change(ctx, plugin, "stop", strconv.Itoa(number), reason)
	return changed, err
}

// Stopped lists the releases that hosts stopped by themselves, by plugin, until another release of the plugin is pushed
// or made to serve.
func (s *Store) Stopped(ctx context.Context) (map[string]Stopped, error) {
	all := make(map[string]Stopped)
	err := s.each(ctx, s.store.Keys.Stopped(), func(plugin, text string) {
		words := strings.SplitN(text, " ", 4)
		if ValidPlugin(plugin) != nil || len(words) != 4 {
			return
		}
		all[plugin] = Stopped{
			Plugin: plugin, Number: int(store.AsInt(words[0])), Serving: int(store.AsInt(words[1])), At: seconds(words[2]),
			Reason: words[3],
		}
	})
	return all, store.Wrap("read stopped releases", err)
}
