package plugins

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

func TestServe(t *testing.T) {
	t.Parallel()
	module := guest(t, 1)
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/thumbs.wasm", module)
		write(t, dir+"/thumbs.yaml", []byte("version: 1.4.0\nqueues: [a, b]\nconcurrency: 3\nlimits: {memory: 1MiB, input: 2KiB, output: 3KiB}\n"))
	})

	for _, tenant := range []string{"acme", "{blue}"} {
		for _, queue := range []string{"a", "b"} {
			if got := f.runs(tenant, queue); got != output(1) {
				t.Errorf("tenant %s, queue %s: %q", tenant, queue, got)
			}
		}
	}
	for _, place := range []tenantQueue{{"acme", "thumbs"}, {"other", "a"}, {"", "a"}} {
		if v := f.Acquire(place.tenant, place.queue); v != nil {
			t.Errorf("%+v is served", place)
		}
	}
	want := []Binding{{"acme", "a", "thumbs"}, {"acme", "b", "thumbs"}, {"{blue}", "a", "thumbs"}, {"{blue}", "b", "thumbs"}}
	if got := f.Bindings(); !slices.Equal(got, want) {
		t.Errorf("bindings %v, want %v", got, want)
	}
	digest := runtime.DigestOf(module)
	status := []Status{{Plugin: "thumbs", Version: "1.4.0", Digest: digest, Queues: []string{"a", "b"}, State: StateServing}}
	v := f.Acquire("acme", "a")
	defer v.Release()
	status[0].ResetMode, status[0].Permissions = string(v.Info().ResetMode), v.permissions
	if got := f.List(); !reflect.DeepEqual(got, status) || status[0].ResetMode == "" {
		t.Errorf("list %+v, want %+v", got, status)
	}
	events := []string{`loaded "" thumbs ok`, fmt.Sprintf(`serving "" thumbs "1.4.0" %s true`, digest)}
	if got := f.seen.drain(); !slices.Equal(got, events) {
		t.Errorf("events %q, want %q", got, events)
	}
	if v.Footprint != 1<<20+5<<10 || v.Manifest.Concurrency != 3 || v.Digest != v.Info().Digest || v.Permissions.Limits.Log != 256<<10 {
		t.Errorf("footprint %d, concurrency %d, limits %+v", v.Footprint, v.Manifest.Concurrency, v.Permissions.Limits)
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, nil)
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "already being watched") {
		t.Errorf("the second Run: %v", err)
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, nil)
	token := func(what string) {
		t.Helper()
		select {
		case <-f.Changed():
		case <-time.After(patience):
			t.Fatalf("no token after %s", what)
		}
	}
	f.write("a.wasm", guest(t, 1))
	token("the first plugin")
	if got := f.Bindings(); len(got) != 2 || got[0] != (Binding{"acme", "a", "a"}) {
		t.Errorf("bindings %v", got)
	}
	f.replace("a.wasm", guest(t, 2))
	token("a swap")
	if got := f.runs("acme", "a"); got != output(2) {
		t.Errorf("output %q", got)
	}
	f.remove("a.wasm")
	token("a removal")
	if got := f.Bindings(); len(got) != 0 {
		t.Errorf("bindings %v", got)
	}
}

func TestSwap(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 1)) })
	old := f.Acquire("acme", "a")
	f.seen.drain()

	f.write("a.wasm", guest(t, 2))
	f.awaitRun("acme", "a", output(2))
	want := []string{
		`loaded "" a ok`,
		fmt.Sprintf(`serving "" a "" %s true`, runtime.DigestOf(guest(t, 2))),
		fmt.Sprintf(`serving "" a "" %s false`, runtime.DigestOf(guest(t, 1))),
	}
	if got := f.seen.drain(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}

	// Who holds the old version runs on it still, and its module goes with the last hold.
	old.Retain()
	old.Release()
	if got := old.Run(t.Context(), runtime.Call{}); string(got.Output) != output(1) {
		t.Errorf("the old version: %+v", got)
	}
	open := func() int {
		f.loader.modules.mu.Lock()
		defer f.loader.modules.mu.Unlock()
		return len(f.loader.modules.byDigest)
	}
	if got := open(); got != 2 {
		t.Errorf("%d modules are open while the old one is held", got)
	}
	old.Release()
	if got := open(); got != 1 {
		t.Errorf("%d modules are open after the last release", got)
	}
}

