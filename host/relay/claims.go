package relay

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// servedInterval is how often a source asks which queues hosts serve. Rows whose queue is not served, or is paused,
	// are given back after unservedFor.
	servedInterval = time.Second
	unservedFor    = 5 * time.Second
	// lookShare bounds how often a source looks for rows, which is slow without an index: it waits lookShare times as
	// long as the last look took, but at most maxLookWait.
	lookShare   = 10
	maxLookWait = time.Second
	// parkedBlock is how many parked rows in hand are tried again in a round, so that they hold up no others.
	parkedBlock = 20
)

// rows are the rows of a table of another library. IDs are those of rows as text. Methods call wrong with an error that
// the row itself causes, such as that of a trigger: see ofRow.
type rows interface {
	// claim claims rows that are due, and gives them to claims.take. It returns how many rows it changed, and how long the
	// next look may wait. woken reports whether new rows were announced.
	claim(ctx context.Context, woken bool) (changed int, wait time.Duration, err error)
	// upkeep does what is due in the table, beside the rows in hand.
	upkeep(ctx context.Context) error
	// read reads what is unread of rows. Those that are not ours any more stay unread.
	read(ctx context.Context, unread []*claim, wrong func(c *claim, why error) error) error
	// hold keeps rows claimed, and returns the IDs of the tasks whose rows are still ours.
	hold(ctx context.Context, inHand []*claim) (ours map[string]bool, err error)
	// finish writes how tasks ended into their rows. A repeat changes nothing.
	finish(ctx context.Context, ended []listen.Ended, wrong func(task string, why error) error) error
	// unclaim leaves rows to others, as if they had never been claimed. It calls wrong for those that a rule of the table
	// keeps claimed. claimAgain undoes it, and reports whether nobody was faster.
	unclaim(ctx context.Context, given []*claim, wrong func(c *claim, why error) error) error
	claimAgain(ctx context.Context, given *claim) (again bool, err error)
	// release is called for rows that are not in hand any more.
	release(ctx context.Context, dropped []*claim) error
}

// claim is a row in hand: it is claimed for a task.
type claim struct {
	row     string // the ID of the row
	queue   string
	spec    queue.Spec // its task; the parameters are there from when they are read until they are sent
	size    int64      // of the parameters
	adopted bool       // an earlier leader has claimed it
	unread  bool       // its parameters were not read yet
	sent    bool       // its task was enqueued
	parked  bool       // its end, or its way back, cannot be written

	failure     *queue.Failure // why it can be no task
	publication bool           // it is to be copied to subscribers, and is no task
	renewAt     time.Time      // when to renew its claim again, after that was refused
}

// claims are the rows in hand in one term as leader of a table of another library. All of it belongs to the goroutine
// of run, so no two steps of a row meet.
//
//	claim ──▶ unsent ── send ──▶ sent ── the end is reported ──▶ finished
//	              │                │
//	              └── give back ◀──┴── nobody serves the queue, it is full, or the task is gone
type claims struct {
	*term
	rows   rows
	client *queue.Client
	back   *listen.RelayClient
	report string        // the name of reports
	only   []string      // the queues to claim for; all if there are none
	every  time.Duration // how often rows are held

	hand   map[string]*claim // by the ID of their task
	unsent []*claim          // those of hand whose task may not exist yet
	// unsure are rows that were given back, but whose task may run: Redis refused the cancel, or did not answer. A cancel
	// that Redis has carried out is refused when it is repeated.
	unsure []*claim
	// lost are tasks that no row needs any more: stopLost cancels and deletes them.
	lost []string
	// stopped are tasks that the relay itself has asked to stop, and that run: until they have ended, and are deleted.
	stopped map[string]bool
	queues  map[string]*claimQueue
	pause   periodic.Pause // after failures of Redis
	damaged

	asked, held time.Time
}

func (c *claim) rowID() string { return c.row }

