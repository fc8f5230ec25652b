package compile

import (
	"bytes"
	"context"
	"errors"
	"os"
	goruntime "runtime"
	"sync"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// watched is a context that tells when somebody waits for its end.
type watched struct {
	context.Context
	tell func()
}

func (w watched) Done() <-chan struct{} {
	w.tell()
	return w.Context.Done()
}

// TestOwnersOfOneCode: a tenant whose turn is far away keeps no other from the code that both need.
func TestOwnersOfOneCode(t *testing.T) {
	t.Parallel()
	cache, _ := setup(t, Config{})
	code := newCode(cache, plain())
	if newCode(cache, plain()) != code {
		t.Fatal("they have two codes")
	}
	if err := compileInto(t.Context(), cache, plain(), "digest"); err != nil {
		t.Fatal(err)
	}
	if freed, err := code.Unload(t.Context()); freed == 0 || err != nil {
		t.Fatal(freed, err)
	}
	loads := cache.compiler.loads
	free, err := loads.Acquire(t.Context(), "busy", maxLoading)
	if err != nil {
		t.Fatal(err)
	}
	// waits begins a work and returns when it waits for its turn.
	waits := func(work func(ctx context.Context) error) (ended chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		waiting, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- work(watched{ctx, sync.OnceFunc(func() { close(waiting) })}) }()
		<-waiting
		return ended
	}
	for range max(2, goruntime.GOMAXPROCS(0)) { // one more than there are places now
		waits(func(ctx context.Context) error {
			_, err := loads.Acquire(ctx, "busy", 0)
			return err
		})
	}
	hold := func(owner string) func(ctx context.Context) error {
		return func(ctx context.Context) error { return code.Hold(ctx, owner, "digest") }
	}
	far := waits(hold("busy"))
	near := waits(hold("quiet"))
	free()
	if err := <-near; err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-far:
		t.Errorf("the other one has had its turn: %v", err)
	default:
	}
}

// TestLoadWaits: who waits for another compilation of the same module stops waiting with its context, and keeps nobody
// from a turn meanwhile.
func TestLoadWaits(t *testing.T) {
	t.Parallel()
	cache, _ := setup(t, Config{})
	c := newCode(cache, plain())
	defer func() { _ = c.Close(context.Background()) }()
	done, other, err := cache.compiler.claim(c.key)
	if err != nil || other != nil {
		t.Fatalf("claim = %v, %v", other, err)
	}
	errGone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	for range 10 { // more than compile at once
		go func() { ended <- compileInto(ctx, cache, plain(), "copy") }()
	}
	if err := compileInto(t.Context(), cache, runtimetest.Locals(2, nil), "other"); err != nil {
		t.Error(err)
	}
	cancel(errGone)
	for range 10 {
		if err := <-ended; !errors.Is(err, errGone) {
			t.Errorf("compile = %v, want the cause of the context", err)
		}
	}
	done()
	if err := compileInto(t.Context(), cache, plain(), "again"); err != nil {
		t.Error(err)
	}
}

// TestSource: code is loaded again without the plugin's file, without the cache, and without a file of its own.
func TestSource(t *testing.T) {
	t.Parallel()
	for _, inMemory := range []bool{false, true} {
		cache, _ := setup(t, Config{})
		code := newCode(cache, plain())
		if inMemory {
			if err := code.source.close(); err != nil {
				t.Fatal(err)
			}
			code.source = source{bytes.NewReader(plain()), int64(len(plain()))}
		}
		for range 2 {
			if err := runs(t.Context(), code); err != nil {
				t.Fatal(err)
			}
			if freed, err := code.Unload(t.Context()); freed == 0 || err != nil {
				t.Fatalf("unloaded: %v bytes, %v", freed, err)
			}
			if err := os.RemoveAll(cache.main.dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := code.Close(t.Context()); err != nil || len(cache.codes) != 0 {
			t.Errorf("Close: %v, %d codes are left", err, len(cache.codes))
		}
	}
}

// TestOpenSpareClosed: the temporary directory is not opened after Close, since nobody would remove it.
func TestOpenSpareClosed(t *testing.T) {
	t.Parallel()
	cache, _ := setup(t, Config{})
	if err := cache.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if dir, err := cache.openSpare(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("openSpare = %v, %v, want %v", dir, err, ErrClosed)
	}
}
