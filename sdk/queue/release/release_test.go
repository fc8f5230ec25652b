package release_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// world is a tenant of its own.
type world struct {
	*release.Store
	t      *testing.T
	client *queue.Client
	keys   store.Keys
	rdb    *redis.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	rdb := queuetest.Shared(t).Client(t)
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	return &world{release.NewStore(client), t, client, client.Store().Keys, rdb}
}

// contents are a module and its manifest.
func contents(plugin string, module []byte) []release.Content {
	return []release.Content{{Name: plugin + ".wasm", Data: module}, {Name: plugin + ".yaml", Data: []byte("queues: [" + plugin + "]\n")}}
}

func (w *world) push(to release.Target, plugin string, module []byte) (release.Release, error) {
	w.t.Helper()
	return w.stage(to, plugin, module, nil)
}

func (w *world) stage(to release.Target, plugin string, module []byte, share *release.Share) (release.Release, error) {
	w.t.Helper()
	files := contents(plugin, module)
	r, err := release.New(plugin, files)
	if err != nil {
		w.t.Fatal(err)
	}
	return release.Push(w.t.Context(), to, r, files, share)
}

func (w *world) must(r release.Release, err error) release.Release {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// states are the states of a plugin's releases, the newest first.
func (w *world) states(plugin string) string {
	w.t.Helper()
	all, err := w.Releases(w.t.Context(), plugin)
	if err != nil {
		w.t.Fatal(err)
	}
	var text []string
	for _, r := range all {
		text = append(text, fmt.Sprintf("%d %s", r.Number, r.State()))
	}
	return strings.Join(text, ", ")
}

// serving checks which release of a plugin hosts are to serve, and which one if that fails: 0 for none.
func (w *world) serving(plugin string, number, before int) release.Served {
	w.t.Helper()
	all, _, err := w.Serving(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	got, fallback := all[plugin], 0
	if got.Before != nil {
		fallback = got.Before.Number
	}
	if got.Number != number || fallback != before || got.Err != nil {
		w.t.Errorf("hosts are to serve %d, then %d (%v), want %d, then %d", got.Number, fallback, got.Err, number, before)
	}
	return got
}

func TestPush(t *testing.T) {
	w := newWorld(t)
	module := bytes.Repeat([]byte("0123456789abcdef"), release.PieceBytes/16*2+1000) // three pieces, the first two alike
	first := w.must(w.push(w, "mail", module))
	if first.Number != 1 || first.State() != release.StateServing || first.Created == 0 || first.Size() != int64(len(module)+15) {
		t.Errorf("pushed %+v", first)
	}
	var fetched []byte
	for _, digest := range w.serving("mail", 1, 0).Files[0].Pieces {
		data, err := w.Piece(t.Context(), digest)
		if err != nil {
			t.Fatal(err)
		}
		fetched = append(fetched, data...)
	}
	if !bytes.Equal(fetched, module) {
		t.Errorf("%d bytes were fetched, and differ from the %d that were pushed", len(fetched), len(module))
	}
	before, err := w.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again := w.must(w.push(w, "mail", module)); again.Number != 1 {
		t.Errorf("the same content has become release %d", again.Number)
	}
	if after, _ := w.Generation(t.Context()); after != before {
		t.Error("a push of the same content has changed the generation")
	}
	w.must(w.push(w, "mail", append(module, 1)))
	w.serving("mail", 2, 1)
	if got, want := w.states("mail"), "2 serving, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestRollback(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	for i := range 3 {
		w.must(w.push(w, "mail", []byte{byte(i)}))
	}
	if back := w.must(w.ServeRelease(ctx, "mail", 0)); back.Number != 2 {
		t.Errorf("rolled back to %d", back.Number)
	}
	w.serving("mail", 2, 1)
	if got, want := w.states("mail"), "3 rolled back, 2 serving, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if back := w.must(w.ServeRelease(ctx, "mail", 0)); back.Number != 1 {
		t.Errorf("rolled back once more to %d", back.Number)
	}
	if _, err := w.ServeRelease(ctx, "mail", 0); !errors.Is(err, release.ErrNoRelease) {
		t.Errorf("rolled back from the first release: %v", err)
	}
	if forth := w.must(w.ServeRelease(ctx, "mail", 3)); forth.Number != 3 {
		t.Errorf("went to %d", forth.Number)
	}
	w.serving("mail", 3, 1) // not 2, from which somebody went back
	if got, want := w.states("mail"), "3 serving, 2 rolled back, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.must(w.push(w, "mail", []byte("four")))
	w.must(w.push(w, "mail", []byte("five")))
	w.must(w.ServeRelease(ctx, "mail", 3))
	if got, want := w.states("mail"), "5 rolled back, 4 rolled back, 3 serving, 2 rolled back, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.must(w.push(w, "mail", []byte("six")))
	w.serving("mail", 6, 3) // not 4, which a rollback passed
	for _, number := range []int{-1, 9} {
		if _, err := w.ServeRelease(ctx, "mail", number); !errors.Is(err, release.ErrNoRelease) {
			t.Errorf("served release %d: %v", number, err)
		}
	}
}

