package schedule_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/schedule"
)

const (
	simStep    = 50 * time.Microsecond
	simReserve = 300 * time.Microsecond // a round trip to Redis, unless the simulation has its own
	simSlice   = 250 * time.Microsecond // for which a guest computes before another one gets its place
	simMemory  = 1 << 30
)

// simTenant is a tenant of a simulation. It has tasks of one kind in some queues.
type simTenant struct {
	name             string
	weight           int
	queues           int
	computes, sleeps time.Duration
	varies           bool // computes is an average
	memory           int64
	backlog          map[string]int // by queue
}

func (t *simTenant) fill(tasks int) {
	t.backlog = make(map[string]int)
	for i := range t.queues {
		t.backlog[fmt.Sprint("q", i)] = tasks / t.queues
	}
}

// simTask is a task on a host of a simulation.
type simTask struct {
	schedule.Slot
	tenant                *simTenant
	begun                 time.Time
	computes, sleeps      time.Duration
	computed, waited, cut time.Duration // so far; cut is the rest of its slice
}

// simSource is the listener of a tenant on a host.
type simSource struct {
	tenant    *simTenant
	reserving bool
	closed    bool
	hangs     bool // its reserves have no end
}

func (s *simSource) State(time.Time) (available, reserving bool) { return !s.closed, s.reserving }
func (s *simSource) AddAhead(int)                                {}

// simReply is a reserve on its way.
type simReply struct {
	source      *simSource
	allocations []*schedule.Allocation
	due         time.Time
}

// simCode is the code of all plugins.
type simCode struct{}

func (simCode) PendingSnapshot() int64 { return 0 }
func (simCode) Release()               {}

// simHost is a host of a simulation.
type simHost struct {
	*schedule.Scheduler
	sim     *sim
	sources map[string]*simSource
	gate    []*simTask // want to compute, the next one first
	places  int
	sleep   []*simTask
	replies []simReply
	due     bool
	planAt  time.Time
}

// sim is a fleet in virtual time. Nothing but its seed is random.
type sim struct {
	now     time.Time
	tenants []*simTenant
	hosts   []*simHost
	random  *rand.Rand
	reserve time.Duration
}

func newSim(hosts, slots, places int, tenants ...*simTenant) *sim {
	s := &sim{now: time.Unix(1_700_000_000, 0), tenants: tenants, random: rand.New(rand.NewPCG(1, 2)), reserve: simReserve}
	for range hosts {
		h := &simHost{sim: s, sources: make(map[string]*simSource), places: places}
		h.Scheduler = schedule.New(schedule.Config{
			Slots: slots, Guests: places, Memory: simMemory, Account: account.New(simMemory),
			MaxReserve: maxReserve, MaxSettle: 100, Running: func(int) {}, Wake: func() { h.due = true },
			Acquire: func(at schedule.Queue) *schedule.Version {
				return &schedule.Version{
					Code: simCode{}, Plugin: schedule.Plugin(at),
					Memory: h.sources[at.Tenant].tenant.memory, MayWait: true,
				}
			},
		})
		s.hosts = append(s.hosts, h)
		for _, t := range tenants {
			h.SetWeights(t.name, t.weight, nil)
			h.sources[t.name] = &simSource{tenant: t}
			for i := range t.queues {
				h.Serve(schedule.Queue{Tenant: t.name, Name: fmt.Sprint("q", i)}, h.sources[t.name])
			}
		}
	}
	return s
}

// announce adds tasks to a tenant, evenly over its queues.
func (s *sim) announce(t *simTenant, tasks int) {
	t.fill(tasks)
	for _, h := range s.hosts {
		for name := range t.backlog {
			h.Announced(schedule.Queue{Tenant: t.name, Name: name})
		}
	}
}

// run lets time pass.
func (s *sim) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(simStep) {
		for _, h := range s.hosts {
			h.step()
		}
	}
}

func (h *simHost) step() {
	h.replies = slices.DeleteFunc(h.replies, func(r simReply) bool {
		if r.due.After(h.sim.now) {
			return false
		}
		r.source.reserving = false
		for _, a := range r.allocations {
			h.answer(r.source.tenant, a)
		}
		h.due = true
		return true
	})
	h.compute()
	for _, task := range slices.Clone(h.sleep) {
		if task.waited += simStep; task.waited >= task.sleeps {
			h.sleep = slices.DeleteFunc(h.sleep, func(t *simTask) bool { return t == task })
			h.gate = append(h.gate, task)
		}
	}
	for h.due || !h.planAt.IsZero() && !h.planAt.After(h.sim.now) {
		h.due, h.planAt = false, time.Time{}
		h.plan()
	}
}