// A file that is touched, or replaced by the same bytes, is the same version.
func TestSameContent(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 1)) })
	before := f.Acquire("acme", "a")
	defer before.Release()
	f.seen.drain()
	f.replace("a.wasm", guest(t, 1))
	check(t, os.Chtimes(f.path("a.wasm"), time.Time{}, time.Now().Add(-time.Hour)))
	f.write("marker.wasm", guest(t, 2)) // once it serves, a.wasm has been looked at
	f.awaitRun("acme", "marker", output(2))
	after := f.Acquire("acme", "a")
	defer after.Release()
	if before != after {
		t.Error("the same content became another version")
	}
	if got := f.seen.count(`loaded "" a ok`); got != 0 {
		t.Errorf("it was loaded %d times more", got)
	}
}

// A copy may keep the size and the date of what it replaces, and the file system's clock may tick
// coarsely: the change is seen all the same.
func TestSameSizeAndDate(t *testing.T) {
	t.Parallel()
	date := time.Now().Add(-time.Hour)
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", guest(t, 1))
		check(t, os.Chtimes(dir+"/a.wasm", date, date))
	})
	f.write("a.wasm", guest(t, 2))
	check(t, os.Chtimes(f.path("a.wasm"), date, date))
	f.awaitRun("acme", "a", output(2))
}

func TestManifestChange(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", runtimetest.Env(t))
		write(t, dir+"/a.yaml", []byte("version: 1\ncapabilities: {env: {MODE: test}}"))
	})
	first := f.Acquire("acme", "a")
	defer first.Release()
	if got := f.runs("acme", "a"); !strings.Contains(got, "MODE=test\n") || !strings.Contains(got, "TASK_PLUGIN=a\n") {
		t.Errorf("environment:\n%s", got)
	}
	f.write("a.yaml", []byte("version: 2\ncapabilities: {env: {MODE: prod}}"))
	eventually(t, func() error {
		if got := f.runs("acme", "a"); !strings.Contains(got, "MODE=prod\n") {
			return fmt.Errorf("environment:\n%s", got)
		}
		return nil
	})
	second := f.Acquire("acme", "a")
	defer second.Release()
	if first == second || first.Digest != second.Digest || first.content.manifest == second.content.manifest || second.Manifest.Version != "2" {
		t.Errorf("first %+v\nsecond %+v", first, second)
	}
	if first.module != second.module {
		t.Error("the same bytes were compiled twice")
	}

	// Without the manifest it is a third version, with nothing granted.
	f.remove("a.yaml")
	eventually(t, func() error {
		if got := f.runs("acme", "a"); strings.Contains(got, "MODE=") {
			return fmt.Errorf("environment:\n%s", got)
		}
		return nil
	})
}

func TestLastGoodKept(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", guest(t, 1))
		write(t, dir+"/b.wasm", []byte("not a module"))
	})
	if s, ok := f.status("", "b", StateRefused); !ok || s.Digest != runtime.DigestOf([]byte("not a module")) || s.Error == "" {
		t.Errorf("what is bad from the start is not listed when ready: %+v", f.List())
	}
	f.seen.drain()

	bad := []byte("\x00asm, and then nothing that could be one")
	f.write("a.wasm", bad)
	status := f.awaitRefusal("", "a", f.path("a.wasm"))
	if status.Digest != runtime.DigestOf(bad) || !slices.Equal(status.Queues, []string{"a"}) {
		t.Errorf("status %+v", status)
	}
	if got := f.runs("acme", "a"); got != output(1) {
		t.Errorf("output %q", got)
	}
	if s, ok := f.status("", "a", StateServing); !ok || s.Digest != runtime.DigestOf(guest(t, 1)) {
		t.Errorf("the good version is not listed: %+v", f.List())
	}

	// The manifest may be what is bad.
	f.write("a.wasm", guest(t, 2))
	f.awaitRun("acme", "a", output(2))
	f.write("a.yaml", []byte("limits: {memroy: 1MiB}"))
	f.awaitRefusal("", "a", f.path("a.yaml")+":1: limits: unknown key \"memroy\": did you mean \"memory\"?")
	if got := f.runs("acme", "a"); got != output(2) {
		t.Errorf("output %q", got)
	}

	// What is put right serves, and the refusal is forgotten.
	f.write("a.yaml", []byte("version: 3"))
	f.awaitNoRefusal("", "a")
	if s, ok := f.status("", "a", StateServing); !ok || s.Version != "3" {
		t.Errorf("list %+v", f.List())
	}
	if got := f.seen.count(`loaded "" a refused`); got != 2 {
		t.Errorf("%d refusals counted, want one for each content", got)
	}
	if got := strings.Count(f.logs.String(), "plugin refused: plugin=a"); got != 2 {
		t.Errorf("%d refusals logged, want one for each content", got)
	}
}

