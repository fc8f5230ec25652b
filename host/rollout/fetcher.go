package rollout

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/release"
)

// errFetching is returned for a release that a Fetcher still has to fetch.
var errFetching = errors.New("it is being fetched from its registry")

// key names a release.
type key struct {
	plugin string
	number int
}

func keyOf(r *release.Release) key { return key{r.Plugin, r.Number} }

// pull is a release that is to be fetched from a registry. The fields below the blank line are guarded by the Tenant's
// mu.
type pull struct {
	release.Release
	before string    // the folder of another release of the plugin, or ""
	since  time.Time // when a look first needed it

	wanted bool      // the last look needs it
	listed bool      // Fetching had it after that look
	done   bool      // the last attempt is over
	err    error     // why the last attempt failed; nil during the first one
	again  time.Time // when the next attempt may begin, after a failed one
	end    func()    // ends the attempt under way; nil if there is none
}

// fromRegistry returns the folder of a release whose files are in a registry. If the cache does not have it, the error
// is errFetching during the first attempt of a Fetcher, and then why the last attempt failed.
func (t *Tenant) fromRegistry(now time.Time, r *release.Release, before string) (string, error) {
	if folder, has, err := t.Cache.find(r); has || err != nil {
		return folder, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.pulls[keyOf(r)]
	if f == nil || f.done && f.err == nil { // done: somebody has removed the folder
		f = &pull{Release: *r, before: before, since: now}
		t.pulls[keyOf(r)] = f
	}
	f.wanted = true
	if f.err == nil {
		return "", errFetching
	}
	if !now.Before(f.again) {
		f.done = false
	}
	return "", f.err
}

// first reports whether the release waits for its first attempt, or is in it.
func (f *pull) first() bool { return !f.done && f.err == nil }

// fetches reports whether a release of a plugin that the look under way needs waits for its first attempt.
func (t *Tenant) fetches(plugin string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, f := range t.pulls {
		if of.plugin == plugin && f.wanted && f.first() {
			return true
		}
	}
	return false
}

// endPulls forgets the releases that the last look did not need. It reports whether Fetching has changed since the look
// before. The caller holds mu.
func (t *Tenant) endPulls() (changed bool) {
	maps.DeleteFunc(t.pulls, func(_ key, f *pull) bool {
		listed := f.wanted && f.first()
		changed = changed || listed != f.listed
		f.listed = listed
		if !f.wanted && f.end != nil {
			f.end()
		}
		return !f.wanted
	})
	return changed
}

// nextPull returns the release that is to be fetched next; nil if there is none. First attempts come first.
// Of these, releases that are to serve come first, then others of plugins that serve nothing. The caller holds mu.
func (t *Tenant) nextPull() (next *pull) {
	rank := func(f *pull) int {
		if t.wanted[f.Plugin] == f.Number {
			return 0
		}
		if t.serving[f.Plugin].folder == "" {
			return 1
		}
		return 2
	}
	for _, f := range t.pulls {
		if !f.done && (next == nil || cmp.Or(f.again.Compare(next.again), rank(f)-rank(next)) < 0) {
			next = f
		}
	}
	return next
}

// hasPull reports whether there is a release to fetch.
func (t *Tenant) hasPull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nextPull() != nil
}

// beginPull begins an attempt to fetch the next release; nil if there is none. The context ends when no look needs it
// any more.
func (t *Tenant) beginPull(ctx context.Context) (*pull, context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.nextPull()
	if f != nil {
		ctx, f.end = context.WithCancel(ctx)
	}
	return f, ctx
}

// endPull ends an attempt. Unless another one has to follow at once, it records the result for the next look.
func (t *Tenant) endPull(f *pull, err error, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.end()
	f.end = nil
	if over {
		f.done, f.err, f.again, t.news = true, err, time.Now().Add(retryTime), true
	}
}

// Fetcher fetches releases from registries, one after the other, beside the looks of its Follower: a slow registry must
// not delay a halt or a rollback.
type Fetcher struct {
	periodic.Duty
	Follower *Follower
}

// RunOnce implements periodic.Worker.
func (f *Fetcher) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	t := f.Follower.Tenant
	for ctx.Err() == nil {
		next, attempt := t.beginPull(ctx)
		if next == nil {
			break
		}
		blobs := &lentBlobs{Blobs: t.blobs, borrow: f.Follower.Borrow}
		_, err := t.Cache.obtain(attempt, &next.Release, blobs, next.before)
		blobs.share.Give()
		t.endPull(next, err, ctx.Err() == nil) // otherwise the next session fetches it
		f.Follower.Ask()
	}
	return askPause, periodic.UntilAsked, nil
}
