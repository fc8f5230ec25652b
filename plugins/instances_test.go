package plugins

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
)

// idle holds the number of idle instances to what it should be.
func (f *fixture) idle(want int, when string) {
	f.t.Helper()
	if got := f.engine.Holdings(); got.Idle != want || got.Busy != 0 {
		f.t.Errorf("%s there are %d idle instances and %d busy ones, want %d and 0", when, got.Idle, got.Busy, want)
	}
}

// Plugins of the same bytes, manifest and files share instances, whatever their names; tenants never do, also if each
// has a plugin of its own with all that the same.
func TestInstancesAreShared(t *testing.T) {
	t.Parallel()
	module := handler(t, 1)
	f := setup(t, Config{}, func(dir string) {
		for _, name := range []string{"a", "b", "other", "filed", "warm"} {
			write(t, dir+"/"+name+".wasm", module)
		}
		write(t, dir+"/other.yaml", []byte("limits: {output: 1KiB}"))
		write(t, dir+"/filed.yaml", []byte("capabilities: {files: [{from: sample, to: /sample}]}"))
		write(t, dir+"/warm.yaml", []byte("warm: {input: sample}"))
		write(t, dir+"/sample", []byte("sample"))
		for _, tenant := range []string{"acme", "{blue}"} {
			mkdir(t, dir+"/"+tenant)
			write(t, dir+"/"+tenant+"/own.wasm", module)
		}
	})
	f.skipsWarm()
	for _, tt := range []struct {
		tenant, queue, want string
		idle                int
	}{
		{"acme", "own", cold(1), 1},
		{"{blue}", "own", cold(1), 2},
		{"acme", "own", cold(1), 2},
		{"{blue}", "own", cold(1), 2},
		{"acme", "a", cold(1), 2}, // that of every tenant is not other than the tenant's own
		{"acme", "b", cold(1), 2},
		{"{blue}", "b", cold(1), 2},
		{"acme", "other", cold(1), 3},
		{"acme", "filed", cold(1), 4},
		{"acme", "warm", warmed(1, "sample"), 5},
		{"{blue}", "warm", warmed(1, "sample"), 6},
		{"acme", "a", cold(1), 6},
	} {
		if got := f.runs(tt.tenant, tt.queue); got != tt.want {
			t.Errorf("%s of %s: %q, want %q", tt.queue, tt.tenant, got, tt.want)
		}
		f.idle(tt.idle, "after "+tt.queue+" of "+tt.tenant)
	}
	// The instances go with the last version that has them.
	gone := func(name string) {
		t.Helper()
		f.remove(name + ".wasm")
		f.remove(name + ".yaml")
		eventually(t, func() error {
			if v := f.Acquire("acme", name); v != nil {
				v.Release()
				return fmt.Errorf("%s is still there", name)
			}
			return nil
		})
	}
	gone("warm")
	eventually(t, func() error { return f.heldIdle(4) })
	gone("a")
	gone("b")
	f.idle(4, "after one of several plugins with the same instances was removed")
	gone("acme/own")
	gone("{blue}/own")
	eventually(t, func() error { return f.heldIdle(2) })
	gone("filed")
	gone("other")
	eventually(t, func() error {
		if held := f.engine.Held(); held != 0 {
			return fmt.Errorf("%d bytes are held without a plugin: %+v", held, f.engine.Holdings())
		}
		return nil
	})
}

// filesDigestOf is the digest of the files of a version with this one file.
func filesDigestOf(data []byte) string {
	one := sha256.Sum256(data)
	return runtime.DigestOf(one[:])
}

// heldIdle is the objection to another number of idle instances.
func (f *fixture) heldIdle(want int) error {
	if got := f.engine.Holdings(); got.Idle != want {
		return fmt.Errorf("%d instances are idle, want %d", got.Idle, want)
	}
	return nil
}