// claimQueue is what claims know of a queue.
type claimQueue struct {
	served   bool      // hosts serve it, and nobody has paused it
	unserved time.Time // since when not; zero if it is
	full     time.Time // until when nothing is claimed, because the queue took no task
	hand     int       // rows in hand, without parked ones: see damaged.parkedOf
	ended    int       // rows that ended
}

func (q *claimQueue) isFull() bool { return time.Now().Before(q.full) }

func newClaims(t *term, report string, every time.Duration, only []string) *claims {
	t.setReports(report)
	return &claims{
		term: t, client: t.relay.client(""), back: t.tenant(""), report: report, every: every, only: only,
		hand: make(map[string]*claim), stopped: make(map[string]bool), queues: make(map[string]*claimQueue),
		damaged: newDamaged(cmp.Or(t.relay.config.parkedFor, parkedFor)),
	}
}

// run relays until ctx ends. wake tells of new rows; it may be nil.
func (l *claims) run(ctx context.Context, wake <-chan struct{}) error {
	for woken := true; ctx.Err() == nil; {
		if l.since() > lease { // it was stopped, and another leader may have begun
			return errNotLeader
		}
		var wait time.Duration
		var err error
		if time.Since(l.held) >= l.every {
			err = l.holdAll(ctx) // also while Redis is away
		} else if wait = l.pause.Left(time.Now()); wait <= 0 {
			wait, err = l.round(ctx, woken)
			woken = woken && err != nil
		}
		switch _, away := errors.AsType[databaseError](err); {
		case away || errors.Is(err, errNotLeader):
			return err
		case err != nil && ctx.Err() == nil: // of Redis
			l.pause.Failed(time.Now())
			l.noteFailure(err)
			continue
		}
		woken = awaitWake(ctx, wake, min(wait, maxLookWait)) || woken
	}
	return ctx.Err()
}