// A refusal is said once, however often the directory is looked at, and taken back when the file is
// again what serves.
func TestRefusalOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 1)) })
	f.write("a.wasm", []byte("bad"))
	f.awaitRefusal("", "a")
	for i := range 3 {
		f.write(fmt.Sprintf("marker%d.wasm", i), guest(t, 2)) // each a look
		f.awaitRun("acme", fmt.Sprintf("marker%d", i), output(2))
	}
	if got := f.seen.count(`loaded "" a refused`); got != 1 {
		t.Errorf("%d refusals counted", got)
	}
	f.write("a.wasm", guest(t, 1))
	f.awaitNoRefusal("", "a")
	if got := f.seen.count(`loaded "" a ok`); got != 1 {
		t.Errorf("loaded %d times, want once", got)
	}
}

// A file that is copied slowly is no news until it is whole.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 1)) })
	file, err := os.Create(f.path("a.wasm"))
	check(t, err)
	defer file.Close()
	ticker := time.NewTicker(60 * time.Millisecond)
	defer ticker.Stop()
	for piece := range slices.Chunk(guest(t, 2), len(guest(t, 2))/20) {
		_, err := file.Write(piece)
		check(t, err)
		if got := f.runs("acme", "a"); got != output(1) && got != output(2) {
			t.Fatalf("output %q", got)
		}
		<-ticker.C
	}
	f.awaitRun("acme", "a", output(2))
	if got := f.seen.count(`loaded "" a refused`); got != 0 {
		t.Errorf("%d states in between were refused:\n%s", got, f.logs)
	}
}

func TestRemoveAndReturn(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 1)) })
	held := f.Acquire("acme", "a")
	f.seen.drain()
	f.remove("a.wasm")
	f.awaitRun("acme", "a", "")
	if got := f.List(); len(got) != 0 {
		t.Errorf("list %+v", got)
	}
	want := []string{`loaded "" a gone`, fmt.Sprintf(`serving "" a "" %s false`, runtime.DigestOf(guest(t, 1)))}
	if got := f.seen.drain(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if got := held.Run(t.Context(), runtime.Call{}); string(got.Output) != output(1) {
		t.Errorf("the removed version: %+v", got)
	}
	held.Release()
	f.write("a.wasm", guest(t, 1))
	f.awaitRun("acme", "a", output(1))
}

// Run returns when the last holder has let go, not before.
func TestRunWaitsForHolders(t *testing.T) {
	t.Parallel()
	f := prepared(t, Config{}, func(dir string) { write(t, dir+"/a.wasm", guest(t, 1)) })
	f.start()
	<-f.Ready()
	v := f.Acquire("acme", "a")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		f.stop()
	}()
	eventually(t, func() error {
		if !strings.Contains(f.logs.String(), "waiting for the tasks") {
			return errors.New("Run does not say that it waits")
		}
		return nil
	})
	if again := f.Acquire("acme", "a"); again != nil {
		t.Error("a queue is served after the end")
		again.Release()
	}
	if got := v.Run(t.Context(), runtime.Call{}); string(got.Output) != output(1) {
		t.Errorf("a task after the end: %+v", got)
	}
	select {
	case <-stopped:
		t.Error("Run returned while a version is held")
	default:
	}
	v.Release()
	<-stopped
}

