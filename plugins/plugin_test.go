package plugins

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"
)

// found is a plugin of which a look has found a file of that age.
func found(t *testing.T, age time.Duration) *plugin {
	t.Helper()
	path := t.TempDir() + "/a.wasm"
	write(t, path, []byte("x"))
	date := time.Now().Add(-age)
	check(t, os.Chtimes(path, date, date))
	info, err := os.Stat(path)
	check(t, err)
	p := &plugin{key: key{name: "a"}, manifest: manifestFile{manifest: DefaultManifest("a")}}
	p.seen.module = file{exists: true, path: "a.wasm", stamp: stamp{info: info}}
	return p
}

// What is known of a file is enough until its stamp changes; but a young file may change without.
func TestAssess(t *testing.T) {
	t.Parallel()
	now := time.Now()
	expect := func(what string, p *plugin, due, fresh bool) {
		t.Helper()
		if p.assess(now); p.due != due || p.fresh != fresh {
			t.Errorf("%s: due %t, fresh %t, want %t and %t", what, p.due, p.fresh, due, fresh)
		}
	}
	old := found(t, time.Hour)
	expect("never loaded", old, true, true)
	old.judged.trust.note(old.seen.module.stamp, now)
	expect("loaded", old, false, false)
	old.manifest.digest = "another"
	expect("with another manifest", old, true, true)
	old.manifest.digest = ""
	old.retryAt = now
	expect("when it is to be tried again", old, true, false)
	old.retryAt = now.Add(time.Second)
	expect("before it is to be tried again", old, false, false)
	old.seen.module.stamp = found(t, time.Minute).seen.module.stamp
	expect("another file", old, true, true)

	young := found(t, 0)
	young.judged.trust.note(young.seen.module.stamp, now)
	expect("a young file", young, true, false)
	if o := young.order("/"); o.digest != "" {
		t.Error("a young file is not read again")
	}
	young.judged.trust.note(young.seen.module.stamp, now.Add(settle))
	expect("the same, read again when it was old enough", young, false, false)
}

// settling is a keeper with one plugin whose load is under way.
func settling(t *testing.T) (*keeper, *plugin) {
	t.Helper()
	d, err := New(nil, Config{Dir: t.TempDir()})
	check(t, err)
	k := newKeeper(d, nil)
	p := found(t, time.Hour)
	p.busy = true
	k.insert(p)
	k.running = 1
	return k, p
}

// A load may find what served when it began, and does not any more: the file was removed and put back.
func TestConfirmWhatIsGone(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	id := identity{module: "sha256:1"}
	k.settle(result{order: order{key: p.key, serving: id}, stamp: p.seen.module.stamp, found: id, known: true})
	if p.busy || !p.due || !p.fresh {
		t.Errorf("the plugin is not loaded again: %+v", p)
	}
}

// Between the begin of a load and its end another plugin may have got the queue: then that one keeps it.
func TestAcceptWhatAnotherHasGot(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	other := found(t, time.Hour)
	other.name = "b"
	other.current = &Version{Name: "b", Manifest: DefaultManifest("a")}
	k.insert(other)
	released := false
	v := &Version{Name: "a", Manifest: DefaultManifest("a"), release: func(*module) { released = true }}
	v.holders.Store(1)
	k.settle(result{order: order{key: p.key}, stamp: p.seen.module.stamp, version: v})
	if p.current != nil || !released || !p.due || !p.fresh {
		t.Errorf("released %t, the plugin %+v, want it to be decided anew", released, p)
	}
}

// A folder that cannot be listed says nothing about its files: what was loaded keeps serving.
func TestClosedFolder(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	closed := found(t, time.Hour)
	closed.key = key{"acme", "a"}
	closed.current = &Version{Name: "a", Manifest: DefaultManifest("a")}
	k.insert(closed)
	k.compare(&survey{seen: map[key]sighting{p.key: p.seen}, closed: map[string]error{"acme": fs.ErrPermission}})
	if _, known := k.find(closed.key); !known || closed.current == nil || len(k.retired) > 0 {
		t.Errorf("known %t, the plugin %+v", known, closed)
	}
}

// A manifest that comes to ask for too much is refused, though the module beside it is loaded already.
func TestCeilingOfALoadedModule(t *testing.T) {
	t.Parallel()
	l := newLoader(newTestPool(t).engine, Config{MaxMemory: 40 << 20}.withDefaults())
	binary := guest(t, 1)
	m, err := l.pool.get(t.Context(), binary)
	check(t, err)
	defer l.pool.release(m)
	r := l.load(t.Context(), order{key: key{name: "a"}, digest: m.digest, manifest: DefaultManifest("a")})
	if r.version != nil || !r.final || r.err == nil || !strings.Contains(r.err.Error(), "more than the 40MiB") {
		t.Errorf("version %v, final %t, error %v", r.version, r.final, r.err)
	}
}

// An error that is not the file's is listed, and tried again.
func TestTransientError(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	r := result{
		order: order{key: p.key}, stamp: p.seen.module.stamp, readAt: time.Now(),
		found: identity{module: "sha256:1"}, err: errors.New("disk full"),
	}
	k.settle(r)
	if p.refusal == nil || p.refusal.final || p.due || p.retryAt.IsZero() {
		t.Fatalf("the plugin %+v, refusal %+v", p, p.refusal)
	}
	p.assess(p.retryAt)
	if o := p.order("/"); !p.due || o.refused != (identity{}) {
		t.Errorf("it is not tried again: due %t, order %+v", p.due, o)
	}
	r.err, r.final = errors.New("not a module"), true
	k.running, p.busy, p.retryAt = 1, true, time.Time{}
	k.settle(r)
	p.assess(time.Now().Add(time.Hour))
	if o := p.order("/"); p.due || o.refused != r.found {
		t.Errorf("a bad file is tried again: due %t, order %+v", p.due, o)
	}
}

// A file that never rests is refused in the end, so that somebody learns of it.
func TestUnstable(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	r := result{order: order{key: p.key}, stamp: p.seen.module.stamp, err: errUnstable}
	k.settle(r)
	if p.refusal != nil || k.againAt.IsZero() {
		t.Fatalf("refused at once, or not looked at again: %+v", p.refusal)
	}
	p.doubted = p.doubted.Add(-doubtTime)
	k.running, p.busy = 1, true
	k.settle(r)
	if p.refusal == nil || !errors.Is(p.refusal.err, errUnstable) {
		t.Errorf("refusal %+v", p.refusal)
	}
}