func TestFreezeAndDelete(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.must(w.push(w, "mail", []byte("one")))
	w.must(w.push(w, "mail", []byte("two")))
	if err := w.FreezeReleases(ctx, "mail", true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.push(w, "mail", []byte("three")); !errors.Is(err, release.ErrFrozen) {
		t.Errorf("pushed to a frozen plugin: %v", err)
	}
	if err := w.DeleteRelease(ctx, "mail", 0); !errors.Is(err, release.ErrFrozen) {
		t.Errorf("deleted a frozen plugin: %v", err)
	}
	if got, want := w.states("mail"), "2 frozen, 1 replaced"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.must(w.ServeRelease(ctx, "mail", 1)) // the way out stays open
	if err := errors.Join(w.FreezeReleases(ctx, "mail", false), w.FreezeReleases(ctx, "mail", false)); err != nil {
		t.Fatal(err)
	}
	if err := w.DeleteRelease(ctx, "mail", 1); !errors.Is(err, release.ErrServes) {
		t.Errorf("deleted the release that serves: %v", err)
	}
	if err := w.DeleteRelease(ctx, "mail", 2); err != nil {
		t.Fatal(err)
	}
	w.serving("mail", 1, 0)
	if err := w.DeleteRelease(ctx, "mail", 0); err != nil {
		t.Fatal(err)
	}
	w.serving("mail", 0, 0)
	if all, err := w.Releases(ctx, "mail"); len(all) > 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	if err := w.FreezeReleases(ctx, "mail", true); !errors.Is(err, release.ErrNoRelease) {
		t.Errorf("froze a plugin without releases: %v", err)
	}
}

// Only the newest releases are kept; the one that serves and the one before it always are.
func TestKeptReleases(t *testing.T) {
	w := newWorld(t)
	for i := range release.MaxKept + 3 {
		w.must(w.push(w, "mail", []byte{byte(i)}))
	}
	all, err := w.Releases(t.Context(), "mail")
	if err != nil || len(all) != release.MaxKept || all[0].Number != release.MaxKept+3 || all[len(all)-1].Number != 4 {
		t.Errorf("%d releases from %d to %d are kept, %v", len(all), all[len(all)-1].Number, all[0].Number, err)
	}
}

// dying is a Target whose user dies before a write: every call from then on fails.
type dying struct {
	release.Target
	left int // writes until then
}

var errDead = errors.New("the pusher died")

func (d *dying) die() error {
	if d.left--; d.left < 0 {
		return errDead
	}
	return nil
}

func (d *dying) MissingPieces(ctx context.Context, sizes map[string]int64) ([]string, error) {
	if err := d.die(); err != nil {
		return nil, err
	}
	return d.Target.MissingPieces(ctx, sizes)
}

func (d *dying) PutPiece(ctx context.Context, digest string, data []byte) error {
	if err := d.die(); err != nil {
		return err
	}
	return d.Target.PutPiece(ctx, digest, data)
}

func (d *dying) PushRelease(ctx context.Context, r release.Release, share *release.Share) (release.Release, error) {
	if err := d.die(); err != nil {
		return release.Release{}, err
	}
	return d.Target.PushRelease(ctx, r, share)
}

// Wherever a pusher dies, hosts see either the release before or a release that is whole, and another push completes.
func TestPusherDiesBetweenWrites(t *testing.T) {
	w := newWorld(t)
	w.must(w.push(w, "mail", []byte("before")))
	module := slices.Concat(bytes.Repeat([]byte("a"), release.PieceBytes), bytes.Repeat([]byte("b"), release.PieceBytes))
	for writes := 0; ; writes++ {
		r, err := w.push(&dying{w, writes}, "mail", append(module, byte(writes)))
		if err == nil {
			if writes < 4 || r.Number != 2 {
				t.Errorf("release %d after %d writes", r.Number, writes)
			}
			break
		}
		if !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		w.serving("mail", 1, 0)
	}
	for _, f := range w.serving("mail", 2, 1).Files {
		for _, digest := range f.Pieces {
			if _, err := w.Piece(t.Context(), digest); err != nil {
				t.Error(err)
			}
		}
	}
}

// What hosts are to serve is damaged by somebody: it keeps its number, and a push of the same content repairs it.
func TestDamagedEntry(t *testing.T) {
	w := newWorld(t)
	w.must(w.push(w, "mail", []byte("one")))
	w.must(w.push(w, "mail", []byte("two")))
	for _, text := range []string{"", "nonsense", "2\n{}", "x\n{}", "2\n{}\n1\n{}"} {
		if err := w.rdb.HSet(t.Context(), w.keys.Releases(), "mail", text).Err(); err != nil {
			t.Fatal(err)
		}
		all, before, err := w.Serving(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := all["mail"]; got.Err == nil || got.Number != 2 || !strings.Contains(got.Err.Error(), "push the plugin again with `quern plugin push`") {
			t.Errorf("%q: %+v", text, got)
		}
		if r := w.must(w.push(w, "mail", []byte("two"))); r.Number != 2 {
			t.Errorf("%q: repaired by release %d", text, r.Number)
		}
		w.serving("mail", 2, 1)
		if after, _ := w.Generation(t.Context()); after == before {
			t.Errorf("%q: hosts do not learn of the repair", text)
		}
	}
	if err := w.rdb.HSet(t.Context(), w.keys.Release("mail"), "1", "{}").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Releases(t.Context(), "mail"); err == nil || !strings.Contains(err.Error(), "delete it with `quern plugin delete mail 1`") {
		t.Errorf("a damaged release: %v", err)
	}
	if err := w.DeleteRelease(t.Context(), "mail", 1); err != nil {
		t.Fatal(err)
	}
	if got, want := w.states("mail"), "2 serving"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A push of the same content repairs a damaged release that serves or is the canary, also of a frozen plugin.
func TestPushRepairs(t *testing.T) {
	w := newWorld(t)
	share := release.Share{Steps: []release.Step{{Percent: 10}}}
	canary := func() (release.Release, error) { return w.stage(w, "mail", []byte("two"), &share) }
	w.must(w.push(w, "mail", []byte("one")))
	w.must(canary())
	if err := w.FreezeReleases(t.Context(), "mail", true); err != nil {
		t.Fatal(err)
	}
	damage := func(key, field string) {
		t.Helper()
		if err := w.rdb.HSet(t.Context(), key, field, "{}").Err(); err != nil {
			t.Fatal(err)
		}
	}
	damage(w.keys.Release("mail"), "1")
	if _, err := w.Releases(t.Context(), "mail"); err == nil || !strings.Contains(err.Error(), "push the plugin again with `quern plugin push`") {
		t.Errorf("a damaged release that serves: %v", err)
	}
	damage(w.keys.Releases(), "mail")
	if r := w.must(w.push(w, "mail", []byte("one"))); r.Number != 1 {
		t.Errorf("repaired by release %d", r.Number)
	}
	w.serving("mail", 1, 0)
	damage(w.keys.Releases(), "mail")
	if r := w.must(canary()); r.Number != 2 {
		t.Errorf("repaired by release %d", r.Number)
	}
	w.serving("mail", 1, 0)
	if _, err := w.push(w, "mail", []byte("three")); !errors.Is(err, release.ErrFrozen) {
		t.Errorf("a push of another content: %v", err)
	}
}

// A piece that is gone or has other bytes is told with the remedy.
func TestDamagedPiece(t *testing.T) {
	w := newWorld(t)
	piece := w.must(w.push(w, "mail", []byte("one"))).Files[0].Pieces[0]
	key := w.keys.Piece(piece)
	if err := w.rdb.Set(t.Context(), key, "two", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Piece(t.Context(), piece); !errors.Is(err, release.ErrMissing) || !strings.Contains(err.Error(), "the key "+key+" has other bytes: delete it, and push the plugin again with `quern plugin push`") {
		t.Errorf("a piece with other bytes: %v", err)
	}
	if err := w.rdb.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Piece(t.Context(), piece); !errors.Is(err, release.ErrMissing) || !strings.Contains(err.Error(), piece+": push the plugin again with `quern plugin push`") {
		t.Errorf("a piece that is gone: %v", err)
	}
	w.must(w.push(w, "mail", []byte("one")))
	if data, err := w.Piece(t.Context(), piece); string(data) != "one" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}

// A release whose pieces are not all there is not written, even if nobody has asked for them.
func TestReleaseWithoutItsPieces(t *testing.T) {
	w := newWorld(t)
	files := contents("mail", []byte("module"))
	r, err := release.New("mail", files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.PushRelease(t.Context(), r, nil); !errors.Is(err, release.ErrMissing) {
		t.Errorf("pushed a release without its pieces: %v", err)
	}
	if err := w.PutPiece(t.Context(), r.Files[0].Pieces[0], files[0].Data); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("stored a piece that nobody asked for: %v", err)
	}
	if _, err := w.MissingPieces(t.Context(), r.Pieces()); err != nil {
		t.Fatal(err)
	}
	if err := w.PutPiece(t.Context(), r.Files[0].Pieces[0], []byte("modulo")); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("stored a piece under another digest: %v", err)
	}
	w.serving("mail", 0, 0)
}

// pieces returns the fields of NS_pieces without the sum, and checks that the sum is right.
func (w *world) pieces() map[string]string {
	w.t.Helper()
	fields, err := w.rdb.HGetAll(w.t.Context(), w.keys.Pieces()).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var sum int64
	for digest, text := range fields {
		var size int64
		if digest != "." {
			_, _ = fmt.Sscan(text, &size)
			sum += size
			if got := w.rdb.StrLen(w.t.Context(), w.keys.Piece(digest)).Val(); got != size && got != 0 {
				w.t.Errorf("piece %s has %d bytes, and counts as %d", digest, got, size)
			}
		}
	}
	if fields["."] != fmt.Sprint(sum) {
		w.t.Errorf("all pieces count as %s bytes, want %d", fields["."], sum)
	}
	return maps.Collect(func(yield func(string, string) bool) {
		for digest, text := range fields {
			if digest != "." && !yield(digest, text) {
				return
			}
		}
	})
}

// age makes a piece one that nobody has asked for in two hours.
func (w *world) age(digests ...string) {
	w.t.Helper()
	for _, digest := range digests {
		size := w.rdb.StrLen(w.t.Context(), w.keys.Piece(digest)).Val()
		if err := w.rdb.HSet(w.t.Context(), w.keys.Pieces(), digest, fmt.Sprintf("%d 1000000000.000000", size)).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestCollect(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	if deleted, err := w.Collect(ctx); deleted != 0 || err != nil {
		t.Errorf("%d pieces of no release: %v", deleted, err)
	}
	one, two := w.must(w.push(w, "mail", []byte("one"))), w.must(w.push(w, "mail", []byte("two")))
	manifest := one.Files[1].Pieces[0]
	if err := w.DeleteRelease(ctx, "mail", one.Number); err != nil {
		t.Fatal(err)
	}
	if deleted, err := w.Collect(ctx); deleted != 0 || err != nil {
		t.Errorf("%d pieces were deleted that somebody asked for within an hour: %v", deleted, err)
	}
	w.age(slices.Collect(maps.Keys(w.pieces()))...)
	if deleted, err := w.Collect(ctx); deleted != 1 || err != nil {
		t.Errorf("%d pieces were deleted, want that of the deleted release: %v", deleted, err)
	}
	if left := w.pieces(); len(left) != 2 || left[manifest] == "" || left[two.Files[0].Pieces[0]] == "" {
		t.Errorf("left are %v", left)
	}
	// A pusher found an old piece, and names it: the piece stays, whatever the collector read before.
	other := w.must(w.push(w, "other", []byte("three")))
	if err := w.DeleteRelease(ctx, "other", 0); err != nil {
		t.Fatal(err)
	}
	w.age(other.Files[0].Pieces[0])
	if missing, err := w.MissingPieces(ctx, other.Pieces()); len(missing) != 0 || err != nil {
		t.Errorf("%v is missing, %v", missing, err)
	}
	if deleted, err := w.Collect(ctx); deleted != 0 || err != nil {
		t.Errorf("%d pieces were deleted that a pusher has just found: %v", deleted, err)
	}
	w.must(w.PushRelease(ctx, other, nil))
}

// A tenant has a bound for all its releases, which is checked before anything is written.
func TestNoRoom(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.must(w.push(w, "mail", []byte("one")))
	before := w.pieces()
	if err := w.rdb.HSet(ctx, w.keys.Pieces(), ".", release.MaxStored-1).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.push(w, "mail", []byte("two")); !errors.Is(err, release.ErrNoRoom) || !strings.Contains(err.Error(), "plugin delete") {
		t.Errorf("pushed without room: %v", err)
	}
	if err := w.rdb.HSet(ctx, w.keys.Pieces(), ".", 3+15).Err(); err != nil {
		t.Fatal(err)
	}
	if after := w.pieces(); !maps.Equal(after, before) {
		t.Errorf("a refused push wrote %v, before it were %v", after, before)
	}
	w.must(w.push(w, "mail", []byte("one"))) // needs no room
}

func TestInvalidReleases(t *testing.T) {
	w := newWorld(t)
	good := func() release.Release {
		r, err := release.New("mail", contents("mail", []byte("module")))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, spoil := range map[string]func(*release.Release){
		"Plugin":  func(r *release.Release) { r.Plugin = "../mail" },
		"Hidden":  func(r *release.Release) { r.Plugin = ".mail" },
		"NoFiles": func(r *release.Release) { r.Files = nil },
		"Module":  func(r *release.Release) { r.Files = r.Files[1:] },
		"Outside": func(r *release.Release) { r.Files[1].Name = "../mail.yaml" },
		"Rooted":  func(r *release.Release) { r.Files[1].Name = "/etc/passwd" },
		"Twice":   func(r *release.Release) { r.Files[1].Name = r.Files[0].Name },
		"Line":    func(r *release.Release) { r.Files[1].Name = "a\nb" },
		"Large":   func(r *release.Release) { r.Files[0].Size = release.MaxBytes + 1 },
		"Pieces":  func(r *release.Release) { r.Files[0].Pieces = nil },
		"Digest":  func(r *release.Release) { r.Files[0].Digest = "sha256:" + r.Files[0].Digest[:57] },
		"Note":    func(r *release.Release) { r.Note = strings.Repeat("x", 2000) },
		"Tag":     func(r *release.Release) { *r = r.InRegistry("oci://ghcr.io/acme/mail:1") },
		"Scheme":  func(r *release.Release) { *r = r.InRegistry("http://ghcr.io/acme/mail@sha256:" + r.Files[0].Digest) },
		"User":    func(r *release.Release) { *r = r.InRegistry("oci://u:p@ghcr.io/acme/mail@sha256:" + r.Files[0].Digest) },
		"Long": func(r *release.Release) {
			*r = r.InRegistry("oci://ghcr.io/" + strings.Repeat("x", 512) + "@sha256:" + r.Files[0].Digest)
		},
		"Both": func(r *release.Release) { r.Artifact = "oci://ghcr.io/acme/mail@sha256:" + r.Files[0].Digest },
	} {
		r := good()
		spoil(&r)
		if _, err := w.PushRelease(t.Context(), r, nil); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What somebody wrote by hand into Redis is checked as well.
	if _, err := w.push(w, "mail", []byte("module")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "1", "1\n{}", "1\nnonsense", `1` + "\n" + `{"files":[{"name":"../x.wasm"}]}`} {
		if err := w.rdb.HSet(t.Context(), w.keys.Releases(), "mail", text).Err(); err != nil {
			t.Fatal(err)
		}
		all, _, err := w.Serving(t.Context())
		if got := all["mail"]; err != nil || got.Err == nil || got.Plugin != "mail" {
			t.Errorf("%q is read as %+v, %v", text, got, err)
		}
	}
}