// awaitWake waits, and reports whether wake told of something.
func awaitWake(ctx context.Context, wake <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(max(0, wait))
	defer timer.Stop()
	if wait <= 0 {
		select {
		case <-wake:
			return true
		default:
			return false
		}
	}
	select {
	case <-wake:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// round takes one look at everything, and returns how long the next may wait.
func (l *claims) round(ctx context.Context, woken bool) (wait time.Duration, err error) {
	if err := l.stopLost(ctx); err != nil {
		return 0, err
	}
	if err := l.giveBack(ctx, l.unsure); err != nil {
		return 0, err
	}
	if err := l.serve(ctx); err != nil {
		return 0, err
	}
	if err := l.rows.upkeep(ctx); err != nil {
		return 0, err
	}
	if err := l.retryParked(ctx); err != nil {
		return 0, err
	}
	if err := l.send(ctx); err != nil {
		return 0, err
	}
	changed, wait, err := l.rows.claim(ctx, woken)
	if err != nil {
		return 0, err
	}
	if err := l.send(ctx); err != nil {
		return 0, err
	}
	switch {
	case changed > 0:
		err, wait = l.reports(ctx, time.Millisecond), 0
	case len(l.hand) > 0:
		err, wait = l.reports(ctx, min(wait, maxLookWait)), 0
	default: // ends of tasks that an earlier leader has enqueued
		err = l.reports(ctx, -1)
	}
	if err != nil {
		return 0, err
	}
	l.setParked(l.damaged.why())
	l.pause.Succeeded()
	if !slices.ContainsFunc(slices.Collect(maps.Values(l.queues)), (*claimQueue).isFull) {
		l.forgetFailure()
	}
	return wait, nil
}

// serve asks which queues hosts serve, and gives rows back whose queue nobody serves any more.
func (l *claims) serve(ctx context.Context) error {
	now := time.Now()
	if now.Sub(l.asked) < servedInterval {
		return nil
	}
	listeners, err := l.client.Queues(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(listeners))
	stats, err := manage.New(l.client).Stats(ctx, names...)
	if err != nil {
		return err
	}
	l.asked = now
	served := make(map[string]bool)
	for i, name := range names {
		if listeners[name] > 0 && !stats[i].Paused && (len(l.only) == 0 || slices.Contains(l.only, name)) {
			served[name] = true
			l.queue(name)
		}
	}
	idle := make(map[string]bool)
	for name, q := range l.queues {
		switch q.served = served[name]; {
		case q.served:
			q.unserved = time.Time{}
		case q.unserved.IsZero():
			q.unserved = now
		case now.Sub(q.unserved) > unservedFor:
			if idle[name] = true; q.hand == 0 && !q.isFull() {
				delete(l.queues, name)
			}
		}
	}
	var given []*claim
	for _, c := range l.hand {
		if idle[c.queue] && !c.parked { // retryParked gives the others back, a block at a time
			given = append(given, c)
		}
	}
	return l.giveBack(ctx, given)
}

// queue returns what is known of a queue.
func (l *claims) queue(name string) *claimQueue {
	if l.queues[name] == nil {
		l.queues[name] = &claimQueue{}
	}
	return l.queues[name]
}

// served returns the queues that are served.
func (l *claims) served() []string {
	var names []string
	for name, q := range l.queues {
		if q.served {
			names = append(names, name)
		}
	}
	return names
}

// take notes claimed rows whose tasks may not exist yet.
func (l *claims) take(claimed ...*claim) {
	for _, c := range claimed {
		l.forget(c.row)
		l.hand[c.spec.ID] = c
		l.queue(c.queue).hand++
		l.unsent = append(l.unsent, c)
	}
}

// drop forgets rows.
func (l *claims) drop(ctx context.Context, dropped ...*claim) error {
	dropped = slices.DeleteFunc(slices.Clone(dropped), func(c *claim) bool { return l.hand[c.spec.ID] != c })
	for _, c := range dropped {
		delete(l.hand, c.spec.ID)
		l.forget(c.row)
		if !c.parked {
			l.queue(c.queue).hand--
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	return l.rows.release(ctx, dropped)
}

// parkRow leaves a row alone for a while that no statement can change.
func (l *claims) parkRow(queue, row string, why error) error {
	l.park(queue, row, nil, why)
	return nil
}

// dutyRow is a row that a duty is to change, and what it names.
type dutyRow struct{ id, name string }

func (d dutyRow) rowID() string { return d.id }

// doDuty does a duty on rows. Those that make it fail, also in its plain form, are parked: at most maxParked of a name,
// and about as many in all, so that other work need not wait long. It leaves out the others then.
func (l *claims) doDuty(
	ctx context.Context, s *statements, rows []dutyRow, do func(ids []string, plain bool) error,
) (parked int, err error) {
	leaveOut := func(row dutyRow) bool { return parked >= maxParked || l.hasMost(parkedByDuty+row.name) }
	err = each(ctx, s, rows, func(rows []dutyRow) error {
		rows = slices.DeleteFunc(slices.Clone(rows), leaveOut)
		if len(rows) == 0 {
			return nil
		}
		return do(idsOf(rows), false)
	}, orPlain(func(row dutyRow) error {
		return do([]string{row.id}, true)
	}, func(row dutyRow, why error) error {
		parked++
		return l.parkRow(parkedByDuty+row.name, row.id, why)
	}))
	return parked, err
}

// parkClaim keeps a row in hand that no statement can change. retryParked tries it again.
func (l *claims) parkClaim(c *claim, why error) error {
	if !c.parked {
		c.parked = true
		l.queue(c.queue).hand--
	}
	l.park(c.queue, c.row, c, why)
	return nil
}

// park parks a row, and tells of it.
func (l *claims) park(queue, row string, c *claim, why error) {
	if l.damaged.park(queue, row, c, why) {
		l.relay.config.Metrics.RelayFailed(l.relay.config.Name)
		l.relay.log.Warn("a row cannot be changed; trying again each minute", "row", row, "error", why)
		if l.parkedOf[queue] == maxParked {
			l.relay.log.Warn("too many rows cannot be changed; the others wait", "of", queue, "rows", maxParked)
		}
	}
	l.setParked(l.damaged.why())
}
