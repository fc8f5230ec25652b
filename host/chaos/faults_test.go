package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// kind is what a fault does.
type kind string

const (
	killed      kind = "host killed"
	stopped     kind = "host stopped"
	restarted   kind = "host restarted"
	cut         kind = "connections cut"
	cutReplies  kind = "replies cut"
	slowed      kind = "connections slowed"
	halfClosed  kind = "connections half-closed"
	unheard     kind = "connections without an answer"
	redisEnded  kind = "redis restarted"
	redisKilled kind = "redis killed"
	redisStops  kind = "redis stopped"
	redisFails  kind = "redis failed over"
	clockSet    kind = "redis's clock set"

	databaseEnded  kind = "database restarted"
	databaseKilled kind = "database killed"
)

// Victims beside the single hosts, and what the hosts are called together.
const (
	hostVictims     = "hosts"
	redisVictim     = "redis"
	producersVictim = "producers"
	databaseVictim  = "database" // of a fleet that has one
)

// allVictims are the sorts of victims that QUERN_CHAOS_FAULTS chooses from.
var allVictims = []string{hostVictims, producersVictim, redisVictim}

var (
	networkFaults = []kind{cut, cutReplies, slowed, halfClosed}
	hostFaults    = append([]kind{killed, stopped, restarted}, networkFaults...)
	redisFaults   = []kind{redisEnded, redisKilled, redisFails}

	databaseFaults = []kind{databaseKilled, databaseEnded}
)

// fault is one that is planned.
type fault struct {
	kind   kind
	victim string
	at     time.Duration // since the beginning
	length time.Duration
	toxics []toxic
	ahead  time.Duration // by how much Redis's clock is then ahead of the right time
}

func (f fault) String() string {
	text := fmt.Sprintf("%6.2fs %-9s %s for %s", f.at.Seconds(), f.victim, f.kind, f.length.Round(time.Millisecond))
	if f.kind == clockSet {
		text += fmt.Sprintf(" to %s ahead", f.ahead)
	}
	for _, toxic := range f.toxics {
		text += fmt.Sprintf(", %s %s %v", toxic.Stream, toxic.Type, toxic.Attributes)
	}
	return text
}

// planner draws a plan from a seed.
type planner struct {
	random *rand.Rand
	lease  time.Duration
	length time.Duration // no fault begins later, unless its kind had none
}

