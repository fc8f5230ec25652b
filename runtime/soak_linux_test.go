package runtime

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// footprint is what this process takes of the system when nothing runs and nothing waits for the collector.
type footprint struct {
	Memory      int64 // resident bytes that are no file's: Go's heap, machine code, memories, images
	Heap        int64 // bytes on Go's heap
	Code        int64 // bytes of machine code that was made here
	Addresses   int64 // bytes
	Goroutines  int
	Descriptors int
	Mappings    int
	Modules     int64 // that were loaded, and are not collected
}

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MiB resident, %.2f MiB of heap, %d KiB of code, %.2f GiB of addresses, "+
		"%d goroutines, %d descriptors, %d mappings, %d modules",
		float64(f.Memory)/(1<<20), float64(f.Heap)/(1<<20), f.Code>>10, float64(f.Addresses)/(1<<30),
		f.Goroutines, f.Descriptors, f.Mappings, f.Modules)
}

// footprintNow collects garbage first, and gives it back.
func footprintNow(t testing.TB) footprint {
	t.Helper()
	collectAll(t)
	var heap goruntime.MemStats
	goruntime.ReadMemStats(&heap)
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	f := footprint{
		Memory:      resident(t, "RssAnon") + resident(t, "RssShmem"),
		Heap:        int64(heap.HeapAlloc),
		Addresses:   resident(t, "VmSize"),
		Goroutines:  goruntime.NumGoroutine(),
		Descriptors: len(descriptors),
	}
	f.Mappings, f.Code = mappings(t)
	return f
}

// mappings counts those of this process, and the bytes of those that can be executed and are of no file.
func mappings(t testing.TB) (n int, code int64) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		n++
		fields := strings.Fields(line) // addresses, permissions, offset, device, inode, and the path of a file
		if len(fields) > 5 || !strings.Contains(fields[1], "x") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			t.Fatal(err)
		}
		code += to - from
	}
	return n, code
}

// collectAll returns when finalizers have run, which unmap machine code, and what those have let go is collected.
func collectAll(t testing.TB) {
	t.Helper()
	for range 3 {
		last := make(chan struct{})
		goruntime.SetFinalizer(&[1 << 10]byte{}, func(*[1 << 10]byte) { close(last) })
		eventually(t, "finalizers run", func() bool {
			goruntime.GC()
			select {
			case <-last:
				return true
			default:
				return false // another collection may be needed
			}
		})
	}
	debug.FreeOSMemory()
}

// swapPlan is how much a test of swaps does in each round.
type swapPlan struct{ rounds, swaps, tasks int }

func swapPlanned() swapPlan {
	switch {
	case soaking():
		return swapPlan{rounds: 10, swaps: 100, tasks: 10_000}
	case slowdown > 1:
		return swapPlan{rounds: 2, swaps: 10, tasks: 60}
	default:
		return swapPlan{rounds: 2, swaps: 40, tasks: 200}
	}
}

// more is what the rounds may add to what the warm-up took, all together. A swap could leave a module, a mapping, a
// descriptor, a page of machine code, the 16 MiB of addresses of an instance, or some 30 KiB of heap for what wazero
// knows of one; and there are 1,000 swaps in a soak. Go's runtime takes 64 MiB of addresses and some mappings more now
// and then. What is resident differs by some MiB, and more with the race detector, which has a shadow of it.
var more = footprint{Memory: slowdown/4*(2<<20) + 16<<20, Heap: 256 << 10, Addresses: 1 << 30, Mappings: 30}

// grew tells what of it is more than it may be.
func (f footprint) grew(first footprint) (what []string) {
	for name, grown := range map[string]bool{
		"memory":      f.Memory > first.Memory+more.Memory,
		"heap":        f.Heap > first.Heap+more.Heap,
		"code":        f.Code > first.Code+more.Code,
		"addresses":   f.Addresses > first.Addresses+more.Addresses,
		"goroutines":  f.Goroutines > first.Goroutines+more.Goroutines,
		"descriptors": f.Descriptors > first.Descriptors+more.Descriptors,
		"mappings":    f.Mappings > first.Mappings+more.Mappings,
		"modules":     f.Modules > first.Modules+more.Modules,
	} {
		if grown {
			what = append(what, name)
		}
	}
	slices.Sort(what)
	return what
}

// TestSoakSwaps: modules that are loaded, run, retired and closed under load, of the same bytes and of others, leave
// nothing of memory, addresses, goroutines, descriptors and mappings behind, and tasks neither. It looks at a process
// of its own.
func TestSoakSwaps(t *testing.T) {
	t.Parallel()
	plan, seed := swapPlanned(), seeded(t)
	var rounds []footprint
	if alone(t, &rounds, fmt.Sprintf("QUERN_SOAK_SEED=%d", seed)) {
		for n, round := range rounds {
			t.Logf("after %d swaps and %d tasks: %v", n*plan.swaps, n*plan.tasks, round)
		}
		if what := rounds[plan.rounds].grew(rounds[0]); what != nil {
			t.Errorf("these grew: %v", what)
		}
		return
	}
	s := newSwapper(t)
	for n := range plan.rounds + 1 {
		s.round(t, plan, seed+uint64(n))
		calm(t, s.engine)
		s.engine.tidy(t.Context(), time.Now().Add(time.Hour)) // what is served now holds its file alone
		now := footprintNow(t)
		now.Modules = s.live.Load()
		rounds = append(rounds, now)
	}
	s.fuel.check(t)
	tell(t, rounds)
}

