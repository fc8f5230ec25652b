package relay

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	// raquelUpkeep is how often expired rows are marked. It is longer if that takes longer than a tenth of it.
	raquelUpkeep = 5 * time.Second
	// The search for unknown claims runs each raquelUpkeep. It takes at most 1/searchShare of the time: after a slow
	// search the next one is later, by maxSearchWait at most. On a table without Raquel's own indexes this reads all rows
	// that are no success.
	searchShare   = 100
	maxSearchWait = time.Minute
	// maxAdopted is how many rows are in hand at most after some were adopted. The others wait for the next search.
	maxAdopted = 20_000
	// renewSkipped is how often claims of locked rows are renewed. Workers can take a row whose claim has become too old
	// as soon as it is not locked.
	renewSkipped = time.Second
	// raquelIdle is how long the source waits before it looks again when nothing is to be done.
	raquelIdle = 100 * time.Millisecond
	// A queue may have as many rows in hand that have not started as hosts have ended within aheadFor, within these
	// bounds. The rest is for the workers of Raquel.
	aheadFor           = 500 * time.Millisecond
	minAhead, maxAhead = 8, 2000
	aheadInterval      = 100 * time.Millisecond
	anyDue             = math.MinInt64 // before every scheduled_at
)

// raquelRows are the rows of a table of Raquel.
type raquelRows struct {
	statements
	*raquelTable
	db     *postgres.Conn
	owner  string // claimed_by of our rows
	claims *claims

	ahead           map[string]*raquelAhead // of the queues that are served
	idle            time.Duration           // how long the next look waits
	skipped         []*claim                // claims that were not renewed, because others have locked the rows
	renewed         time.Time               // when claims were last renewed
	counted, keepAt time.Time
	searchAt        time.Time // when to search for unknown claims
}

func newRaquelRows(table *raquelTable, db *postgres.Conn, l *claims) *raquelRows {
	check := func(ctx context.Context, db *postgres.Conn) error {
		found := *table // others read its name meanwhile
		return found.check(ctx, db)
	}
	return &raquelRows{
		statements: statements{table: table.quoted, check: check, spare: db}, raquelTable: table, db: db, claims: l,
		owner: raquelOwner + l.client.Tenant(), ahead: make(map[string]*raquelAhead), idle: busyInterval,
	}
}

// raquelAhead says how many rows of a queue may be claimed, and from where.
type raquelAhead struct {
	ahead int // how many rows may be claimed and not started
	ended int // claimQueue.ended when ahead was last set
	// Rows that were due before low are not looked for until looked is lookAgain ago: they were claimed, and the index
	// leads past them until PostgreSQL has removed their entries.
	low    int64
	looked time.Time
	more   bool // the last claim was as large as it could be
}

// adopt takes over rows that this relay has claimed, and does not know: an earlier leader has claimed them, or somebody
// has restored or changed them. It reports whether there were any.
func (r *raquelRows) adopt(ctx context.Context) (some bool, err error) {
	for began := time.Now(); ; some = true {
		room := maxAdopted - len(r.claims.hand)
		if room <= 0 {
			return some, nil
		}
		adopted, err := r.unknown(ctx, min(room, batchRows))
		if err != nil {
			return some, err
		}
		if len(adopted) == 0 {
			now := time.Now()
			r.searchAt = now.Add(min(searchShare*now.Sub(began), maxSearchWait))
			return some, nil
		}
		for _, c := range adopted {
			c.adopted, c.unread = true, true
		}
		r.claims.take(adopted...)
	}
}