func TestCeilings(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{MaxMemory: 40 << 20, Ceilings: ceilings(time.Minute, time.Second)}, func(dir string) {
		manifest := func(plugin, text string) {
			write(t, dir+"/"+plugin+".wasm", guest(t, 1))
			write(t, dir+"/"+plugin+".yaml", []byte(text))
		}
		manifest("fits", "limits: {memory: 8MiB}")
		manifest("short", "limits: {memory: 8MiB, timeout: 10s}")
		manifest("long", "limits: {memory: 8MiB, timeout: 2h}")
		manifest("light", "limits: {memory: 8MiB, cpu: 10ms}")
		manifest("heavy", "limits: {memory: 8MiB, cpu: 1m}")
		manifest("big", "limits: {memory: 9MiB}")
		manifest("tight", "limits: {memory: 64KiB}")
		write(t, dir+"/plain.wasm", guest(t, 1))
		write(t, dir+"/tables.yaml", []byte("limits: {memory: 7MiB}"))
		write(t, dir+"/tables.wasm", runtimetest.BuildWAT(t, `(module (table 100000 funcref) (func (export "_start")))`))
	})
	for plugin, want := range map[string]time.Duration{"fits": time.Minute, "short": 10 * time.Second, "long": time.Minute} {
		v := f.Acquire("acme", plugin)
		if v == nil {
			t.Fatalf("plugin %s does not serve: %+v", plugin, f.List())
		}
		if v.Permissions.Limits.Timeout != want {
			t.Errorf("plugin %s: timeout %s, want %s", plugin, v.Permissions.Limits.Timeout, want)
		}
		v.Release()
	}
	for plugin, want := range map[string]time.Duration{"fits": time.Second, "light": 10 * time.Millisecond, "heavy": time.Second} {
		v := f.Acquire("acme", plugin)
		if v.Permissions.Limits.CPU != want {
			t.Errorf("plugin %s: cpu %s, want %s", plugin, v.Permissions.Limits.CPU, want)
		}
		v.Release()
	}
	f.awaitRefusal("", "big", "one task may take 41MiB (memory 9MiB, input 16MiB, output 16MiB), more than the 40MiB",
		f.path("big.yaml"))
	f.awaitRefusal("", "plain", "one task may take 96MiB")
	f.awaitRefusal("", "tables", "(memory 7MiB, input 16MiB, output 16MiB, tables and calls of the host 2648576B), more than the 40MiB")
	f.awaitRefusal("", "tight", "64KiB")
	if !strings.Contains(f.logs.String(), "the host gives a plugin less than its manifest asks for: plugin=long tenant=\"\" key=limits.timeout manifest=2h0m0s host=1m0s see=--max-timeout") {
		t.Error("a shortened timeout is not logged")
	}
	if !strings.Contains(f.logs.String(), "the host gives a plugin less than its manifest asks for: plugin=heavy tenant=\"\" key=limits.cpu manifest=1m0s host=1s see=--max-cpu") {
		t.Error("a lowered cpu limit is not logged")
	}
}

func TestNoEntryPoint(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", []byte("\x00asm\x01\x00\x00\x00"))
	})
	f.awaitRefusal("", "a", "_start", "quern_handle", "extism")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cfg  Config
		want string
	}{
		"OK":            {Config{}, ""},
		"OK braces":     {Config{Tenants: []string{"a-1", "{a-1}"}}, ""},
		"ErrTenant":     {Config{Tenants: []string{"a", "B"}}, `config: Tenants[1] is "B": it may be 1 to 32 of a-z, 0-9 and -, or such a word in braces`},
		"ErrUnderscore": {Config{Tenants: []string{"a_b"}}, `config: Tenants[0] is "a_b": it may be 1 to 32 of a-z, 0-9 and -, or such a word in braces`},
		"ErrBraces":     {Config{Tenants: []string{"{}"}}, `config: Tenants[0] is "{}": it may be 1 to 32 of a-z, 0-9 and -, or such a word in braces`},
		"ErrTwice":      {Config{Tenants: []string{"a", "a"}}, `config: Tenants names "a" twice: name it once`},
		"ErrMaxMemory":  {Config{MaxMemory: -1}, "config: MaxMemory is -1: it may be 0, for no bound, or more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(nil, tt.cfg)
			if tt.want == "" {
				check(t, err)
				return
			}
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// The queue of a webhook is served by hosts alone: a plugin of that name would take its deliveries, manifest or not.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		mkdir(t, dir+"/acme")
		write(t, dir+"/webhook.all.wasm", guest(t, 1))
		write(t, dir+"/acme/webhook.own.wasm", guest(t, 1))
	})
	for tenant, name := range map[string]string{"": "webhook.all", "acme": "webhook.own"} {
		f.awaitRefusal(tenant, name, `the queue "`+name+`" is for the deliveries of webhooks, which hosts send: rename the file`)
	}
	if f.runs("acme", "webhook.all")+f.runs("acme", "webhook.own") != "" {
		t.Error("a plugin serves the queue of a webhook")
	}
}
