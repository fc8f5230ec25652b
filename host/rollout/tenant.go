package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/release"
)

const (
	// op is the name under which metrics and logs report the calls to Redis.
	op = "releases"
	// askPause is the minimum time between two looks, no matter how many messages arrive.
	askPause = 20 * time.Millisecond
	// retryTime is how long a release that could not be fetched waits for the next attempt.
	retryTime = 10 * time.Second
	// rejectTime is how long a release that the plugin directory refuses waits for the next attempt. The reason may be the
	// host's, such as a full disk.
	rejectTime = 10 * time.Minute
	// fetchTime is how long a look fetches a release from Redis before hosts say so.
	fetchTime = time.Second
)

// Config says what a Tenant follows. All fields are required.
type Config struct {
	Client    *queue.Client
	Cache     *Cache
	Directory *plugins.Directory
	// Interval is how often the tenant looks for releases that no message announced, ± 20 %.
	Interval time.Duration
	// Artifacts reads releases whose bytes are in registries.
	Artifacts Artifacts
	// Verify returns an error if the tenant's hosts must not serve a release, because it is not signed.
	Verify func(r *release.Release) error
	// ReportOnly makes the host report bad releases without stopping them.
	ReportOnly bool
	Logger     hclog.Logger
}

// Tenant makes a host serve the releases of one tenant.
type Tenant struct {
	Config
	store  *release.Store
	blobs  Blobs
	trials trials

	mu      sync.Mutex             // guards the fields below
	looked  bool                   // the tenant has looked at all releases at least once
	wanted  map[string]int         // by plugin: the number of the release to serve
	serving map[string]fetched     // by plugin: what the directory was given
	staged  map[string]*staged     // by plugin: what is beside the release that serves
	failed  map[key]plugins.Status // why a wanted release, or a canary, was not given to the directory
	pulls   map[key]*pull          // from registries
	fetch   *plugins.Status        // what the look under way fetches from Redis; nil if it fetches nothing
	news    bool                   // the next look has to look at all releases

	// Only the look under way uses the fields below.
	generation string
	retry      time.Time // when to try again what has failed
	used       time.Time // when the cache last recorded what is used
	rejected   map[string]rejection
	stuck      map[string]stuckStep // by plugin: the step that was reported because it does not end
	changed    func()               // as Follower.Changed
}

// stuckStep names a step of a canary.
type stuckStep struct{ number, step int }

// rejection says that the plugin directory of this host refuses a release of which nothing else serves.
type rejection struct {
	number int
	why    string
	until  time.Time // when the release is tried again
}

// fetched is a release with its folder.
type fetched struct {
	release.Release
	folder string
}

// New makes a Tenant, which serves no releases until a Follower runs.
func New(c Config) *Tenant {
	store := release.NewStore(c.Client)
	return &Tenant{
		Config: c, store: store, blobs: sources{store, c.Artifacts}, serving: make(map[string]fetched),
		staged: make(map[string]*staged), rejected: make(map[string]rejection), pulls: make(map[key]*pull),
		stuck: make(map[string]stuckStep), changed: func() {},
	}
}

// Ready reports whether the tenant has looked at all releases since the host began, and fetched or refused each.
func (t *Tenant) Ready() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.looked
}

// Wanted returns the number of the release that a plugin is to serve; 0 if it has none.
func (t *Tenant) Wanted(plugin string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted[plugin]
}

// Refused lists the releases that could not be fetched or checked, as refused plugins.
func (t *Tenant) Refused() []plugins.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.failed))
}

// Fetching lists the releases that are being fetched, or wait for that, without those that are refused because an
// attempt has failed.
func (t *Tenant) Fetching() (list []plugins.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fetch != nil && t.failed[key{t.fetch.Plugin, t.fetch.Release}].Error == "" {
		list = append(list, *t.fetch)
	}
	for _, f := range t.pulls {
		if f.wanted && f.first() {
			list = append(list, t.fetchStatus(&f.Release, f.since))
		}
	}
	return list
}

