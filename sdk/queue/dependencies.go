package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// When is what must become of its dependencies before a task runs.
type When string

// A task that can never run any more fails with ReasonDependency, at once.
const (
	WhenComplete When = "complete" // all are complete; it fails when one has failed. The default
	WhenEnded    When = "ended"    // all have ended, however
	WhenAny      When = "any"      // one is complete; it fails when all have failed
	WhenFailed   When = "failed"   // one has failed; if all are complete it is too, without having run
)

var whens = []When{WhenComplete, WhenEnded, WhenAny, WhenFailed}

// MaxDependencies is how many tasks one task may wait for.
const MaxDependencies = 10_000

const (
	// inlineDependencies is the most dependencies of a task that are written with it, and blockDependencies those of one script.
	inlineDependencies = 32
	blockDependencies  = 100
)

// After is how far the dependencies of a task are: the tasks that it waits for, or waited for.
type After struct {
	When    When
	Open    bool // it may get more: it waits until Close
	Blocked bool // it waits for them, or failed for them
	// Of is how many there are; Ended counts those that ended, and Failed those of them that are not complete: they failed, were
	// cancelled or expired, or are deleted.
	Of     int
	Ended  int
	Failed int
}

// parseAfter reads the field after; nil if there is none, or it is damaged.
func parseAfter(text string) *After {
	words := strings.Fields(text)
	if len(words) != 5 {
		return nil
	}
	a := &After{When: When(words[1]), Open: words[0] == "open", Blocked: words[0] != "released"}
	for i, n := range []*int{&a.Of, &a.Ended, &a.Failed} {
		*n, _ = strconv.Atoi(words[2+i])
	}
	return a
}

// validate checks the options' dependencies.
func (o *Options) validateAfter() error {
	switch {
	case o.When != "" && !slices.Contains(whens, o.When):
		return fmt.Errorf("%w: when %q: use complete, ended, any or failed", ErrInvalid, o.When)
	case o.When != "" && len(o.After) == 0 && !o.Open:
		return fmt.Errorf("%w: when %q without tasks to wait for: name them, or leave it out", ErrInvalid, o.When)
	case len(o.After) > MaxDependencies:
		return fmt.Errorf("%w: %d tasks to wait for: at most %d", ErrInvalid, len(o.After), MaxDependencies)
	case o.ID != "" && slices.Contains(o.After, o.ID):
		return fmt.Errorf("%w: task %s is to wait for itself", ErrInvalid, o.ID)
	}
	for _, id := range o.After {
		if err := ValidID(id); err != nil {
			return err
		}
	}
	return nil
}

// Await adds dependencies to an open task, up to MaxDependencies in all: those that ended already count at once. It may be
// repeated: what the task waits for already is not added again. ErrDependency if one does not exist, ErrStatus if the task is not
// open (any more), ErrNoTask if the queue has no such task.
func (q *Queue) Await(ctx context.Context, id string, after ...string) error {
	return q.await(ctx, id, after, false)
}

// Close ends the dependencies of an open task: it runs when they have ended as it asks, which may be now. Closing it again does
// nothing. The errors are those of Await.
func (q *Queue) Close(ctx context.Context, id string) error { return q.await(ctx, id, nil, true) }

func (q *Queue) await(ctx context.Context, id string, after []string, closes bool) error {
	if err := cmp.Or(ValidQueue(q.name), ValidID(id), (&Options{ID: id, After: after}).validateAfter()); err != nil {
		return err
	}
	for first := true; first || len(after) > 0; first = false {
		n := min(len(after), blockDependencies)
		last := closes && n == len(after)
		answer, err := q.client.eval(ctx, newCall("await", q.client.keys.task(id), named(after[:n], q.client.clock, q.name, id, optional(last, "1"))...))
		if err == nil {
			err = verdict(answer, id)
		}
		if err != nil {
			return dependencyError(wrap("await task "+id, err))
		}
		after = after[n:]
	}
	return nil
}

