package plugins

import (
	"errors"
	"os"
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