// Follower follows the releases of a tenant for a session.
type Follower struct {
	periodic.Duty
	*Tenant
	// Changed is called when the result of Refused, Fetching or Wanted has changed. It must not block.
	Changed func()
	// CrashLoop is how long it takes until a task that kills its host has killed a second one, and both deaths are known.
	CrashLoop time.Duration
	// Borrow reserves memory to read a piece of this size.
	Borrow func(ctx context.Context, size int64) (*account.Share, error)
	// Fleet tells which live hosts have a canary.
	Fleet func(ctx context.Context, plugin string, number int) (Presence, error)
	// Tried is called when releases may be on trial, and Fetch when a Fetcher has to fetch a release. They must not block.
	Tried, Fetch func()
}

// Presence says which hosts of a fleet have a canary.
type Presence struct {
	Has bool // a host has it ready
	May bool // a host that serves the plugin neither has it nor refuses it: it may be fetching it
}

// sources are the Blobs of a tenant: its Redis, and registries.
type sources struct {
	*release.Store
	Artifacts
}

// lentBlobs reads pieces and artifacts, for which it reserves memory before the first one.
type lentBlobs struct {
	Blobs
	borrow func(ctx context.Context, size int64) (*account.Share, error)
	share  *account.Share
}

func (l *lentBlobs) lend(ctx context.Context) (err error) {
	if l.share == nil {
		l.share, err = l.borrow(ctx, release.PieceBytes)
	}
	return err
}

func (l *lentBlobs) Piece(ctx context.Context, digest string) ([]byte, error) {
	if err := l.lend(ctx); err != nil {
		return nil, err
	}
	return l.Blobs.Piece(ctx, digest)
}

// Files needs less memory than a piece, because files are streamed.
func (l *lentBlobs) Files(ctx context.Context, r *release.Release) (func(*release.File) (io.ReadCloser, error), error) {
	if err := l.lend(ctx); err != nil {
		return nil, err
	}
	return l.Blobs.Files(ctx, r)
}

// RunOnce implements periodic.Worker.
func (f *Follower) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	blobs := &lentBlobs{Blobs: f.blobs, borrow: f.Borrow}
	f.changed = f.Changed
	changed, err := f.look(ctx, time.Now(), blobs)
	blobs.share.Give()
	if len(f.trials.all()) > 0 {
		f.Tried()
	}
	if f.hasPull() {
		f.Fetch()
	}
	wait = periodic.Jitter(f.Interval)
	if err == nil {
		var next time.Duration
		if next, err = f.advance(ctx); next > 0 {
			wait = min(wait, next)
		}
	}
	if changed {
		f.Changed()
	}
	switch {
	case err == nil:
		f.Reports.Succeeded(op, "")
	case ctx.Err() == nil:
		f.Reports.Failed(op, "", err)
		if !queue.IsUnavailable(err) {
			f.mu.Lock()
			f.looked = true // the rest of the host works without releases
			f.mu.Unlock()
		}
	}
	return askPause, wait, err
}

// look fetches what is new, and gives it to the directory. It returns an error only of a call that reads which releases
// there are.
func (t *Tenant) look(ctx context.Context, now time.Time, blobs Blobs) (changed bool, err error) {
	if now.Sub(t.used) > useTime {
		t.used = now
		t.mu.Lock()
		t.expire(now)
		t.mu.Unlock()
		if err := t.Cache.use(t.folders(), now); err != nil {
			t.Logger.Warn("releases that no host uses were not removed", "error", err)
		}
	}
	again := !t.retry.IsZero() && now.After(t.retry)
	if !again && t.Ready() {
		generation, err := t.store.Generation(ctx)
		if err != nil || generation == t.generation && !t.hasNews() && !t.stranded() {
			return false, err
		}
	}
	all, generation, err := t.store.Serving(ctx)
	if err != nil {
		return false, err
	}
	stopped, err := t.store.Stopped(ctx)
	if err != nil {
		return false, err
	}
	t.trials.set(all, stopped)
	t.generation = "" // the next look repeats one that does not reach its end
	t.retry = time.Time{}
	t.note(all)
	serving, failed, bare := make(map[string]fetched), make(map[key]plugins.Status), false
	fail := func(r *release.Release, err error) {
		if errors.Is(err, errFetching) {
			return
		}
		failed[keyOf(r)] = t.refusal(r, err)
		t.retry = now.Add(retryTime)
	}
	for _, plugin := range slices.Sorted(maps.Keys(all)) {
		one := all[plugin]
		t.mu.Lock()
		old := t.serving[plugin]
		t.mu.Unlock()
		got, err := t.choose(ctx, now, &one, old, blobs)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if err != nil {
			fail(&one.Release, err)
		}
		if got.folder != "" {
			serving[plugin] = got
			t.give(plugin, got)
		}
		bare = bare || got.folder == "" && t.fetches(plugin)
		needed, err := t.stage(ctx, now, plugin, got, blobs)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if needed != nil {
			t.retry = now.Add(retryTime)
			t.Logger.Warn("a release that pinned tasks need was not fetched", "plugin", plugin, "error", needed)
		}
		if err != nil {
			fail(one.Canary, err)
		}
	}
	return t.finish(all, generation, serving, failed, bare), nil
}

