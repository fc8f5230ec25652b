package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// churn writes the file every 50 ms, in the way and with the numbers that next says, until the
// returned function is called, which returns the last number.
func churn(t *testing.T, next func(number int)) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	number := 0
	done.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			number++
			next(number)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	stop = func() int {
		cancel()
		done.Wait()
		return number
	}
	t.Cleanup(func() { stop() })
	return stop
}

// Tasks run while their plugin is swapped every 50 ms: every one completes, and its result is of the
// version whose digest it carries.
func TestSwapUnderLoad(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 0)) })
	const versions = 1000
	outputs := map[string]string{}
	for number := range versions {
		outputs[runtime.DigestOf(guest(t, number))] = output(number)
	}
	stop := churn(t, func(number int) { f.replace("a.wasm", guest(t, number%versions)) })

	var workers sync.WaitGroup
	var mu sync.Mutex
	ran := map[string]int{}
	tasks, deadline := 0, time.After(patience)
	enough := make(chan struct{})
	for range 4 {
		workers.Go(func() {
			for {
				v := f.Acquire("acme", "a")
				if v == nil {
					t.Error("the queue is not served")
					return
				}
				outcome := v.Run(t.Context(), runtime.Call{TaskID: "1"})
				got, want := string(outcome.Output), outputs[v.Digest]
				v.Release()
				if outcome.Kind != runtime.Complete || got != want || got == "" {
					t.Errorf("outcome %+v, want the output %q", outcome, want)
					return
				}
				mu.Lock()
				ran[got]++
				if tasks++; tasks >= 1000 && len(ran) >= 10 {
					select {
					case <-enough:
					default:
						close(enough)
					}
				}
				mu.Unlock()
				select {
				case <-enough:
					return
				case <-deadline:
					t.Errorf("%d tasks on %d versions in all this time", tasks, len(ran))
					return
				default:
				}
			}
		})
	}
	workers.Wait()
	last := stop()
	f.awaitRun("acme", "a", output(last%versions))
	t.Logf("%d tasks on %d of %d versions", tasks, len(ran), last)
}

// A file that never rests serves within 5 s, whether it is written in place or replaced, and so does
// its neighbor.
func TestNoStarvation(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, nil)
	stopPlace := churn(t, func(number int) {
		if err := os.WriteFile(f.path("place.wasm"), guest(t, number), 0o600); err != nil {
			t.Error(err)
		}
	})
	stopReplace := churn(t, func(number int) { f.replace("replace.wasm", guest(t, number)) })
	stopManifest := churn(t, func(number int) {
		f.replace("manifest.yaml", fmt.Appendf(nil, "version: %d", number))
		if number == 1 {
			f.replace("manifest.wasm", guest(t, 1))
		}
	})
	for _, queue := range []string{"place", "replace", "manifest"} {
		within(t, "a file that keeps changing", func() error {
			if f.runs("acme", queue) == "" {
				return fmt.Errorf("the queue %s is not served: %+v", queue, f.List())
			}
			return nil
		})
	}
	f.write("calm.wasm", guest(t, 1))
	within(t, "a neighbor", func() error {
		if f.runs("acme", "calm") != output(1) {
			return errors.New("the neighbor is not served")
		}
		return nil
	})
	before := f.runs("acme", "place")
	within(t, "the next version", func() error {
		if f.runs("acme", "place") == before {
			return errors.New("the same version still serves")
		}
		return nil
	})
	f.awaitRun("acme", "place", output(stopPlace()))
	f.awaitRun("acme", "replace", output(stopReplace()))
	last := fmt.Sprint(stopManifest())
	eventually(t, func() error {
		if s, _ := f.status("", "manifest", StateServing); s.Version != last {
			return fmt.Errorf("version %s, want %s", s.Version, last)
		}
		return nil
	})
}

// within waits for what is promised within 5 s. Only `make chaos` holds it to them: elsewhere the machine may
// be busy with other things.
func within(t *testing.T, what string, condition func() error) {
	t.Helper()
	began := time.Now()
	eventually(t, condition)
	if took := time.Since(began); took > 5*time.Second && os.Getenv("QUERN_CHAOS") == "full" {
		t.Errorf("%s took %s", what, took)
	}
}