func (h *simHost) plan() {
	round := h.Plan(h.sim.now)
	for source, work := range round.Work {
		from := source.(*simSource)
		for _, t := range work.Begin {
			h.begin(t.(*simTask))
		}
		for _, t := range work.Return {
			task := t.(*simTask)
			from.tenant.backlog[task.Queue.Name]++
			h.Settled(&task.Slot)
			h.Announced(task.Queue)
		}
		if len(work.Allocations) > 0 {
			from.reserving = true
			if from.hangs {
				continue
			}
			h.replies = append(h.replies, simReply{from, work.Allocations, h.sim.now.Add(h.sim.reserve)})
		}
	}
	h.due = h.due || round.More
	if round.Next > 0 {
		h.planAt = h.sim.now.Add(round.Next)
	}
}

// answer plays Redis for an allocation.
func (h *simHost) answer(t *simTenant, a *schedule.Allocation) {
	n := min(a.Tasks(), t.backlog[a.Queue.Name])
	t.backlog[a.Queue.Name] -= n
	tasks := make([]schedule.Task, n)
	for i := range tasks {
		task := &simTask{Slot: a.Slot(h.sim.now), tenant: t, computes: t.computes, sleeps: t.sleeps}
		if t.varies {
			task.computes = time.Duration(float64(t.computes) * h.sim.random.ExpFloat64())
		}
		tasks[i] = task
	}
	for _, t := range h.Reserved(a, tasks, schedule.Reply{}, h.sim.now) {
		h.begin(t.(*simTask))
	}
}

func (h *simHost) begin(t *simTask) {
	t.begun, t.cut = h.sim.now, simSlice
	if t.sleeps > 0 {
		h.sleep = append(h.sleep, t)
		return
	}
	h.gate = append(h.gate, t)
}

// compute lets guests compute for a step.
func (h *simHost) compute() {
	n := min(h.places, len(h.gate))
	computing := slices.Clone(h.gate[:n])
	h.gate = h.gate[n:]
	var stay, back []*simTask
	for _, t := range computing {
		t.computed += simStep
		t.cut -= simStep
		switch {
		case t.computed >= t.computes:
			h.end(t)
		case t.cut > 0:
			stay = append(stay, t)
		default:
			t.cut = simSlice
			back = append(back, t)
		}
	}
	h.gate = append(append(stay, h.gate...), back...)
}

func (h *simHost) end(t *simTask) {
	run := schedule.Run{Took: t.waited + t.computed, Waited: t.waited, Computed: t.computed}
	next := h.Ended(&t.Slot, run, h.sim.now)
	h.Settled(&t.Slot)
	if next != nil {
		h.begin(next.(*simTask))
	}
}

// costs returns what the tenants' tasks have cost so far, in seconds of a host.
func (s *sim) costs() map[string]float64 {
	costs := make(map[string]float64)
	for _, h := range s.hosts {
		for name, share := range h.Shares() {
			costs[name] += share.Cost.Seconds()
		}
	}
	return costs
}

// during runs the simulation, and returns what each tenant's tasks cost meanwhile, in seconds of a host.
func (s *sim) during(d time.Duration) map[string]float64 {
	before := s.costs()
	s.run(d)
	costs := s.costs()
	for name := range costs {
		costs[name] -= before[name]
	}
	return costs
}

// wantShares checks that each of these tenants got its weight of what all of them got, within 10 %.
func wantShares(t *testing.T, costs map[string]float64, tenants ...*simTenant) {
	t.Helper()
	sum, weights := 0.0, 0
	for _, tenant := range tenants {
		sum, weights = sum+costs[tenant.name], weights+tenant.weight
	}
	for _, tenant := range tenants {
		share := costs[tenant.name] / (sum * float64(tenant.weight) / float64(weights))
		t.Logf("%-8s weight %d: %6.3f s, %3.0f %%", tenant.name, tenant.weight, costs[tenant.name], 100*share)
		if math.Abs(share-1) > 0.1 {
			t.Errorf("%s got %.0f %% of its share", tenant.name, 100*share)
		}
	}
}

// eight are tenants with all kinds of work, in amounts that do not end.
func eight() []*simTenant {
	const much = 10_000_000
	queues := 1000
	if testing.Short() { // the plans take time
		queues = 200
	}
	tenants := []*simTenant{
		{name: "long", queues: 1, computes: 100 * time.Millisecond},
		{name: "tiny", queues: 1, computes: 100 * time.Microsecond},
		{name: "spread", queues: queues, computes: 2 * time.Millisecond},
		{name: "varied", queues: 3, computes: 30 * time.Millisecond, varies: true},
		{name: "waits", queues: 2, computes: 2 * time.Millisecond, sleeps: 20 * time.Millisecond},
		{name: "large", queues: 1, computes: 20 * time.Millisecond, memory: simMemory / 8},
		{name: "short", queues: 10, computes: 500 * time.Microsecond},
		{name: "medium", queues: 2, computes: 10 * time.Millisecond},
	}
	for _, t := range tenants {
		t.weight = 1
		t.memory = max(t.memory, small)
		t.fill(much)
	}
	return tenants
}

