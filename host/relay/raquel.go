package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Raquel names a table of Raquel, the job queue for Python, whose rows become tasks. An attempt of a row is a task, and
// its end is written into the row as a worker of Raquel would. Workers of Raquel may share the table.
//
//	        claim                    enqueue, once          hosts
//	queued ──────▶ claimed by Quern ──────────────▶ task ─────────▶ ended
//	failed            │    ▲                                          │
//	                  └────┘ renew, so that workers leave it alone    │ report
//	success, failed, exhausted, queued, … ◀───────────────────────────┘
type Raquel struct {
	Table  string   `yaml:"table"`  // with its schema, unless the role's search path has it
	Queues []string `yaml:"queues"` // the queues to claim from (default: all that hosts serve)
}

const (
	// A claim is renewed after raquelRenew. Others may claim a row whose claim is older than raquelReclaim: this is the
	// default of Raquel's workers.
	raquelRenew   = 15 * time.Second
	raquelReclaim = time.Minute
	// raquelUpkeep is how often expired rows are marked, and rows given back that no host runs. It is longer if that takes
	// longer than a tenth of it.
	raquelUpkeep = 5 * time.Second
	// raquelIdle is how long the source waits before it looks again when nothing is to be done, or lookShare times as
	// long as the look took, as without an index, but at most a second.
	raquelIdle = 100 * time.Millisecond
	lookShare  = 10
	// servedInterval is how often the source asks which queues hosts serve.
	servedInterval = time.Second
	// A queue may have as many claimed rows that have not started as hosts have ended within aheadFor, within these
	// bounds. The rest is for the workers of Raquel.
	aheadFor            = 500 * time.Millisecond
	minAhead, maxAhead  = 8, 2000
	aheadInterval       = 100 * time.Millisecond
	anyDue              = math.MinInt64 // before every scheduled_at
	raquelOwner         = "quern:"      // and the tenant: claimed_by
	raquelTask          = "raquel-"
	headerRaquelID      = "raquel-id"
	headerRaquelAttempt = "raquel-attempt"
)

// raquelTable is a table of Raquel as a source.
type raquelTable struct {
	Raquel
	tableName
	report               string // the name of its reports; set by check
	errorType, traceType string // of the columns error and error_trace, in SQL; set by check
}

func (r *raquelTable) name() string {
	return "raquel:" + strings.TrimPrefix(cmp.Or(r.quoted, r.Table), "public.")
}

func (r *raquelTable) check(ctx context.Context, db *postgres.Conn) (err error) {
	if err := r.find(ctx, db); err != nil {
		return err
	}
	r.report, err = reportName(ctx, db, "raquel", r.quoted)
	return err
}

func (r *raquelTable) relay(ctx context.Context, t *term) error {
	db, err := t.relay.connect(ctx, ", raquel")
	if err != nil {
		return err
	}
	defer db.Close()
	client := t.relay.client("")
	l := &raquelTerm{
		term: t, client: client, table: r,
		rows: raquelRows{raquelTable: r, db: db, owner: raquelOwner + client.Tenant()},
		idle: busyInterval, hand: make(map[string]*raquelJob), queues: make(map[string]*raquelQueue),
	}
	t.setNotified(true) // it looks by itself, so that nothing is needed in a table of others
	if err := l.adopt(ctx); err != nil {
		return err
	}
	return l.run(ctx)
}

// raquelTerm is one term as leader of a table of Raquel. All of it belongs to one goroutine, so no two steps of a row
// meet.
type raquelTerm struct {
	*term
	client *queue.Client
	table  *raquelTable
	rows   raquelRows

	hand   map[string]*raquelJob // the rows that are claimed, by the ID of their task
	unsent []*raquelJob          // those of hand whose task may not exist yet
	queues map[string]*raquelQueue
	idle   time.Duration  // how long the next look waits
	pause  periodic.Pause // after failures of Redis

	asked, renewed, counted, keepAt time.Time
	damaged
}

// raquelQueue is what the term knows of a queue.
type raquelQueue struct {
	served   bool      // hosts serve it
	unserved time.Time // since when they do not; zero if they do
	full     time.Time // until when nothing is claimed, because the queue took no task
	hand     int       // rows in hand
	ended    int       // since the ahead was last set
	ahead    int       // how many rows may be claimed and not started
	// Rows that were due before low are not looked for until looked is lookAgain ago: they were claimed, and the index
	// leads past them until PostgreSQL has removed their entries.
	low    int64
	looked time.Time
	more   bool // the last claim was as large as it could be
}

func newRaquelQueue() *raquelQueue { return &raquelQueue{ahead: minAhead, low: anyDue} }

func (q *raquelQueue) isFull() bool { return time.Now().Before(q.full) }

// run relays until ctx ends.
func (l *raquelTerm) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if l.since() > lease { // it was stopped, and another leader may have begun
			return errNotLeader
		}
		var err error
		if time.Since(l.renewed) >= raquelRenew {
			err = l.renew(ctx)
		} else if left := l.pause.Left(time.Now()); left > 0 {
			periodic.Sleep(ctx, min(left, time.Second))
			continue
		} else {
			err = l.round(ctx)
		}
		_, away := errors.AsType[databaseError](err)
		switch {
		case away || errors.Is(err, errNotLeader):
			return err
		case err != nil && ctx.Err() == nil: // of Redis
			l.pause.Failed(time.Now())
			l.noteFailure(err)
		case err == nil:
			l.pause.Succeeded()
			if len(l.parked) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(l.queues)), (*raquelQueue).isFull) {
				l.forgetFailure()
			}
		}
	}
	return ctx.Err()
}

