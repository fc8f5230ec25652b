package plugins

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime"
)

func newTestPool(t *testing.T, slots int) *pool {
	t.Helper()
	engine, err := runtime.New(t.Context(), runtime.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, engine.Close(context.WithoutCancel(t.Context()))) })
	return newPool(engine, hclog.NewNullLogger(), slots)
}

// Modules are acquired, run and released by many at once, compiled and closed all the time: nobody
// ever runs on a closed one, and none is left over.
func TestPool(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 2)
	var users sync.WaitGroup
	for user := range 4 {
		users.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(user)))
			for range 100 {
				number := random.IntN(2)
				binary := guest(t, number)
				m, err := p.acquire(t.Context(), digestOf(binary), binary)
				if err != nil {
					t.Error(err)
					return
				}
				if got := m.Run(t.Context(), runtime.Call{}); string(got.Output) != output(number) {
					t.Errorf("outcome %+v, want the output %q", got, output(number))
				}
				p.release(m)
			}
		})
	}
	users.Wait()
	if len(p.modules) != 0 {
		t.Errorf("%d modules are left", len(p.modules))
	}
}

func TestPoolErrors(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, 1)
	bad := []byte("bad")
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			if _, err := p.acquire(t.Context(), digestOf(bad), bad); err == nil {
				t.Error("a bad module was compiled")
			}
		})
	}
	users.Wait()

	// Who waits for a slot, or for another's compilation, gives up with its context.
	p.slots <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	good := guest(t, 1)
	for range 2 {
		users.Go(func() {
			if _, err := p.acquire(ctx, digestOf(good), good); err == nil {
				t.Error("a module was compiled without a slot")
			}
		})
	}
	cancel()
	users.Wait()
	<-p.slots
	if len(p.modules) != 0 {
		t.Errorf("%d modules are left", len(p.modules))
	}
	m, err := p.acquire(t.Context(), digestOf(good), good)
	check(t, err)
	if p.share(t.Context(), digestOf(bad)) != nil {
		t.Error("a module that nobody holds is shared")
	}
	if again := p.share(t.Context(), digestOf(good)); again != m {
		t.Error("a held module is not shared")
	}
	p.release(m)
	p.release(m)
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
	panics("Release of a released version", v.Release)
	panics("Retain of a released version", v.Retain)
}