// upkeep renews claims that were skipped, adopts rows, marks expired ones, and counts those that wait.
func (r *raquelRows) upkeep(ctx context.Context) error {
	began := time.Now()
	if len(r.skipped) > 0 && began.Sub(r.renewed) >= renewSkipped {
		if _, err := r.renew(ctx, r.skipped); err != nil {
			return err
		}
	}
	if began.Before(r.keepAt) {
		return nil
	}
	if !began.Before(r.searchAt) {
		adopted, err := r.adopt(ctx)
		if err == nil && adopted { // before their tasks are sent: a worker may take a row whose claim is old
			err = r.claims.holdAll(ctx)
		}
		if err != nil {
			return err
		}
	}
	served := r.claims.served()
	if err := r.expire(ctx, served); err != nil {
		return err
	}
	waiting, err := r.waiting(ctx, served)
	if err != nil {
		return err
	}
	r.claims.setCounts(waiting, r.claims.damaged.count())
	r.keepAt = time.Now().Add(max(raquelUpkeep, lookShare*time.Since(began)))
	return nil
}

func (r *raquelRows) claim(ctx context.Context, _ bool) (claimed int, wait time.Duration, err error) {
	began := time.Now()
	r.setAhead(began)
	names, lag, err := r.due(ctx, began)
	if err != nil {
		return 0, 0, err
	}
	if len(names) > 0 {
		claimed, lag, err = r.claimDue(ctx, names, lag)
	}
	r.claims.setLag(lag)
	if r.idle = min(raquelIdle, r.idle+busyInterval); claimed > 0 || len(r.claims.hand) > 0 {
		r.idle = busyInterval
	}
	return claimed, max(r.idle, lookShare*time.Since(began)), err
}

// setAhead sets how many rows of each queue may be claimed and not started.
func (r *raquelRows) setAhead(now time.Time) {
	for name := range r.ahead {
		if q := r.claims.queues[name]; q == nil || !q.served {
			delete(r.ahead, name)
		}
	}
	for name, q := range r.claims.queues {
		if q.served && r.ahead[name] == nil {
			r.ahead[name] = &raquelAhead{ahead: minAhead, low: anyDue, ended: q.ended}
		}
	}
	elapsed := now.Sub(r.counted)
	if elapsed < aheadInterval {
		return
	}
	r.counted = now
	for name, a := range r.ahead {
		q := r.claims.queues[name]
		rate := float64(q.ended-a.ended) / elapsed.Seconds()
		a.ended, a.ahead = q.ended, min(maxAhead, max(minAhead, int(rate*aheadFor.Seconds())))
	}
}

// due returns the queues that may have rows to claim, and for how long the first of them is known to wait.
func (r *raquelRows) due(ctx context.Context, now time.Time) (due []string, lag time.Duration, err error) {
	names, look := make(map[string]bool), make(map[string]int64)
	for name, a := range r.ahead {
		if now.Sub(a.looked) >= lookAgain {
			a.low, a.looked, a.more = anyDue, now, false
		}
		switch {
		case r.claims.queues[name].isFull() || r.claims.hasMost(name):
		case a.more:
			names[name] = true
		default:
			look[name] = a.low
		}
	}
	ages, err := r.firstDue(ctx, look)
	for name, age := range ages {
		names[name], lag = true, max(lag, age)
	}
	return slices.Sorted(maps.Keys(names)), lag, err
}

// claimDue claims rows of queues.
func (r *raquelRows) claimDue(
	ctx context.Context, names []string, age time.Duration,
) (claimed int, lag time.Duration, err error) {
	stats, err := manage.New(r.claims.client).Stats(ctx, names...)
	if err != nil {
		return 0, age, err
	}
	for i, name := range names {
		a, s := r.ahead[name], &stats[i]
		room := a.ahead + int(s.Depth[queue.Started]) - r.claims.queues[name].hand
		if s.Limit > 0 {
			room = min(room, int(s.Limit-s.Depth[queue.Pending]))
		}
		if room = min(room, batchRows); s.Err != nil || s.Paused || room <= 0 {
			continue
		}
		some, err := r.claimUpTo(ctx, room, name, a.low)
		if err != nil {
			return claimed, age, err
		}
		for _, row := range some {
			r.claims.take(row.claim)
			a.low, age = max(a.low, row.due), max(age, row.age)
		}
		a.more = len(some) == room
		claimed += len(some)
	}
	return claimed, age, nil
}
