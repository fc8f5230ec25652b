package plugins

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
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
	p := &plugin{id: id{name: "a"}, manifest: manifestFile{manifest: manifest.Default("a")}}
	p.seen.module = file{exists: true, path: "a.wasm", fingerprint: fingerprint{info: info}}
	return p
}

// What is known of a file is enough until its fingerprint changes; but a young file may change without.
func TestAssess(t *testing.T) {
	t.Parallel()
	now := time.Now()
	expect := func(what string, p *plugin, want state) {
		t.Helper()
		if p.assess(now); p.state != want {
			t.Errorf("%s: state %d, want %d", what, p.state, want)
		}
	}
	old := found(t, time.Hour)
	expect("never loaded", old, stateChanged)
	old.last.module.note(old.seen.module.fingerprint, now)
	expect("loaded", old, stateIdle)
	old.manifest.digest = "another"
	expect("with another manifest", old, stateChanged)
	old.state = stateRereading
	expect("the same while it is being read", old, stateLoading)
	old.manifest.digest = ""
	expect("put back while it is being read", old, stateRereading)
	old.state = stateIdle
	old.retryAt = now
	expect("when it is to be tried again", old, stateStale)
	old.retryAt = now.Add(time.Second)
	expect("before it is to be tried again", old, stateIdle)
	old.seen.module.fingerprint = found(t, time.Minute).seen.module.fingerprint
	expect("another file", old, stateChanged)

	young := found(t, 0)
	young.last.module.note(young.seen.module.fingerprint, now)
	expect("a young file", young, stateStale)
	if o := young.request(); o.trusted.module != "" {
		t.Error("a young file is not read again")
	}
	young.last.module.note(young.seen.module.fingerprint, now.Add(settleTime))
	expect("the same, read again when it was old enough", young, stateIdle)
}

// settling is a reconciler with one plugin whose load is under way.
func settling(t *testing.T) (*reconciler, *plugin) {
	t.Helper()
	d, err := New(nil, Config{Dir: t.TempDir()})
	check(t, err)
	k := newReconciler(d.cfg, d.loader, &d.public, nil)
	p := found(t, time.Hour)
	p.state = stateLoading
	k.plugins = append(k.plugins, p)
	k.running = 1
	return k, p
}

// A load may find what served when it began, and does not any more: the file was removed and put back.
func TestConfirmWhatIsGone(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	id := identity{module: "sha256:1"}
	k.apply(loadResult{loadRequest: loadRequest{id: p.id, file: p.seen.module, serving: id}, found: id, known: true})
	if p.state != stateChanged {
		t.Errorf("the plugin is not loaded again: %+v", p)
	}
}

// Between the begin of a load and its end another plugin may have got the queue: then that one keeps it.
func TestAcceptWhatAnotherHasGot(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	other := found(t, time.Hour)
	other.name = "b"
	other.current = &Version{Name: "b", Manifest: manifest.Default("a")}
	k.plugins = append(k.plugins, other)
	released := false
	v := &Version{Name: "a", Manifest: manifest.Default("a"), release: func(*module) { released = true }}
	v.holders.Store(1)
	k.apply(loadResult{loadRequest: loadRequest{id: p.id, file: p.seen.module}, version: v})
	if p.current != nil || !released || p.state != stateChanged {
		t.Errorf("released %t, the plugin %+v, want it to be decided anew", released, p)
	}
}

// A folder that cannot be listed says nothing about its files: what was loaded keeps serving.
func TestClosedFolder(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	closed := found(t, time.Hour)
	closed.id = id{tenant: "acme", name: "a"}
	closed.current = &Version{Name: "a", Manifest: manifest.Default("a")}
	k.plugins = slices.Insert(k.plugins, 1, closed)
	k.last = &scan{seen: map[id]listed{p.id: p.seen}, closed: map[string]error{"acme": fs.ErrPermission}}
	k.look(t.Context(), "")
	k.look(t.Context(), "acme")
	if _, known := k.find(closed.id); !known || closed.current == nil || len(k.retired) > 0 {
		t.Errorf("known %t, the plugin %+v", known, closed)
	}
}

// A manifest that comes to ask for too much is refused, though the module beside it is loaded already.
func TestCeilingOfALoadedModule(t *testing.T) {
	t.Parallel()
	l := newLoader(newTestModules(t).engine, Config{MaxMemory: 40 << 20}.withDefaults())
	binary := guest(t, 1)
	m, err := l.modules.get(t.Context(), binary)
	check(t, err)
	defer l.modules.release(m)
	r := l.load(t.Context(), loadRequest{id: id{name: "a"}, trusted: identity{module: m.digest}, manifest: manifest.Default("a")})
	if r.version != nil || !r.final || r.err == nil || !strings.Contains(r.err.Error(), "more than the 40MiB") {
		t.Errorf("version %v, final %t, error %v", r.version, r.final, r.err)
	}
}

// An error that is not the file's is listed, and tried again.
func TestTransientError(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	r := loadResult{
		loadRequest: loadRequest{id: p.id, file: p.seen.module}, readAt: time.Now(),
		found: identity{module: "sha256:1"}, err: errors.New("disk full"),
	}
	k.apply(r)
	if p.refusal == nil || p.refusal.final || p.state != stateIdle || p.retryAt.IsZero() {
		t.Fatalf("the plugin %+v, refusal %+v", p, p.refusal)
	}
	p.assess(p.retryAt)
	if o := p.request(); p.state != stateStale || o.refused != (identity{}) {
		t.Errorf("it is not tried again: state %d, request %+v", p.state, o)
	}
	r.err, r.final = errors.New("not a module"), true
	k.running, p.state, p.retryAt = 1, stateLoading, time.Time{}
	k.apply(r)
	p.assess(time.Now().Add(time.Hour))
	if o := p.request(); p.state != stateIdle || o.refused != r.found {
		t.Errorf("a bad file is tried again: state %d, request %+v", p.state, o)
	}
}

// The module of a manifest may follow a moment later.
func TestYoungManifestAlone(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	k.ready = true
	p.seen = listed{manifest: found(t, -time.Hour).seen.module}
	k.consider(p, nil)
	if p.refusal != nil || k.nextScanAt.IsZero() {
		t.Fatalf("refused at once, or not looked at again: %+v", p.refusal)
	}
	p.doubted = p.doubted.Add(-doubtTime)
	k.consider(p, nil)
	if p.refusal == nil || !strings.Contains(p.refusal.err.Error(), "has no module beside it") {
		t.Errorf("refusal %+v", p.refusal)
	}
}

// A file that never rests is refused in the end, so that somebody learns of it.
func TestUnstable(t *testing.T) {
	t.Parallel()
	k, p := settling(t)
	r := loadResult{loadRequest: loadRequest{id: p.id, file: p.seen.module}, err: errUnstable}
	k.apply(r)
	if p.refusal != nil || k.nextScanAt.IsZero() {
		t.Fatalf("refused at once, or not looked at again: %+v", p.refusal)
	}
	p.doubted = p.doubted.Add(-doubtTime)
	k.running, p.state = 1, stateLoading
	k.apply(r)
	if p.refusal == nil || !errors.Is(p.refusal.err, errUnstable) {
		t.Errorf("refusal %+v", p.refusal)
	}
}