// hasNews reports whether a task needs a release that was not looked for yet.
func (t *Tenant) hasNews() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.news
}

// choose returns the release of a plugin to serve: the wanted one, or what served before if that fails, or else the one
// before the wanted one. err says why the wanted one is not chosen. It is errFetching only if the wanted one itself is
// being fetched.
func (t *Tenant) choose(ctx context.Context, now time.Time, one *release.Served, old fetched, blobs Blobs,
) (got fetched, err error) {
	if one.Err != nil {
		return old, one.Err
	}
	refused := t.refusedHere(now, one, old)
	if err = refused; err == nil {
		if got, err = t.obtain(ctx, now, &one.Release, old, blobs); err == nil {
			return got, nil
		}
	}
	if one.Before == nil || errors.Is(err, errFetching) || old.folder != "" && (refused == nil || old.Number != one.Number) {
		return old, err
	}
	got, before := t.obtain(ctx, now, one.Before, old, blobs)
	if before != nil {
		return old, fmt.Errorf("%w; and of the release before, %d: %s", err, one.Before.Number, before.Error())
	}
	return got, err
}

// obtain fetches a release. old is the release of the plugin that serves, if any.
func (t *Tenant) obtain(ctx context.Context, now time.Time, r *release.Release, old fetched, blobs Blobs,
) (fetched, error) {
	if err := t.Verify(r); err != nil {
		return fetched{}, unfit{err}
	}
	if old.folder != "" && old.Digest() == r.Digest() {
		if _, err := os.Stat(old.folder); err == nil {
			return fetched{*r, old.folder}, nil
		}
	}
	if r.Artifact != "" {
		folder, err := t.fromRegistry(now, r, old.folder)
		return fetched{*r, folder}, err
	}
	folder, has, err := t.Cache.find(r)
	if has || err != nil {
		return fetched{*r, folder}, err
	}
	defer t.beginFetch(now, r)()
	folder, err = t.Cache.obtain(ctx, r, blobs, old.folder)
	return fetched{*r, folder}, err
}

// beginFetch records that the look fetches a release from Redis, until the function that it returns is called. It tells
// the session only if that lasts: most releases are fetched before anybody could read it.
func (t *Tenant) beginFetch(now time.Time, r *release.Release) (end func()) {
	set := func(s *plugins.Status) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.fetch = s
	}
	s := t.fetchStatus(r, now)
	set(&s)
	tell := time.AfterFunc(fetchTime, t.changed)
	return func() {
		set(nil)
		if !tell.Stop() {
			t.changed()
		}
	}
}

func (t *Tenant) fetchStatus(r *release.Release, since time.Time) plugins.Status {
	return plugins.Status{
		Tenant: t.Client.Tenant(), Plugin: r.Plugin, Version: r.Version, Digest: moduleDigest(r), Release: r.Number,
		State: plugins.StateFetching, Since: since,
	}
}

// refusedHere returns an error if the plugin directory refuses the wanted release, or did within the last rejectTime,
// and has nothing else to serve in its place, but there is a release before it.
func (t *Tenant) refusedHere(now time.Time, one *release.Served, old fetched) error {
	if one.Before == nil {
		return nil
	}
	if old.Number == one.Number {
		if why := t.refusedAlone(one.Plugin, one.Number); why != "" {
			t.rejected[one.Plugin] = rejection{one.Number, why, now.Add(rejectTime)}
		}
	}
	if r := t.rejected[one.Plugin]; r.number == one.Number && now.Before(r.until) {
		return unfit{fmt.Errorf("this host refuses it: %s", r.why)}
	}
	return nil
}