// swapper serves one module after the other.
type swapper struct {
	engine *Engine
	guests []swapGuest
	made   int // modules
	fuel   *fuels

	live    atomic.Int64 // modules that are not collected
	current atomic.Pointer[served]
}

// swapGuest is a residue guest, with a text in its file in the place of which a number can stand.
type swapGuest struct {
	residueGuest
	text  string
	price int64 // of a task, in fuel
}

// served is a module that serves until it is closed.
type served struct {
	residueRun
	mu     sync.RWMutex // held for reading by calls
	closed bool
}

func newSwapper(t *testing.T) *swapper {
	t.Helper()
	s := &swapper{engine: setup(t), fuel: newFuels()}
	texts := map[string]string{"WAT": "v128 ex\n", "C": "stack pointer", "Go": "new memory: "}
	for _, guest := range residueGuests() {
		if text := texts[guest.name]; text != "" && (guest.name != "Go" || soaking()) {
			s.guests = append(s.guests, swapGuest{residueGuest: guest, text: text})
		}
	}
	s.current.Store(s.next(t, nil))
	return s
}

// numberedText is a module with a number in the place of a text: another module.
func numberedText(t testing.TB, binary []byte, text string, number int) []byte {
	t.Helper()
	if bytes.Count(binary, []byte(text)) != 1 {
		t.Fatalf("the module does not have %q once", text)
	}
	return bytes.Replace(binary, []byte(text), fmt.Appendf(nil, "%0*d", len(text), number), 1)
}

// next loads the next module: one of the same bytes, of others, or of others that come to the same code. Guests
// take turns; one in Go, which is compiled for seconds, has few.
func (s *swapper) next(t *testing.T, before *served) *served {
	t.Helper()
	const rarely = 50
	n := s.made
	s.made++
	var guest *swapGuest
	switch {
	case n%rarely == rarely-1:
		guest = &s.guests[len(s.guests)-1]
	default:
		guest = &s.guests[n/3%2]
	}
	binary := numberedText(t, guest.build(t), guest.text, n/3)
	if n%3 == 2 {
		binary = append(binary, runtimetest.RawSection(0, runtimetest.Name(strconv.Itoa(n)))...)
	}
	module, err := s.engine.Load(context.WithoutCancel(t.Context()), binary)
	if err != nil {
		t.Error(err)
		return before
	}
	s.live.Add(1)
	goruntime.AddCleanup(module, func(live *atomic.Int64) { live.Add(-1) }, &s.live)
	next := &served{residueRun: residueRun{
		guest: guest.residueGuest, ends: guest.endsOf(), fuel: s.fuel, ended: map[end]int{},
		crowd: crowd{engine: s.engine, module: module},
	}}
	if guest.price == 0 {
		guest.price = next.pilot(t)
	}
	next.price = guest.price
	return next
}

// swap lets the next module serve, and closes the one before when its calls have returned.
func (s *swapper) swap(t *testing.T) {
	t.Helper()
	old := s.current.Load()
	next := s.next(t, old)
	if next == old {
		return
	}
	s.current.Store(next)
	for _, p := range places {
		retire(old.module, p.pool)
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	old.closed = true
	if err := old.module.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, p := range places {
		retire(old.module, p.pool) // calls may have bound others
	}
}

// round runs tasks on several goroutines, and swaps after every so many of them.
func (s *swapper) round(t *testing.T, plan swapPlan, seed uint64) {
	t.Helper()
	due := make(chan struct{}) // closed when the tasks have run
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for range due {
			s.swap(t)
		}
	})
	var done atomic.Int64
	var group sync.WaitGroup
	for worker := range crowdSize {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(worker)))
			for n := done.Add(1); n <= int64(plan.tasks) && !t.Failed(); n = done.Add(1) {
				if n%int64(plan.tasks/plan.swaps) == 0 {
					due <- struct{}{}
				}
				s.task(t, random)
			}
		})
	}
	group.Wait()
	close(due)
	swapping.Wait()
}

// task runs a task on the module that serves now.
func (s *swapper) task(t *testing.T, random *rand.Rand) {
	t.Helper()
	for {
		now := s.current.Load()
		now.mu.RLock()
		if now.closed {
			now.mu.RUnlock()
			continue // another one has its place already
		}
		defer now.mu.RUnlock()
		if random.IntN(peace) == 0 {
			now.disturb(t.Context(), random)
		}
		now.task(t, random)
		return
	}
}
