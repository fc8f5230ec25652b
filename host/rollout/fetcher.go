package rollout

import (
	"context"
	"errors"
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
	before string // the folder of another release of the plugin, or ""

	wanted bool // the last look needs it
	done   bool
	err    error // why it could not be fetched
}

// fromRegistry returns the folder of a release whose files are in a registry. If the cache does not have it, the error
// is errFetching, until a Fetcher has tried to fetch it.
func (t *Tenant) fromRegistry(r *release.Release, before string) (string, error) {
	if folder, has, err := t.Cache.find(r); has || err != nil {
		return folder, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.pulls[keyOf(r)]
	if f != nil && f.err != nil {
		delete(t.pulls, keyOf(r)) // the next look tries again
		return "", f.err
	}
	if f == nil || f.done { // done: somebody has removed the folder
		f = &pull{Release: *r, before: before}
		t.pulls[keyOf(r)] = f
	}
	f.wanted = true
	return "", errFetching
}

// nextPull returns a release that is still to be fetched; nil if there is none.
func (t *Tenant) nextPull() *pull {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.pulls {
		if !f.done {
			return f
		}
	}
	return nil
}

// pulled records that a release was fetched, or why not, for the next look.
func (t *Tenant) pulled(f *pull, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.done, f.err, t.news = true, err, true
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
	for next := t.nextPull(); next != nil; next = t.nextPull() {
		blobs := &lentBlobs{Blobs: t.blobs, borrow: f.Follower.Borrow}
		_, err := t.Cache.obtain(ctx, &next.Release, blobs, next.before)
		blobs.share.Give()
		if ctx.Err() != nil {
			break // the next session fetches it
		}
		t.pulled(next, err)
		f.Follower.Ask()
	}
	return askPause, periodic.UntilAsked, nil
}
