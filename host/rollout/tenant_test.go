package rollout

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/release"
)

// A release that the plugin directory refuses is not one that could not be fetched, and is tried again after a while.
func TestRejectedIsFetched(t *testing.T) {
	t.Parallel()
	tenant, _ := fetching(t, NoArtifacts{})
	from := &pieces{byDigest: map[string][]byte{}}
	first, second := from.add(t, []byte("first")), from.add(t, []byte("second"))
	first.Number, second.Number = 1, 2
	now, wanted := time.Now(), &release.Served{Release: *second, Before: first}
	tenant.rejected["mail"] = rejection{2, "the disk is full", now.Add(rejectTime)}
	got, err := tenant.choose(t.Context(), now, wanted, fetched{}, from)
	if status := tenant.refusal(second, err); got.Number != 1 || err == nil || status.Unfetched {
		t.Errorf("chose release %d, %+v", got.Number, status)
	}
	if got, err := tenant.choose(t.Context(), now.Add(rejectTime), wanted, got, from); got.Number != 2 || err != nil {
		t.Errorf("later chose release %d, %v", got.Number, err)
	}
}

// Which release a host serves if it cannot get the wanted one, 2: what it serves, or else the one before, 1.
func TestChoose(t *testing.T) {
	t.Parallel()
	client, err := queue.New("redis://127.0.0.1:1", queue.Config{Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	directory, err := plugins.New(nil, plugins.Config{Dir: t.TempDir(), Tenants: []string{"acme"}})
	if err != nil {
		t.Fatal(err)
	}
	all := &pieces{byDigest: map[string][]byte{}}
	first, second := all.add(t, []byte("first")), all.add(t, []byte("second"))
	first.Number, second.Number = 1, 2
	only := func(r *release.Release) *pieces {
		p := &pieces{byDigest: map[string][]byte{}}
		for digest := range r.Pieces() {
			p.byDigest[digest] = all.byDigest[digest]
		}
		return p
	}
	for name, tt := range map[string]struct {
		from   *pieces
		old    *release.Release // what serves, from a folder that is gone
		forged int              // the release that is not signed
		want   int
		fails  bool
	}{
		"All":            {from: all, want: 2},
		"Swap":           {from: all, old: first, want: 2},
		"NoBytes":        {from: only(first), want: 1, fails: true},
		"Nothing":        {from: &pieces{}, want: 0, fails: true},
		"Kept":           {from: &pieces{}, old: first, want: 1, fails: true},
		"KeptAfterLoss":  {from: only(first), old: second, want: 2, fails: true}, // and not the one before
		"Forged":         {from: all, forged: 2, want: 1, fails: true},
		"ForgedBefore":   {from: only(first), forged: 1, want: 0, fails: true},
		"ForgedMeantime": {from: all, old: first, forged: 2, want: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant := New(Config{
				Client: client, Cache: NewCache(t.TempDir()), Directory: directory, Logger: hclog.NewNullLogger(),
				Verify: func(r *release.Release) error {
					if r.Number == tt.forged {
						return errors.New("it is not signed")
					}
					return nil
				},
			})
			var old fetched
			if tt.old != nil {
				old = fetched{*tt.old, t.TempDir()}
				if err := os.Remove(old.folder); err != nil {
					t.Fatal(err)
				}
			}
			got, err := tenant.choose(t.Context(), time.Now(), &release.Served{Release: *second, Before: first}, old, tt.from)
			if got.Number != tt.want || (err != nil) != tt.fails {
				t.Errorf("chose release %d, %v", got.Number, err)
			}
		})
	}
}