// newPlan plans for hosts, producers, Redis and the database, or some of them, each from a source of its own: who is
// spared changes nothing for the others.
func newPlan(seed uint64, s settings, sorts []string, length, rest, redisRest time.Duration) (plan []fault) {
	var hosts []string
	for i := range s.hosts {
		hosts = append(hosts, hostName(i))
	}
	ofRedis := redisFaults
	if s.setClock != nil {
		ofRedis = slices.Concat(redisFaults, []kind{clockSet, clockSet})
	}
	for stream, part := range []struct {
		sort    string
		kinds   []kind
		victims []string
		rest    time.Duration
	}{
		{hostVictims, hostFaults, hosts, rest},
		{producersVictim, networkFaults, []string{producersVictim}, rest},
		{redisVictim, ofRedis, []string{redisVictim}, redisRest},
		{databaseVictim, databaseFaults, []string{databaseVictim}, redisRest},
	} {
		if !slices.Contains(sorts, part.sort) {
			continue
		}
		p := planner{newRandom(seed, uint64(stream)), s.lease, length}
		plan = append(plan, p.deal(part.kinds, part.victims, part.rest)...)
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return plan
}

// deal plans faults for victims of one sort, who suffer one at a time each, with at most so long a
// rest between. Every kind has its turn.
func (p *planner) deal(kinds []kind, victims []string, rest time.Duration) (faults []fault) {
	free := make([]time.Duration, len(victims))
	var deck []kind
	for dealt := 0; ; dealt++ {
		next := slices.Index(free, slices.Min(free))
		at := free[next] + between(p.random, rest/5, rest)
		if at >= p.length && dealt >= len(kinds) {
			return faults
		}
		if len(deck) == 0 {
			deck = slices.Clone(kinds)
			p.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := fault{kind: deck[0], victim: victims[next], at: at}
		deck = deck[1:]
		f.length, f.toxics = p.details(f.kind)
		if f.kind == clockSet {
			f.ahead = []time.Duration{-time.Hour, -time.Minute, -3 * time.Second, 3 * time.Second, time.Minute, time.Hour}[p.random.IntN(6)]
		}
		faults = append(faults, f)
		free[next] = at + f.length
	}
}

// details are the length of a fault and what the proxy does.
func (p *planner) details(k kind) (time.Duration, []toxic) {
	long := func(least, most time.Duration) time.Duration { return between(p.random, least, most) }
	number := func(least, most int64) int64 { return least + p.random.Int64N(most-least+1) }
	streams := []string{"upstream", "downstream"}
	both := func(kind string, attributes map[string]int64) (toxics []toxic) {
		for _, stream := range streams {
			toxics = append(toxics, toxic{kind, stream, attributes})
		}
		return toxics
	}
	switch k {
	case killed: // some are back before their lease is over
		return long(50*time.Millisecond, 2*p.lease), nil
	case stopped:
		return long(p.lease+500*time.Millisecond, p.lease+3*time.Second), nil
	case restarted:
		return long(0, time.Second), nil
	case cut:
		return long(100*time.Millisecond, 2*time.Second), both("reset_peer", map[string]int64{"timeout": 0})
	case cutReplies: // in the middle of one, some replies after the handshake: Redis does what nobody hears of
		return long(500*time.Millisecond, 2*time.Second), []toxic{{"limit_data", "downstream", map[string]int64{"bytes": number(300, 800)}}}
	case slowed:
		toxics := both("latency", map[string]int64{"latency": number(20, 300), "jitter": number(0, 200)})
		return long(time.Second, 4*time.Second), append(toxics, toxic{"bandwidth", "downstream", map[string]int64{"rate": number(20, 200)}})
	case halfClosed: // one direction is dead, and nobody is told
		stream := streams[p.random.IntN(2)]
		return long(time.Second, p.lease+3*time.Second), []toxic{{"timeout", stream, map[string]int64{"timeout": 0}}}
	default: // Redis, the database
		return long(100*time.Millisecond, 1500*time.Millisecond), nil
	}
}

// suffer executes a plan, one goroutine for each victim, until all is over and healed.
func (f *fleet) suffer(plan []fault, producers *proxy) {
	f.t.Helper()
	begun := time.Now()
	lanes := make(map[string][]fault)
	for _, one := range plan {
		lanes[one.victim] = append(lanes[one.victim], one)
	}
	lane := func(victim string, inject func(context.Context, fault) error) {
		for _, one := range lanes[victim] {
			if !sleep(f.ctx, time.Until(begun.Add(one.at))) {
				return
			}
			began := time.Now()
			if err := inject(f.ctx, one); err != nil {
				f.t.Errorf("%s: %s: %v", one.victim, one.kind, err)
			}
			f.journal.happened(happened{one, began, time.Now()})
		}
	}
	var group sync.WaitGroup
	for _, h := range f.hosts {
		group.Go(func() { lane(h.name, h.suffer) })
	}
	group.Go(func() {
		lane(producersVictim, func(ctx context.Context, one fault) error { return producers.suffer(ctx, one) })
	})
	group.Go(func() {
		lane(databaseVictim, func(ctx context.Context, one fault) error { return f.database.suffer(ctx, f.t, one) })
	})
	lane(redisVictim, f.sufferRedis) // here, because it may end the test
	group.Wait()
}

// suffer does to a host what a fault says, and heals it.
func (h *host) suffer(ctx context.Context, one fault) error {
	if one.kind == killed || one.kind == restarted {
		h.fate.Lock()
		defer h.fate.Unlock()
	}
	switch one.kind {
	case killed:
		h.kill()
	case stopped:
		h.process().signal(syscall.SIGSTOP)
		sleep(ctx, one.length)
		h.process().signal(syscall.SIGCONT)
		return nil
	case restarted:
		if err := h.terminate(); err != nil {
			return err
		}
	default:
		return h.proxy.suffer(ctx, one)
	}
	if !sleep(ctx, one.length) {
		return nil
	}
	return h.start()
}

// suffer breaks what goes through a proxy, and heals it.
func (p *proxy) suffer(ctx context.Context, one fault) error {
	if err := p.breaks(one.toxics); err != nil {
		return err
	}
	sleep(ctx, one.length)
	return p.heal()
}

// sufferRedis stops the server, has a replica take its place, or ends it and starts it again. What it has answered is on
// its disk.
func (f *fleet) sufferRedis(ctx context.Context, one fault) error {
	f.t.Helper()
	if one.kind == redisStops {
		f.redis.Pause()
		sleep(ctx, one.length)
		f.redis.Resume()
		return nil
	}
	if one.kind == clockSet {
		f.setClock(one.ahead)
		return nil
	}
	if one.kind == redisFails {
		return f.failOver(ctx, (*queuetest.Server).Kill, one.length)
	}
	if one.kind == redisEnded {
		if err := syscall.Kill(f.redis.PID(), syscall.SIGTERM); err != nil {
			return err
		}
		if !until(ctx, func() bool { return !listens(f.redis.Addr()) }) {
			return fmt.Errorf("it did not end: %w", ctx.Err())
		}
	}
	f.redis.Kill()
	if sleep(ctx, one.length) {
		f.redis.Restart(f.t)
	}
	return nil
}

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
