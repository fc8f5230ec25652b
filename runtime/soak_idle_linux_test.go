package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

const (
	idlePlugins = 100
	idleNames   = 1000

	// maxIdle is what a host takes with a hundred plugins in Go that are idle, maxNames with a thousand names of one.
	maxIdle  = 1 << 30
	maxNames = 200 << 20
)

// idleReport is what a test of idle plugins has measured.
type idleReport struct {
	Names, Loaded, Trimmed, Idle, Again holding
	First, After                        []time.Duration // of each plugin's first task, and its first one after it was idle
}

// holding is what this process takes of memory.
type holding struct {
	Bytes int64
	How   string
	Held  Holdings
}

func (h holding) String() string {
	return fmt.Sprintf("%d MiB (%s); the engine counts %d MiB of code, %d of snapshots, %d of %d instances",
		h.Bytes>>20, h.How, h.Held.Code>>20, h.Held.Snapshots>>20, h.Held.Instances>>20, h.Held.Idle)
}

// holdingNow collects garbage first. If the process is alone in a cgroup, what that counts is the measure, else what is
// resident of this process, and all of the images, touched or not.
func holdingNow(t *testing.T, engine *Engine) holding {
	t.Helper()
	collectAll(t)
	if bytes, ok := ofCgroup(t); ok {
		return holding{bytes, "memory.current", engine.Holdings()}
	}
	anonymous, file, images := resident(t, "RssAnon"), resident(t, "RssFile"), memfds(t)
	how := fmt.Sprintf("anonymous %d, of files %d, of images %d", anonymous>>20, file>>20, images>>20)
	return holding{anonymous + file + images, how, engine.Holdings()}
}

// ofCgroup is what the cgroup of this process takes, if no other process is in it.
func ofCgroup(t *testing.T) (bytes int64, ok bool) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		path, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup", path)
		processes, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || strings.TrimSpace(string(processes)) != strconv.Itoa(os.Getpid()) {
			return 0, false
		}
		current, err := os.ReadFile(filepath.Join(dir, "memory.current"))
		if err != nil {
			return 0, false
		}
		bytes, err = strconv.ParseInt(strings.TrimSpace(string(current)), 10, 64)
		return bytes, err == nil
	}
	return 0, false
}

// memfds is what the images take that this process has open.
func memfds(t *testing.T) (bytes int64) {
	t.Helper()
	descriptors, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range descriptors {
		var stat syscall.Stat_t
		target, err := os.Readlink(path)
		if err == nil && strings.HasPrefix(target, "/memfd:") && syscall.Stat(path, &stat) == nil {
			bytes += stat.Blocks * 512
		}
	}
	return bytes
}

// TestSoakIdle: a hundred idle plugins in Go, each with code of its own, take less than 1 GiB, and a thousand names of one
// plugin less than 200 MiB.
func TestSoakIdle(t *testing.T) { // not parallel: it measures time
	if !soaking() {
		t.Skip("make soak: it compiles a hundred modules in Go")
	}
	var found idleReport
	if alone(t, &found) {
		t.Logf("%d names: %v", idleNames, found.Names)
		t.Logf("%d plugins that have run: %v", idlePlugins, found.Loaded)
		t.Logf("not needed for two rounds of tidying: %v", found.Trimmed)
		t.Logf("idle for an hour: %v", found.Idle)
		t.Logf("after another task each, and idle again: %v", found.Again)
		t.Logf("first task: median %v, worst %v; after it was idle: median %v, worst %v",
			median(found.First), slices.Max(found.First), median(found.After), slices.Max(found.After))
		for _, h := range []holding{found.Idle, found.Again} {
			if h.Bytes > maxIdle || h.Held != (Holdings{}) {
				t.Errorf("%d idle plugins: %v", idlePlugins, h)
			}
		}
		if found.Names.Bytes > maxNames {
			t.Errorf("%d names of a plugin: %v", idleNames, found.Names)
		}
		return
	}
	engine := setupWith(t, Config{Compiler: itself(compileMode)})
	binary := runtimetest.Go.JSON(t)
	found.Names = runsByNames(t, engine, loadInto(t, engine, binary))
	modules := loadNumbered(t, engine, binary)
	found.First = firstTasks(t, modules)
	found.Loaded = holdingNow(t, engine)
	for range 3 {
		engine.tidy(t.Context(), time.Now())
	}
	found.Trimmed = holdingNow(t, engine)
	engine.tidy(t.Context(), time.Now().Add(time.Hour))
	found.Idle = holdingNow(t, engine)
	found.After = firstTasks(t, modules)
	engine.tidy(t.Context(), time.Now().Add(time.Hour))
	found.Again = holdingNow(t, engine)
	tell(t, found)
}

// loadNumbered loads a handler in Go many times, each with another number in its data.
func loadNumbered(t *testing.T, engine *Engine, binary []byte) []*Module {
	t.Helper()
	modules := make([]*Module, idlePlugins)
	var group sync.WaitGroup
	for worker := range 2 { // as many as are compiled at once
		group.Go(func() {
			for n := worker; n < idlePlugins; n += 2 {
				var err error
				if modules[n], err = engine.Load(t.Context(), numberedText(t, binary, "json: cannot unmarshal ", n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, module := range modules {
			if err := module.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	return modules
}

// firstTasks runs a task on each module, one after the other, and tells how long each took.
func firstTasks(t *testing.T, modules []*Module) (took []time.Duration) {
	t.Helper()
	for n, module := range modules {
		began := time.Now()
		got := manifestPool(module).Run(t.Context(), jsonCall(fmt.Sprint("plugin", n)))
		took = append(took, time.Since(began))
		if complete(t, got) != string(runtimetest.JSONOutput()) {
			t.Fatalf("plugin %d: %+v", n, got)
		}
	}
	return took
}

func manifestPool(module *Module) *Pool { return bound(module, "manifest", Profile{Tenant: "acme"}) }

func jsonCall(name string) Call {
	return Call{Plugin: name, Queue: name, Input: runtimetest.JSONInput()}
}

// runsByNames runs tasks of many names that have a module and a manifest in common, on several goroutines.
func runsByNames(t *testing.T, engine *Engine, module *Module) holding {
	t.Helper()
	names := make(chan string)
	var group sync.WaitGroup
	for range crowdSize {
		group.Go(func() {
			for name := range names {
				if got := manifestPool(module).Run(t.Context(), jsonCall(name)); got.Kind != Complete {
					t.Errorf("%s: %+v", name, got)
				}
			}
		})
	}
	for n := range idleNames {
		names <- fmt.Sprint("name", n)
	}
	close(names)
	group.Wait()
	return holdingNow(t, engine)
}