// Whatever the work of tenants is, each gets its weight in what its tasks cost, on one host and over several.
func TestTenantsGetTheirWeights(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hosts, slots int
		weights      []int
		full         bool
	}{
		"Weights":   {1, 8, []int{1, 3, 1, 2, 1, 2, 4, 1}, false},
		"Even":      {1, 8, []int{1, 1, 1, 1, 1, 1, 1, 1}, true},
		"FourSlots": {1, 4, []int{1, 1, 1, 1, 1, 1, 1, 1}, true},
		"FourHosts": {4, 8, []int{1, 3, 1, 2, 1, 2, 4, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.full && testing.Short() {
				t.Skip("plans for many seconds")
			}
			tenants := eight()
			for i, weight := range test.weights {
				tenants[i].weight = weight
			}
			s := newSim(test.hosts, test.slots, 2, tenants...)
			s.run(time.Second)
			wantShares(t, s.during(10*time.Second), tenants...)
		})
	}
}

// What a tenant leaves of its share goes to the others at once, and a tenant that comes back gets its share at once, but
// nothing of what it left. It makes no difference whether the tenant had nothing to do, or could not use its share.
func TestNoCreditForAnIdleShare(t *testing.T) {
	t.Parallel()
	for name, hosts := range map[string]int{"OneHost": 1, "FourHosts": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if hosts > 1 && testing.Short() {
				t.Skip("plans for many seconds")
			}
			const much = 10_000_000
			stays := &simTenant{name: "stays", weight: 1, queues: 1, computes: 10 * time.Millisecond, memory: small}
			comes := &simTenant{name: "comes", weight: 3, queues: 2, computes: time.Millisecond, memory: small}
			tiny := &simTenant{name: "tiny", weight: 1, queues: 1, computes: 200 * time.Microsecond, memory: small}
			for _, tenant := range []*simTenant{stays, comes, tiny} {
				tenant.fill(much)
			}
			s := newSim(hosts, 8, 2, stays, comes, tiny)
			s.run(time.Second)
			wantShares(t, s.during(2*time.Second), stays, comes, tiny)
			for range 2 {
				comes.fill(0)
				s.run(50 * time.Millisecond) // what is reserved ends
				costs := s.during(2 * time.Second)
				wantShares(t, costs, stays, tiny)
				if idle := 2*float64(hosts) - costs["stays"] - costs["tiny"]; idle > 0.1*float64(hosts) {
					t.Errorf("%.3f s of the hosts were idle", idle)
				}
				s.announce(comes, much)
				wantShares(t, s.during(500*time.Millisecond), stays, comes, tiny)
			}
			for _, h := range s.hosts { // cannot reserve, and has tasks all the time
				h.sources["comes"].closed = true
			}
			s.run(3 * time.Second)
			for _, h := range s.hosts {
				h.sources["comes"].closed = false
				h.due = true
			}
			costs := s.during(2 * time.Second)
			if most := 0.6*2*float64(hosts) + 1.1*float64(hosts)*schedule.MaxCredit.Seconds(); costs["comes"] > most {
				t.Errorf("a tenant that could not reserve got %.3f s of the hosts, want at most %.3f", costs["comes"], most)
			}
		})
	}
}

// A weight that changes takes effect at once, for a tenant and for a queue in its tenant.
func TestWeightsChange(t *testing.T) {
	t.Parallel()
	one := &simTenant{name: "one", weight: 1, queues: 2, computes: 2 * time.Millisecond, memory: small}
	other := &simTenant{name: "other", weight: 1, queues: 1, computes: 2 * time.Millisecond, memory: small}
	one.fill(10_000_000)
	other.fill(10_000_000)
	s := newSim(1, 8, 2, one, other)
	s.run(time.Second)
	wantShares(t, s.during(time.Second), one, other)
	one.weight = 5
	s.hosts[0].SetWeights("one", 5, map[string]int{"q1": 4})
	before := maps.Clone(one.backlog)
	wantShares(t, s.during(2*time.Second), one, other)
	ran := func(name string) float64 { return float64(before[name] - one.backlog[name]) }
	if ratio := ran("q1") / ran("q0"); math.Abs(ratio-4) > 0.4 {
		t.Errorf("a queue of weight 4 ran %.2f times the tasks of a queue of weight 1", ratio)
	}
}