// dependencyError makes a script's refusal ErrDependency.
func dependencyError(err error) error {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		if why, ok := strings.CutPrefix(refusal.Error(), "DEPENDENCY "); ok {
			return fmt.Errorf("%w: %s", ErrDependency, why)
		}
	}
	return err
}

// Dependency is a task that another one waits for, or waited for.
type Dependency struct {
	ID string
	// End is complete, failed, gone (it does not exist any more) or open (it could not be waited for); "" while it goes on.
	End string
	// Size is how many bytes its result has; 0 if there is none (any more).
	Size int64
}

// Dependencies reads the dependencies of a task, in the order in which they were named, without the first `from`: at most 1,000.
// It has none if there is no such task.
func (c *Client) Dependencies(ctx context.Context, id string, from, limit int) ([]Dependency, error) {
	all, err := c.AllDependencies(ctx, id)
	from, limit = min(max(from, 0), len(all)), min(max(limit, 0), pageTasks)
	page := all[from:min(from+limit, len(all))]
	if err != nil {
		return page, err
	}
	ids := make([]string, len(page))
	for i := range page {
		ids[i] = page[i].ID
	}
	sizes, err := c.sizesOf(ctx, ids, "result")
	for i, size := range sizes {
		page[i].Size = size
	}
	return page, err
}

// AllDependencies reads all dependencies of a task at once, without the sizes of their results.
func (c *Client) AllDependencies(ctx context.Context, id string) ([]Dependency, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	hash, err := c.rdb.HGetAll(ctx, c.keys.after(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read dependencies of task %s: %w", id, err)
	}
	all, places := make([]Dependency, 0, len(hash)), make(map[string]int, len(hash))
	for other, value := range hash {
		place, end, _ := strings.Cut(value, " ")
		places[other], _ = strconv.Atoi(place)
		all = append(all, Dependency{ID: other, End: end})
	}
	slices.SortFunc(all, func(a, b Dependency) int { return places[a.ID] - places[b.ID] })
	return all, nil
}

// advanceTasks is how many dependents one script tells: each takes some 20 commands.
const advanceTasks = 30

// Advance tells a block of the tasks that wait for others what became of these; hosts do it. It may run beside others. A program
// calls it, as long as there is more, only where no host runs.
func (f *Fleet) Advance(ctx context.Context) (Block, error) {
	c := f.client
	block, err := readBlock(c.eval(ctx, newCall("advance", c.keys.ended(), c.clock, advanceTasks)))
	return block, wrap("advance dependents", err)
}

// advanceAll tells all of them.
func (f *Fleet) advanceAll(ctx context.Context) error {
	for {
		if block, err := f.Advance(ctx); err != nil || !block.More {
			return err
		}
	}
}

const (
	// recheckTasks is how many dependencies one script looks at, and recheckBlocks how many scripts a Recheck runs.
	recheckTasks  = 300
	recheckBlocks = 30
	// RecheckAge is for how long no Recheck looks at a blocked task again.
	RecheckAge = pollInterval
)

// Recheck looks whether the dependencies of blocked tasks of the queue have ended without a word, as under a Python listener;
// hosts do it. It looks at some 10,000 dependencies, those first that nobody looked at for longest, and none twice in RecheckAge.
func (q *Queue) Recheck(ctx context.Context) (sum Block, err error) {
	if err := ValidQueue(q.name); err != nil {
		return Block{}, err
	}
	id, cursor := "", ""
	for range recheckBlocks {
		reply, err := q.client.eval(ctx, newCall("recheck", q.client.keys.blocked(q.name), q.client.clock, q.name, recheckTasks,
			RecheckAge.Seconds(), id, cursor))
		v := valuesOf(reply)
		sum.Tasks, sum.More, sum.Clock = sum.Tasks+v.count(), v.flag(), v.time()
		if id, cursor = v.text(), v.text(); err == nil {
			err = v.err()
		}
		if err != nil || !sum.More {
			return sum, wrap(fmt.Sprintf("recheck blocked tasks of %q", q.name), err)
		}
	}
	return sum, nil
}