// An instance of an old version that runs a task is closed when that has ended, and not before.
func TestInstancesOutliveTheSwap(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", handler(t, 1))
		write(t, dir+"/a.yaml", []byte("version: 1"))
	})
	f.skipsWarm()
	old := f.Acquire("acme", "a")
	called, proceed := make(chan struct{}), make(chan struct{})
	ended := make(chan runtime.Outcome)
	go func() {
		ended <- old.Run(t.Context(), runtime.Call{Input: []byte("task"), Log: func(string) {
			close(called) // the guest is in the middle of its call
			<-proceed
		}})
	}()
	<-called
	if got := string(old.Run(t.Context(), runtime.Call{Input: []byte("task")}).Output); got != cold(1) {
		t.Errorf("a second task beside the first: %q", got)
	}
	f.replace("a.yaml", []byte("version: 2"))
	eventually(t, func() error {
		if s, _ := f.status("", "a", StateServing); s.Version != "2" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if got := f.runs("acme", "a"); got != cold(1) {
		t.Errorf("the new version: %q", got)
	}
	if got := f.engine.Holdings(); got.Idle != 2 || got.Busy != 1 {
		t.Errorf("while the old version is held: %+v", got)
	}
	close(proceed)
	if got := <-ended; string(got.Output) != cold(1) {
		t.Errorf("the task on the old version: %+v", got)
	}
	if got := f.engine.Holdings(); got.Idle < 2 || got.Busy != 0 {
		t.Errorf("before the old version is released: %+v", got)
	}
	old.Release()
	f.idle(1, "after the old version was released")
}

// Tasks of two tenants run while the module, the manifest and the warm input are swapped under them: each begins as
// if nobody had run before, warmed by the input of its own version.
func TestSwapHandlersUnderLoad(t *testing.T) {
	t.Parallel()
	version := func(number int) []byte { return handler(t, number) }
	module := version(0)
	f := setup(t, Config{}, func(dir string) {
		for _, plugin := range []string{"a", "acme/b", "{blue}/b"} {
			check(t, os.MkdirAll(filepath.Dir(dir+"/"+plugin), 0o755))
			write(t, dir+"/"+plugin+".wasm", module)
			write(t, dir+"/"+plugin+".yaml", []byte("version: 0\nwarm: {input: sample}"))
			write(t, filepath.Dir(dir+"/"+plugin)+"/sample", []byte("0"))
		}
	})
	f.skipsWarm()
	stop := churn(t, func(number int) {
		switch number % 4 {
		case 0:
			f.replace("a.wasm", version(number))
		case 1:
			f.replace("sample", fmt.Append(nil, number))
		case 2:
			f.replace("acme/sample", fmt.Append(nil, number))
			f.replace("{blue}/b.wasm", version(number))
		case 3:
			f.replace("acme/b.yaml", fmt.Appendf(nil, "version: %d\nwarm: {input: sample}", number))
		}
	})

	const enough, versions = 2000, 20
	var workers sync.WaitGroup
	var mu sync.Mutex
	tasks, seen, deadline := 0, map[string]int{}, time.After(patience)
	done := make(chan struct{})
	work := func(tenant, queue string) {
		for {
			v := f.Acquire(tenant, queue)
			if v == nil {
				t.Errorf("%s of %s is not served", queue, tenant)
				return
			}
			outcome := v.Run(t.Context(), runtime.Call{TaskID: "1", Input: []byte("task")})
			got := string(outcome.Output)
			// The version says which output is right: it has the digest of one number, and the warm input's in that of the files.
			number, first, ok := strings.Cut(got, " 2 ")
			var n, input int
			_, err := fmt.Sscanf(number+" "+first, "v%d %d", &n, &input)
			right := ok && err == nil && runtime.DigestOf(version(n)) == v.Digest && filesDigestOf(fmt.Append(nil, input)) == v.content.files
			v.Release()
			if outcome.Kind != runtime.Complete || !right {
				t.Errorf("%s of %s: %+v", queue, tenant, outcome)
				return
			}
			mu.Lock()
			seen[tenant+queue+v.content.manifest+got]++
			if tasks++; tasks >= enough && len(seen) >= versions {
				select {
				case <-done:
				default:
					close(done)
				}
			}
			mu.Unlock()
			select {
			case <-done:
				return
			case <-deadline:
				t.Errorf("%d tasks on %d versions in all this time", tasks, len(seen))
				return
			default:
			}
		}
	}
	for _, tenant := range []string{"acme", "{blue}"} {
		for _, queue := range []string{"a", "b"} {
			workers.Go(func() { work(tenant, queue) })
			workers.Go(func() { work(tenant, queue) })
		}
	}
	workers.Wait()
	stop()
	t.Logf("%d tasks on %d versions", tasks, len(seen))
	f.stop()
	if held := f.engine.Held(); held != 0 {
		t.Errorf("%d bytes are held after Run: %+v", held, f.engine.Holdings())
	}
}