// refusedAlone returns why the plugin directory refuses a release, if no other release can serve in its place: nothing
// of the plugin serves, or what serves is a later release, from which somebody went back. Otherwise it returns "".
func (t *Tenant) refusedAlone(plugin string, number int) (why string) {
	for _, s := range t.Directory.List() {
		switch {
		case s.Tenant != t.Client.Tenant() || s.Plugin != plugin:
		case s.State == plugins.StateServing && s.Release <= number:
			return ""
		case s.State == plugins.StateRefused && s.Release == number:
			why = s.Error
		}
	}
	return why
}

// stranded reports whether the plugin directory refuses a release that was given to it, and nothing serves in its
// place.
func (t *Tenant) stranded() bool {
	t.mu.Lock()
	serving := maps.Clone(t.serving)
	t.mu.Unlock()
	for plugin, r := range serving {
		if t.Wanted(plugin) == r.Number && t.refusedAlone(plugin, r.Number) != "" {
			return true
		}
	}
	return false
}

// moduleDigest returns the digest of the module as plugins.Status has it; "" of a release that cannot be read.
func moduleDigest(r *release.Release) string {
	if len(r.Files) == 0 {
		return ""
	}
	return "sha256:" + r.ModuleDigest()
}

// refusal returns the status of a release that is not served.
func (t *Tenant) refusal(r *release.Release, err error) plugins.Status {
	return plugins.Status{
		Tenant: t.Client.Tenant(), Plugin: r.Plugin, Version: r.Version, Digest: moduleDigest(r), Release: r.Number,
		State: plugins.StateRefused, Error: fmt.Sprintf("release %d: %v", r.Number, err), Unfetched: !isUnfit(err),
	}
}

// give makes the directory serve a release as soon as it is fetched, so that it does not wait for other plugins.
func (t *Tenant) give(plugin string, got fetched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.serving[plugin]
	t.serving[plugin] = got
	if known && old.Number == got.Number && old.folder == got.folder {
		return
	}
	t.Logger.Info("release fetched", "plugin", plugin, "release", got.Number, "version", got.Version, "digest", got.Digest())
	t.set()
}

// set gives the releases to the directory. The caller holds mu.
func (t *Tenant) set() {
	releases := make(map[string]plugins.Release, len(t.serving))
	for plugin, one := range t.serving {
		releases[plugin] = plugins.Release{Number: one.Number, Dir: one.folder, Beside: t.beside(plugin)}
	}
	t.Directory.SetReleases(t.Client.Tenant(), releases)
}

// finish records the result of a look. bare reports that a plugin has nothing to serve until its release is fetched.
func (t *Tenant) finish(all map[string]release.Served, generation string, serving map[string]fetched,
	failed map[key]plugins.Status, bare bool,
) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := make(map[string]int, len(all))
	for plugin, one := range all {
		wanted[plugin] = one.Number
	}
	for of, status := range failed {
		if t.failed[of].Error != status.Error {
			t.Logger.Error("release not served", "plugin", of.plugin, "release", of.number,
				"serving", serving[of.plugin].Number, "error", status.Error)
		}
	}
	fetching := t.endPulls()
	same := func(a, b plugins.Status) bool { return a.Error == b.Error }
	changed = !t.looked || fetching || !maps.Equal(t.wanted, wanted) || !maps.EqualFunc(t.failed, failed, same)
	gone := len(t.serving) != len(serving)
	t.generation, t.looked, t.wanted, t.serving, t.failed = generation, t.looked || !bare, wanted, serving, failed
	if gone {
		t.set()
	}
	return changed
}

// folders lists the folders that serve, and makes the next look fetch those that are gone.
func (t *Tenant) folders() (folders []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.serving {
		folders = append(folders, one.folder)
	}
	for _, s := range t.staged {
		for _, one := range s.others {
			folders = append(folders, one.folder)
		}
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); err != nil {
			t.generation = ""
		}
	}
	return folders
}
