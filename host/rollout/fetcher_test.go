package rollout

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/release"
)

// down is a registry that answers nothing. It lists the releases that were asked for.
type down struct{ asked []int }

func (d *down) Files(_ context.Context, r *release.Release) (func(*release.File) (io.ReadCloser, error), error) {
	d.asked = append(d.asked, r.Number)
	return nil, errors.New("connection refused")
}

// fetching makes a tenant whose releases are in a registry, and the Fetcher of a session of it.
func fetching(t *testing.T, registry Artifacts) (*Tenant, *Fetcher) {
	t.Helper()
	client, err := queue.New("redis://127.0.0.1:1", queue.Config{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	directory, err := plugins.New(nil, plugins.Config{Dir: t.TempDir(), Tenants: []string{"acme"}})
	if err != nil {
		t.Fatal(err)
	}
	tenant := New(Config{
		Client: client, Cache: NewCache(t.TempDir()), Directory: directory, Artifacts: registry,
		Logger: hclog.NewNullLogger(), Verify: func(*release.Release) error { return nil },
	})
	follower := &Follower{
		Tenant: tenant,
		Borrow: func(context.Context, int64) (*account.Share, error) { return nil, nil },
	}
	return tenant, &Fetcher{Follower: follower}
}

// pullable makes a release that has this number and is in a registry.
func pullable(t *testing.T, number int) *release.Release {
	t.Helper()
	r := (&pieces{byDigest: map[string][]byte{}}).add(t, []byte{byte(number)})
	r.Number, r.Artifact = number, "oci://127.0.0.1:1/acme/mail@sha256:0"
	return r
}

// If neither the wanted release nor the one before can be fetched, both errors are kept, and the next attempts wait for
// retryTime.
func TestRegistryIsDown(t *testing.T) {
	t.Parallel()
	registry := &down{}
	tenant, fetcher := fetching(t, registry)
	one := release.Served{Release: *pullable(t, 2), Before: pullable(t, 1)}
	choose := func(now time.Time) error {
		t.Helper()
		got, err := tenant.choose(t.Context(), now, &one, fetched{}, tenant.blobs)
		if got.folder != "" {
			t.Fatalf("chose release %d", got.Number)
		}
		return err
	}
	fetch := func() {
		t.Helper()
		if _, _, err := fetcher.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	if err := choose(now); !errors.Is(err, errFetching) || !tenant.fetches("mail") {
		t.Errorf("at first: %v", err)
	}
	fetch()
	now = time.Now()
	if err := choose(now); err == nil || errors.Is(err, errFetching) || !tenant.fetches("mail") {
		t.Errorf("while the release before is fetched: %v", err)
	}
	fetch()
	for range 3 {
		if err := choose(now); err == nil || strings.Count(err.Error(), "connection refused") != 2 || tenant.fetches("mail") {
			t.Errorf("after both attempts: %v", err)
		}
		fetch()
	}
	if len(registry.asked) != 2 {
		t.Errorf("asked for the releases %v", registry.asked)
	}
	now = time.Now().Add(retryTime)
	if err := choose(now); err == nil || strings.Count(err.Error(), "connection refused") != 2 || tenant.fetches("mail") {
		t.Errorf("during the next attempts: %v", err)
	}
	fetch()
	if len(registry.asked) != 4 {
		t.Errorf("asked for the releases %v", registry.asked)
	}
}

// First attempts come before others, and releases that are to serve come first.
func TestFetchOrder(t *testing.T) {
	t.Parallel()
	registry := &down{}
	tenant, fetcher := fetching(t, registry)
	now := time.Now()
	need := func(now time.Time, number int, plugin string) {
		r := pullable(t, number)
		r.Plugin = plugin
		if _, err := tenant.fromRegistry(now, r, ""); err == nil {
			t.Fatal("the cache has it")
		}
	}
	need(now, 1, "mail")
	if _, _, err := fetcher.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	tenant.wanted = map[string]int{"mail": 2, "other": 3}
	tenant.serving["mail"] = fetched{folder: t.TempDir()}
	need(now.Add(time.Hour), 1, "mail")
	need(now, 4, "mail")
	need(now, 5, "new")
	need(now, 3, "other")
	if _, _, err := fetcher.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := registry.asked; len(got) != 5 || got[1] != 3 || got[2] != 5 || got[3] != 4 || got[4] != 1 {
		t.Errorf("fetched the releases %v", got)
	}
}

// hanging is a registry that answers when the attempt ends.
type hanging struct{ began chan struct{} }

func (h *hanging) Files(ctx context.Context, _ *release.Release) (func(*release.File) (io.ReadCloser, error), error) {
	close(h.began)
	<-ctx.Done()
	return nil, ctx.Err()
}

// An attempt ends when no look needs its release any more.
func TestFetchEnds(t *testing.T) {
	t.Parallel()
	registry := &hanging{make(chan struct{})}
	tenant, fetcher := fetching(t, registry)
	if _, err := tenant.fromRegistry(time.Now(), pullable(t, 1), ""); !errors.Is(err, errFetching) {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := fetcher.RunOnce(t.Context())
		ended <- err
	}()
	<-registry.began
	tenant.note(nil)
	tenant.finish(nil, "", nil, nil, false)
	if err := <-ended; err != nil || len(tenant.pulls) > 0 {
		t.Errorf("it ended with %v, and %d releases are to be fetched", err, len(tenant.pulls))
	}
}

// A release in a registry is listed as being fetched during its first attempt, and what has changed is told once.
func TestFetchingFromRegistry(t *testing.T) {
	t.Parallel()
	tenant, fetcher := fetching(t, &down{})
	began, r := time.Now(), pullable(t, 2)
	look := func(now time.Time, changes bool, listed int) {
		t.Helper()
		tenant.note(nil)
		if _, err := tenant.fromRegistry(now, r, ""); err == nil {
			t.Fatal("the cache has it")
		}
		changed, list := tenant.finish(nil, "", nil, nil, false), tenant.Fetching()
		if changed != changes || len(list) != listed {
			t.Errorf("the look changed something: %v; fetching %v", changed, list)
		}
		for _, s := range list {
			if s.State != plugins.StateFetching || s.Plugin != "mail" || s.Release != 2 || !s.Since.Equal(began) || s.Error != "" {
				t.Errorf("%+v", s)
			}
		}
	}
	look(began, true, 1)
	look(began.Add(time.Second), false, 1)
	if _, _, err := fetcher.RunOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	look(time.Now(), true, 0)
	look(time.Now().Add(retryTime), false, 0) // it is refused, with the reason
}

// slow has pieces that come after it is told that they are being fetched.
type slow struct {
	*pieces
	told chan struct{}
}

func (s *slow) Piece(ctx context.Context, digest string) ([]byte, error) {
	select {
	case <-s.told:
		return s.pieces.Piece(ctx, digest)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A release that takes long to fetch from Redis is listed meanwhile.
func TestFetchingFromRedis(t *testing.T) {
	t.Parallel()
	tenant, _ := fetching(t, NoArtifacts{})
	from := &slow{&pieces{byDigest: map[string][]byte{}}, make(chan struct{})}
	r, changes := from.add(t, []byte("slow")), 0
	r.Number = 2
	tenant.changed = func() {
		if changes++; changes == 1 {
			if list := tenant.Fetching(); len(list) != 1 || list[0].Release != 2 || list[0].Since.IsZero() {
				t.Errorf("fetching %v", list)
			}
			close(from.told)
		}
	}
	if _, err := tenant.obtain(t.Context(), time.Now(), r, fetched{}, from); err != nil {
		t.Fatal(err)
	}
	if list := tenant.Fetching(); len(list) > 0 || changes != 2 {
		t.Errorf("fetching %v after %d changes", list, changes)
	}
}