// round takes one look at everything.
func (l *raquelTerm) round(ctx context.Context) error {
	if err := l.serve(ctx); err != nil {
		return err
	}
	if time.Now().After(l.keepAt) {
		if err := l.keepUp(ctx); err != nil {
			return err
		}
	}
	if err := l.send(ctx); err != nil {
		return err
	}
	began := time.Now()
	claimed, err := l.claim(ctx)
	if err != nil {
		return err
	}
	wait := min(time.Second, max(l.idle, lookShare*time.Since(began)))
	switch {
	case claimed > 0:
		if err := l.send(ctx); err != nil {
			return err
		}
		wait, l.idle = time.Millisecond, busyInterval
	case len(l.hand) > 0:
		l.idle = busyInterval
	default:
		l.idle = min(raquelIdle, l.idle+busyInterval)
	}
	return l.reports(ctx, wait)
}

// serve asks which queues hosts serve.
func (l *raquelTerm) serve(ctx context.Context) error {
	now := time.Now()
	if now.Sub(l.asked) < servedInterval {
		return nil
	}
	listeners, err := l.client.Queues(ctx)
	if err != nil {
		return err
	}
	l.asked = now
	ours := func(name string) bool {
		return listeners[name] > 0 && (len(l.table.Queues) == 0 || slices.Contains(l.table.Queues, name))
	}
	for name := range listeners {
		if l.queues[name] == nil && ours(name) {
			l.queues[name] = newRaquelQueue()
		}
	}
	for name, q := range l.queues {
		if q.served = ours(name); q.served {
			q.unserved = time.Time{}
		} else if q.unserved.IsZero() {
			q.unserved = now
		}
		if q.hand == 0 && now.Sub(q.unserved) > raquelUpkeep && !q.served {
			delete(l.queues, name)
		}
	}
	return nil
}

// adopt takes over the rows that an earlier leader has claimed.
func (l *raquelTerm) adopt(ctx context.Context) error {
	for after := ""; ; {
		jobs, err := l.rows.claimed(ctx, after)
		if err != nil || len(jobs) == 0 {
			l.renewed = time.Time{}
			return err
		}
		for _, job := range jobs {
			job.adopted, job.unread = true, true
			l.take(job)
		}
		after = jobs[len(jobs)-1].id
	}
}

// claim claims rows that are due, and returns how many they were.
func (l *raquelTerm) claim(ctx context.Context) (claimed int, err error) {
	now := time.Now()
	if elapsed := now.Sub(l.counted); elapsed >= aheadInterval {
		for _, q := range l.queues {
			rate := float64(q.ended) / elapsed.Seconds()
			q.ended, q.ahead = 0, min(maxAhead, max(minAhead, int(rate*aheadFor.Seconds())))
		}
		l.counted = now
	}
	names, lag, err := l.due(ctx, now)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	defer func() { l.setLag(lag) }()
	stats, err := manage.New(l.client).Stats(ctx, names...)
	if err != nil {
		return 0, err
	}
	for i, name := range names {
		q, s := l.queues[name], &stats[i]
		room := q.ahead + int(s.Depth[queue.Started]) - q.hand
		if s.Limit > 0 {
			room = min(room, int(s.Limit-s.Depth[queue.Pending]))
		}
		if s.Err != nil || s.Paused || room <= 0 {
			continue
		}
		jobs, err := l.rows.claim(ctx, name, q.low, min(room, batchRows), l.alone(), l.parkRow)
		if err != nil {
			return claimed, err
		}
		for _, job := range jobs {
			l.take(job)
			q.low, lag = max(q.low, job.due), max(lag, job.age)
		}
		q.more = len(jobs) == min(room, batchRows)
		claimed += len(jobs)
	}
	return claimed, nil
}

// due returns the queues that may have rows to claim, and for how long the first of them is known to wait.
func (l *raquelTerm) due(ctx context.Context, now time.Time) (due []string, lag time.Duration, err error) {
	names, look := make(map[string]bool), make(map[string]int64)
	for name, q := range l.queues {
		if again := now.Sub(q.looked) >= lookAgain; again {
			q.low, q.looked, q.more = anyDue, now, false
		}
		switch {
		case !q.served || q.isFull():
		case q.more:
			names[name] = true
		default:
			look[name] = q.low
		}
	}
	ages, err := l.rows.due(ctx, look)
	for name, age := range ages {
		names[name], lag = true, max(lag, age)
	}
	if len(names) == 0 {
		l.setLag(0)
	}
	return slices.Sorted(maps.Keys(names)), lag, err
}

// take notes a claimed row whose task may not exist yet.
func (l *raquelTerm) take(job *raquelJob) {
	l.hold(job)
	l.unsent = append(l.unsent, job)
}

// hold notes a claimed row.
func (l *raquelTerm) hold(job *raquelJob) {
	if l.queues[job.queue] == nil {
		l.queues[job.queue] = newRaquelQueue()
	}
	l.queues[job.queue].hand++
	l.hand[job.task()] = job
}

// drop forgets a row.
func (l *raquelTerm) drop(job *raquelJob) {
	delete(l.hand, job.task())
	l.damaged.forget(job.id)
	if q := l.queues[job.queue]; q != nil && !job.parked {
		q.hand--
	}
}

// parkRow leaves a row alone for a while that no statement can change.
func (l *raquelTerm) parkRow(id string, why error) error {
	l.term.park(&l.damaged, id, why)
	return nil
}

// parkEnd keeps a row in hand whose end cannot be written. It is tried again with each renewal, and has no part in what
// may be claimed.
func (l *raquelTerm) parkEnd(e jobEnd, why error) error {
	if job := l.hand[e.task()]; job != nil && !job.parked {
		job.parked = true
		l.queues[job.queue].hand--
	}
	return l.parkRow(e.id, fmt.Errorf("its end %s cannot be written: %w", e.kind, why))
}