// A module that takes long to compile delays no other.
func TestSlowModuleDelaysNobody(t *testing.T) {
	t.Parallel()
	const others = 2
	f := prepared(t, Config{}, func(dir string) {
		write(t, dir+"/a-slow.wasm", slowModule())
		for i := range others {
			write(t, fmt.Sprintf("%s/b%d.wasm", dir, i), guest(t, i))
		}
	})
	f.start()
	for i := range others {
		f.awaitRun("acme", fmt.Sprintf("b%d", i), output(i))
	}
	if len(f.Bindings()) != 2*others {
		t.Fatalf("the slow module was not slow: %v", f.Bindings())
	}
	select {
	case <-f.Ready():
		t.Error("ready before every plugin that the first look found is decided")
	default:
	}
	<-f.Ready()
	if v := f.Acquire("acme", "a-slow"); v == nil {
		t.Errorf("ready, and not served: %+v", f.List())
	} else {
		v.Release()
	}
}

// What happens to a file while it is loading is not lost: it may be removed, and put back.
func TestChangeWhileLoading(t *testing.T) {
	t.Parallel()
	f := prepared(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", slowModule())
		write(t, dir+"/b.wasm", slowModule())
		write(t, dir+"/z.wasm", guest(t, 1))
	})
	f.start()
	f.awaitRun("acme", "z", output(1)) // the others are loading now
	f.remove("a.wasm")
	f.remove("b.wasm")
	f.write("z.wasm", guest(t, 2))
	f.awaitRun("acme", "z", output(2)) // and their removal has been seen
	f.write("b.wasm", guest(t, 3))
	f.awaitRun("acme", "b", output(3))
	if v := f.Acquire("acme", "a"); v != nil {
		t.Error("what was removed while it was loading serves")
		v.Release()
	}
}

// The end of Run waits for the loads that are under way, and leaves nothing of them.
func TestStopWhileLoading(t *testing.T) {
	t.Parallel()
	f := prepared(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", slowModule())
		write(t, dir+"/z.wasm", guest(t, 1))
	})
	f.start()
	f.awaitRun("acme", "z", output(1))
	f.stop()
	if got := f.Bindings(); len(got) != 0 {
		t.Errorf("bindings after the end: %v", got)
	}
}

// slowModule is a command that does nothing, and has a lot of code that is never called.
func slowModule() []byte {
	const functions, stores = 150, 300
	store := []byte{0x41, 0x00, 0x41, 0x00, 0x28, 0x02, 0x00, 0x36, 0x02, 0x00} // [0] = [0]
	types, bodies := [][]byte{{0}}, [][]byte{runtimetest.Body()}
	for range functions {
		types = append(types, []byte{0})
		bodies = append(bodies, runtimetest.Body(bytes.Repeat(store, stores)...))
	}
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, types...),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, bodies...),
	)
}

// A thousand names of the same bytes are compiled once, and are there at once.
func TestManyNamesOfOneDigest(t *testing.T) {
	t.Parallel()
	const names = 1000
	f := setup(t, Config{}, func(dir string) {
		for i := range names {
			write(t, fmt.Sprintf("%s/p%04d.wasm", dir, i), guest(t, 1))
		}
	})
	if got := len(f.Bindings()); got != 2*names {
		t.Fatalf("%d bindings", got)
	}
	f.loader.modules.mu.Lock()
	modules := len(f.loader.modules.byDigest)
	f.loader.modules.mu.Unlock()
	if modules != 1 {
		t.Errorf("%d modules for one digest", modules)
	}
	v, w := f.Acquire("acme", "p0000"), f.Acquire("{blue}", "p0999")
	defer v.Release()
	defer w.Release()
	if v.module != w.module || v.Name != "p0000" || w.Name != "p0999" {
		t.Errorf("versions %+v and %+v", v, w)
	}
	for i := range names {
		f.remove(fmt.Sprintf("p%04d.wasm", i))
	}
	eventually(t, func() error {
		if left := len(f.Bindings()); left > 0 {
			return fmt.Errorf("%d bindings are left", left)
		}
		return nil
	})
	if got := v.Run(t.Context(), runtime.Call{}); string(got.Output) != output(1) {
		t.Errorf("the last holder: %+v", got)
	}
}
