package plugins

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

func newTestModules(t *testing.T) *modules {
	t.Helper()
	engine, err := runtime.New(t.Context(), runtime.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, engine.Close(context.WithoutCancel(t.Context()))) })
	return newLoader(engine, Config{}.withDefaults()).modules
}

func (s *modules) get(ctx context.Context, binary []byte) (m *module, err error) {
	err = s.acquire(ctx, moduleRequest{
		owner: "acme", digest: runtime.DigestOf(binary), binary: binary, leave: func() {}, use: func(got *module) { m = got },
	})
	return m, err
}

// Modules are acquired, run and released by many at once, compiled and closed all the time: nobody
// ever runs on a closed one, and none is left over.
func TestModules(t *testing.T) {
	t.Parallel()
	modules := newTestModules(t)
	var users sync.WaitGroup
	for user := range 4 {
		users.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(user)))
			for range 100 {
				number := random.IntN(2)
				binary := guest(t, number)
				m, err := modules.get(t.Context(), binary)
				if err != nil {
					t.Error(err)
					return
				}
				if got := m.Bind(runtime.Profile{}).Run(t.Context(), runtime.Call{}); string(got.Output) != output(number) {
					t.Errorf("outcome %+v, want the output %q", got, output(number))
				}
				modules.release(m)
			}
		})
	}
	users.Wait()
	if len(modules.byDigest) != 0 {
		t.Errorf("%d modules are left", len(modules.byDigest))
	}
}

func TestModulesErrors(t *testing.T) {
	t.Parallel()
	modules := newTestModules(t)
	bad := []byte("bad")
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			if _, err := modules.get(t.Context(), bad); err == nil {
				t.Error("a bad module was compiled")
			}
		})
	}
	users.Wait()

	// Who waits for a turn, or for another's compilation, gives up with its context.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	good := guest(t, 1)
	for range 2 {
		users.Go(func() {
			if _, err := modules.get(ctx, good); err == nil {
				t.Error("a module was compiled after the end of the context")
			}
		})
	}
	users.Wait()
	if len(modules.byDigest) != 0 {
		t.Errorf("%d modules are left", len(modules.byDigest))
	}
	m, err := modules.get(t.Context(), good)
	check(t, err)
	if modules.share(runtime.DigestOf(bad)) != nil {
		t.Error("a module that nobody holds is shared")
	}
	if again := modules.share(runtime.DigestOf(good)); again != m {
		t.Error("a held module is not shared")
	}
	modules.release(m)
	modules.release(m)
}

// Who asks for a module that is just being closed waits, and gets a new one.
func TestModulesClosing(t *testing.T) {
	t.Parallel()
	modules := newTestModules(t)
	binary := guest(t, 1)
	old, err := modules.get(t.Context(), binary)
	check(t, err)
	modules.mu.Lock()
	old.holders = 0 // as the last holder has it, until the module is closed
	modules.mu.Unlock()
	if modules.share(old.digest) != nil {
		t.Error("a module that is being closed is shared")
	}
	acquired := make(chan *module)
	go func() {
		m, err := modules.get(t.Context(), binary)
		if err != nil {
			t.Error(err)
		}
		acquired <- m
	}()
	select {
	case <-acquired:
		t.Fatal("a module that is being closed was handed out")
	case <-time.After(20 * time.Millisecond):
	}
	check(t, old.Close(t.Context()))
	modules.mu.Lock()
	delete(modules.byDigest, old.digest)
	modules.mu.Unlock()
	close(old.gone)
	m := <-acquired
	if got := m.Bind(runtime.Profile{}).Run(t.Context(), runtime.Call{}); m == old || string(got.Output) != output(1) {
		t.Errorf("the new module: %+v", got)
	}
	modules.release(m)
}

// The request that compiles a module uses it before others get it.
func TestCompilingRequestIsFirst(t *testing.T) {
	t.Parallel()
	modules, binary := newTestModules(t), guest(t, 7)
	request := func(use func(*module)) moduleRequest {
		return moduleRequest{owner: "acme", digest: runtime.DigestOf(binary), binary: binary, leave: func() {}, use: use}
	}
	var first atomic.Bool
	other := make(chan error, 1)
	check(t, modules.acquire(t.Context(), request(func(m *module) {
		if modules.share(m.digest) != nil {
			t.Error("others share the module before its first user has it")
		}
		waiting := make(chan struct{})
		r := request(func(*module) {
			if !first.Load() {
				t.Error("another request used the module first")
			}
		})
		r.leave = func() { close(waiting) }
		go func() { other <- modules.acquire(t.Context(), r) }()
		<-waiting
		first.Store(true)
	})))
	check(t, <-other)
}

// A table may be older than the version that it names is dead: the next one is read then.
func TestAcquireFromOldTable(t *testing.T) {
	t.Parallel()
	d, err := New(nil, Config{Tenants: []string{"acme"}})
	check(t, err)
	served := func(holders int64) *Version {
		v := &Version{Name: "a", Manifest: manifest.Default("a"), module: &module{Module: &runtime.Module{}}, release: func(*module) {}}
		v.serve(map[string]*manifest.Permissions{"acme": manifest.NewPermissions(&v.Manifest, nil, "acme", nil)}, 0)
		v.holders.Store(holders)
		d.public.table.Store(newTable([]string{"acme"}, []*plugin{{id: id{name: "a"}, current: v}}))
		return v
	}
	served(0)
	acquired := make(chan *TenantVersion)
	go func() { acquired <- d.Acquire("acme", "a") }()
	select {
	case v := <-acquired:
		t.Fatalf("a dead version was handed out: %+v", v)
	case <-time.After(20 * time.Millisecond):
	}
	alive := served(1)
	if v := <-acquired; v.Version != alive {
		t.Errorf("acquired %+v", v)
	}
}

func TestVersionMisuse(t *testing.T) {
	t.Parallel()
	panics := func(what string, call func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s does not panic", what)
			}
		}()
		call()
	}
	v := &Version{release: func(*module) {}}
	v.holders.Store(1)
	v.Release()
	if v.tryRetain() {
		t.Error("a released version comes back to life")
	}
	panics("Release of a released version", v.Release)
	panics("Retain of a released version", v.Retain)
}