// A tenant with many queues gets no more slots than one with one queue, also if tasks are long and slots become free
// together.
func TestFreeSlotsAreSpread(t *testing.T) {
	t.Parallel()
	many := &simTenant{name: "many", weight: 1, queues: 100, computes: time.Hour, memory: small}
	single := &simTenant{name: "single", weight: 1, queues: 1, computes: time.Hour, memory: small}
	heavy := &simTenant{name: "heavy", weight: 2, queues: 3, computes: time.Hour, memory: small}
	for _, tenant := range []*simTenant{many, single, heavy} {
		tenant.fill(1000)
	}
	s := newSim(1, 16, 2, many, single, heavy)
	s.run(10 * time.Millisecond)
	running := make(map[string]int)
	for _, task := range s.hosts[0].gate {
		running[task.Queue.Tenant]++
	}
	if want := map[string]int{"many": 4, "single": 4, "heavy": 8}; !maps.Equal(running, want) {
		t.Errorf("%v run, want %v", running, want)
	}
}

// A tenant whose Redis hangs gets no more slots than half of them, however large its weight, and no free slot waits for its reserve.
func TestNoSlotWaitsForAReserveThatHangs(t *testing.T) {
	t.Parallel()
	const much = 10_000_000
	hangs := &simTenant{name: "hangs", weight: 1000, queues: 10, computes: time.Millisecond, memory: small}
	other := &simTenant{name: "other", weight: 1, queues: 1, computes: 5 * time.Millisecond, memory: small}
	hangs.fill(much)
	other.fill(much)
	s := newSim(1, 8, 2, hangs, other)
	s.hosts[0].sources["hangs"].hangs = true
	s.run(5 * time.Millisecond)
	if cost := s.during(500 * time.Millisecond)["other"]; cost < 0.48 {
		t.Errorf("another tenant got %.3f s of 0.5", cost)
	}
}

// Tasks that compute for hours are charged while they run: a tenant with such tasks gets no more slots beside short tasks of
// another tenant, once it has had its share.
func TestLongTasksAreChargedWhileTheyRun(t *testing.T) {
	t.Parallel()
	long := &simTenant{name: "long", weight: 1, queues: 1, computes: time.Hour, memory: small}
	other := &simTenant{name: "other", weight: 1, queues: 1, computes: 5 * time.Millisecond, memory: small}
	long.fill(2)
	other.fill(10_000_000)
	s := newSim(1, 8, 2, long, other)
	s.run(time.Second) // two long tasks have a quarter of the slots, and of the processors
	s.announce(long, 1000)
	s.run(200 * time.Millisecond)
	running := 0
	for _, task := range s.hosts[0].gate {
		if task.tenant == long {
			running++
		}
	}
	if running < 3 || running > 5 {
		t.Errorf("%d of 8 slots run long tasks, want about half", running)
	}
}

// Slots that are free together are spread over tenants also if one of them is some milliseconds behind the other.
func TestFreeSlotsDoNotAllGoToTheLast(t *testing.T) {
	t.Parallel()
	one := &simTenant{name: "one", weight: 1, queues: 1, computes: 3 * time.Millisecond, memory: small}
	other := &simTenant{name: "other", weight: 1, queues: 1, computes: time.Hour, memory: small}
	third := &simTenant{name: "third", weight: 1, queues: 1, computes: time.Hour, memory: small}
	one.fill(20)
	other.fill(0)
	third.fill(0)
	s := newSim(1, 15, 2, one, other, third)
	s.run(100 * time.Millisecond)
	one.computes = time.Hour
	for _, tenant := range s.tenants {
		s.announce(tenant, 100)
	}
	s.run(10 * time.Millisecond)
	running := make(map[string]int)
	for _, task := range s.hosts[0].gate {
		running[task.Queue.Tenant]++
	}
	if min(running["one"], running["other"], running["third"]) < 3 || len(s.hosts[0].gate) != 15 {
		t.Errorf("%v run, want about 5 of each", running)
	}
}

// A tenant gets its weight also if its reserves take as long as its tasks.
func TestSlowReserves(t *testing.T) {
	t.Parallel()
	one := &simTenant{name: "one", weight: 4, queues: 2, computes: 2 * time.Millisecond, memory: small}
	other := &simTenant{name: "other", weight: 1, queues: 1, computes: 20 * time.Millisecond, memory: small}
	one.fill(10_000_000)
	other.fill(10_000_000)
	s := newSim(1, 8, 2, one, other)
	s.reserve = 2500 * time.Microsecond
	s.run(time.Second)
	wantShares(t, s.during(3*time.Second), one, other)
}
