package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
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
	// raquelIdle is how long the source waits before it looks again when nothing is to be done, or raquelShare times as
	// long as the look took, as without an index, but at most a second.
	raquelIdle  = 100 * time.Millisecond
	raquelShare = 10
	// servedInterval is how often the source asks which queues hosts serve.
	servedInterval = time.Second
	// A queue may have as many claimed rows that have not started as hosts have ended within aheadFor, within these
	// bounds. The rest is for the workers of Raquel.
	aheadFor            = 500 * time.Millisecond
	minAhead, maxAhead  = 8, 2000
	maxPayload          = 64 << 20 // bytes
	aheadInterval       = 100 * time.Millisecond
	raquelOwner         = "quern:" // and the tenant: claimed_by
	raquelTask          = "raquel-"
	headerRaquelID      = "raquel-id"
	headerRaquelAttempt = "raquel-attempt"
)

// raquelTable is a table of Raquel as a source.
type raquelTable struct {
	Raquel
	quoted string // the table's name in SQL, with its schema; set by check
	report string // the name of its reports; set by check
}

func (r *raquelTable) name() string {
	return "raquel:" + strings.TrimPrefix(cmp.Or(r.quoted, r.Table), "public.")
}

func (r *raquelTable) check(ctx context.Context, db *postgres.Conn) (err error) {
	if r.quoted, err = checkRaquel(ctx, db, r.Table); err != nil {
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
		term: t, db: db, client: client, table: r, rows: raquelRows{table: r.quoted, owner: raquelOwner + client.Tenant()},
		idle: busyInterval, hand: make(map[string]*raquelJob), queues: make(map[string]*raquelQueue),
	}
	t.hears(true) // it looks by itself, so that nothing is needed in a table of others
	if err := l.adopt(ctx); err != nil {
		return err
	}
	return l.run(ctx)
}

// raquelTerm is one term as leader of a table of Raquel. All of it belongs to one goroutine, so no two steps of a row
// meet.
type raquelTerm struct {
	*term
	db     *postgres.Conn
	client *queue.Client
	table  *raquelTable
	rows   raquelRows

	hand   map[string]*raquelJob // the rows that are claimed, by the ID of their task
	unsent []*raquelJob          // those of hand whose task may not exist yet
	queues map[string]*raquelQueue
	idle   time.Duration  // how long the next look waits
	pause  periodic.Pause // after failures of Redis

	asked, renewed, counted, keepAt time.Time
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

func (q *raquelQueue) isFull() bool { return time.Now().Before(q.full) }

// run relays until ctx ends.
func (l *raquelTerm) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if l.since() > lease { // it was stopped, and another leader may have begun
			return errNotLeader
		}
		if time.Since(l.renewed) >= raquelRenew {
			if err := l.renew(ctx); err != nil {
				return err
			}
		}
		if left := l.pause.Left(time.Now()); left > 0 {
			periodic.Sleep(ctx, min(left, time.Second))
			continue
		}
		switch err := l.round(ctx); {
		case err == nil:
			l.pause.Succeeded()
			if !slices.ContainsFunc(slices.Collect(maps.Values(l.queues)), (*raquelQueue).isFull) {
				l.works()
			}
		case !queue.IsUnavailable(err):
			return err
		case ctx.Err() == nil:
			l.pause.Failed(time.Now())
			l.fail("rows wait", err)
		}
	}
	return ctx.Err()
}

// round takes one look at everything. Its errors are those of the database, and of Redis.
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
	wait := min(time.Second, max(l.idle, raquelShare*time.Since(began)))
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
			l.queues[name] = &raquelQueue{ahead: minAhead}
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

// renew renews the claims of all rows in hand, and finds those that are lost, and ends that were not reported.
func (l *raquelTerm) renew(ctx context.Context) error {
	began := time.Now()
	claimed, err := l.rows.renew(ctx, l.db, l.all())
	if err != nil {
		return err
	}
	l.renewed = began
	var ids []string
	for id, job := range l.hand {
		switch {
		case !claimed[job.id]: // a worker has it, or somebody changed it
			l.relay.log.Warn("a row was taken from the relay; cancelling its task", "task_id", id)
			l.drop(job)
			_ = l.client.Change(ctx, queue.ChangeCancel, id) // otherwise it runs to its end, which nobody reads
		case job.sent:
			ids = append(ids, id)
		}
	}
	for some := range slices.Chunk(ids, batchRows) {
		if err := l.end(ctx, some, true); err != nil {
			if queue.IsUnavailable(err) {
				return nil //nolint:nilerr // round finds the same
			}
			return err
		}
	}
	return nil
}

// keepUp marks expired rows, counts those that wait, and gives back those in hand that no host runs.
func (l *raquelTerm) keepUp(ctx context.Context) error {
	began := time.Now()
	var served, busy []string
	for name, q := range l.queues {
		if q.served {
			served = append(served, name)
		}
		if q.hand > 0 {
			busy = append(busy, name)
		}
	}
	if err := l.rows.expire(ctx, l.db, served); err != nil {
		return err
	}
	waiting, err := l.rows.waiting(ctx, l.db, served)
	if err != nil {
		return err
	}
	l.counts(waiting, 0)
	l.keepAt = time.Now().Add(max(raquelUpkeep, raquelShare*time.Since(began)))
	stats, err := manage.New(l.client).Stats(ctx, busy...)
	if err != nil {
		return err
	}
	idle := make(map[string]*raquelJob)
	for i, name := range busy {
		if q := l.queues[name]; stats[i].Paused || !q.served && time.Since(q.unserved) > raquelUpkeep {
			for id, job := range l.hand {
				if job.queue == name {
					idle[id] = job
				}
			}
		}
	}
	if len(idle) == 0 {
		return nil
	}
	tasks, _, _, err := l.client.Summaries(ctx, "", "", slices.Collect(maps.Keys(idle)), 0)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		if task.Status != queue.Pending && task.Status != queue.Scheduled {
			delete(idle, task.ID) // it runs, or its end is about to be read
		}
	}
	return l.giveBack(ctx, idle)
}

// giveBack leaves rows to others, as if they had never been claimed, and cancels their tasks.
func (l *raquelTerm) giveBack(ctx context.Context, jobs map[string]*raquelJob) error {
	if len(jobs) == 0 {
		return nil
	}
	if err := l.rows.unclaim(ctx, l.db, slices.Collect(maps.Values(jobs))); err != nil {
		return err
	}
	for id, job := range jobs {
		l.drop(job)
		if job.sent {
			_ = l.client.Change(ctx, queue.ChangeCancel, id) // if this fails, the row's next claim finds the task
		}
	}
	return nil
}

// adopt takes over the rows that an earlier leader has claimed.
func (l *raquelTerm) adopt(ctx context.Context) error {
	for after := ""; ; {
		jobs, err := l.rows.claimed(ctx, l.db, after)
		if err != nil || len(jobs) == 0 {
			l.renewed = time.Time{}
			return err
		}
		for _, job := range jobs {
			job.adopted = true
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
	defer func() { l.lags(lag) }()
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
		jobs, err := l.rows.claim(ctx, l.db, name, q.low, min(room, batchRows))
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
			q.low, q.looked, q.more = 0, now, false
		}
		switch {
		case !q.served || q.isFull():
		case q.more:
			names[name] = true
		default:
			look[name] = q.low
		}
	}
	ages, err := l.rows.due(ctx, l.db, look)
	for name, age := range ages {
		names[name], lag = true, max(lag, age)
	}
	if len(names) == 0 {
		l.lags(0)
	}
	return slices.Sorted(maps.Keys(names)), lag, err
}

// take notes a claimed row.
func (l *raquelTerm) take(job *raquelJob) {
	if l.queues[job.queue] == nil {
		l.queues[job.queue] = &raquelQueue{ahead: minAhead}
	}
	l.queues[job.queue].hand++
	l.hand[job.task()] = job
	l.unsent = append(l.unsent, job)
}

// drop forgets a row.
func (l *raquelTerm) drop(job *raquelJob) {
	delete(l.hand, job.task())
	if q := l.queues[job.queue]; q != nil {
		q.hand--
	}
}

// send enqueues the tasks of claimed rows.
func (l *raquelTerm) send(ctx context.Context) error {
	groups := make(map[string][]*raquelJob)
	for _, job := range l.unsent {
		if l.hand[job.task()] == job {
			groups[job.queue] = append(groups[job.queue], job)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if err := l.enqueue(ctx, name, groups[name], true); err != nil {
			return err
		}
	}
	l.unsent = nil
	return nil
}

// enqueue enqueues the tasks of claimed rows of a queue. first is false for those whose earlier task is removed.
func (l *raquelTerm) enqueue(ctx context.Context, name string, jobs []*raquelJob, first bool) error {
	var specs []queue.Spec
	var large []*raquelJob
	for _, job := range jobs {
		if job.size > maxPayload {
			large = append(large, job)
		} else {
			specs = append(specs, job.spec(l.table.report))
		}
	}
	for _, job := range large {
		err := fmt.Errorf("the payload has %d bytes: a task may have %s", job.size, units.FormatSize(maxPayload))
		if err := l.refuse(ctx, job, err); err != nil {
			return err
		}
		jobs = slices.DeleteFunc(slices.Clone(jobs), func(other *raquelJob) bool { return other == job })
	}
	receipts, err := l.client.Queue(name).EnqueueMany(ctx, specs)
	switch {
	case errors.Is(err, queue.ErrQueueFull), errors.Is(err, queue.ErrManyQueues), errors.Is(err, queue.ErrDamaged):
		l.queues[name].full = time.Now().Add(fullPause)
		l.fail("rows wait", err)
		for _, job := range jobs {
			job.sent = true // some may be
		}
		return l.giveBack(ctx, byTask(jobs))
	case errors.Is(err, queue.ErrInvalid) && len(jobs) > 1:
		for i := range jobs {
			if err := l.enqueue(ctx, name, jobs[i:i+1], first); err != nil {
				return err
			}
		}
		return nil
	case errors.Is(err, queue.ErrInvalid):
		return l.refuse(ctx, jobs[0], err)
	case err != nil:
		return err
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "relayed", len(jobs))
	var known []*raquelJob
	for i, receipt := range receipts {
		if jobs[i].sent = true; receipt.Existed {
			known = append(known, jobs[i])
		}
	}
	if len(known) == 0 {
		return nil
	}
	return l.resume(ctx, name, known, first)
}

// refuse ends a row that can be no task.
func (l *raquelTerm) refuse(ctx context.Context, job *raquelJob, why error) error {
	l.relay.log.Error("row refused", "id", job.id, "error", why)
	if err := l.rows.write(ctx, l.db, []jobEnd{{raquelJob: *job, kind: endFatal, failure: why.Error()}}); err != nil {
		return err
	}
	l.drop(job)
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "refused", 1)
	return nil
}

// resume continues rows whose task was enqueued before: by an earlier leader, or before the row was given back or lost.
func (l *raquelTerm) resume(ctx context.Context, name string, known []*raquelJob, first bool) error {
	jobs := byTask(known)
	ids := slices.Collect(maps.Keys(jobs))
	ended, again, err := finished(ctx, l.client, ids)
	if err != nil {
		return err
	}
	var ends []string
	for _, task := range ended {
		if task.Status == queue.Complete || jobs[task.ID].adopted {
			ends = append(ends, task.ID)
		} else { // the relay cancelled it when the row was lost or given back
			if err := l.client.Queue(task.Queue).Delete(ctx, task.ID); err != nil && !errors.Is(err, queue.ErrNoTask) {
				return err
			}
			again = append(again, task.ID)
		}
	}
	if len(again) > 0 && first {
		if err := listen.NewRelay(l.client).ForgetOnce(ctx, again, 0); err != nil {
			return err
		}
		anew := make([]*raquelJob, len(again))
		for i, id := range again {
			anew[i] = jobs[id]
			anew[i].sent = false
		}
		if err := l.enqueue(ctx, name, anew, false); err != nil {
			return err
		}
	}
	return l.end(ctx, ends, false)
}

// reports reads reports, and writes the ends that they tell of.
func (l *raquelTerm) reports(ctx context.Context, wait time.Duration) error {
	back := listen.NewRelay(l.client)
	reports, err := back.Reports(ctx, l.table.report, wait)
	if err != nil || len(reports) == 0 {
		return err
	}
	ids := make([]string, 0, len(reports))
	for _, report := range reports {
		if job := l.hand[report.Task]; job == nil || job.sent {
			ids = append(ids, report.Task)
		}
	}
	slices.Sort(ids)
	if err := l.end(ctx, slices.Compact(ids), false); err != nil {
		return err
	}
	return back.ForgetReports(ctx, l.table.report, reports)
}

// end writes the ends of tasks that have ended. Rows in hand whose task does not exist any more are given back: it is
// unknown how it ended.
func (l *raquelTerm) end(ctx context.Context, ids []string, missed bool) error {
	if len(ids) == 0 {
		return nil
	}
	tasks, gone, err := finished(ctx, l.client, ids)
	if err != nil {
		return err
	}
	now, err := l.client.Clock(ctx)
	if err != nil {
		return err
	}
	ends, written := make([]jobEnd, 0, len(tasks)), make([]string, 0, len(tasks))
	for _, task := range tasks {
		job, ok := parseJob(task.ID, task.Queue)
		if !ok {
			continue
		}
		ends = append(ends, newJobEnd(job, task, now))
		written = append(written, task.ID)
	}
	if err := l.rows.write(ctx, l.db, ends); err != nil {
		return err
	}
	for _, id := range written {
		if job := l.hand[id]; job != nil {
			l.drop(job)
			l.queues[job.queue].ended++
		}
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "ended", len(written))
	lost := make(map[string]*raquelJob)
	for _, id := range gone {
		if job := l.hand[id]; job != nil {
			job.sent = false // there is nothing to cancel
			lost[id] = job
		}
	}
	back := listen.NewRelay(l.client)
	if err := back.ForgetOnce(ctx, written, forgetAfter); err != nil {
		l.relay.log.Debug("cannot shorten the memory of IDs", "error", err)
	}
	if len(lost) > 0 {
		l.relay.log.Warn("tasks are gone before their end was read; their rows run again", "tasks", len(lost))
		if err := back.ForgetOnce(ctx, slices.Collect(maps.Keys(lost)), 0); err != nil {
			return err
		}
	}
	if missed && len(written) > 0 {
		l.relay.log.Debug("ends were found that were not reported", "tasks", len(written))
	}
	return l.giveBack(ctx, lost)
}

// all returns the rows in hand.
func (l *raquelTerm) all() []*raquelJob { return slices.Collect(maps.Values(l.hand)) }

// raquelJob is a claimed row.
type raquelJob struct {
	id, queue string
	attempts  int64
	due       int64         // scheduled_at
	age       time.Duration // how long it had been due when it was claimed
	payload   []byte        // nil if it is larger than maxPayload
	size      int64         // of the payload
	left      time.Duration // how long it may wait; 0 for no bound
	adopted   bool          // an earlier leader has claimed it
	sent      bool          // its task was enqueued
}

// task returns the ID of the row's task. There is one for each attempt.
func (j *raquelJob) task() string { return fmt.Sprintf("%s%s-%d", raquelTask, j.id, j.attempts) }

// parseJob reads the ID of a task.
func parseJob(task, name string) (raquelJob, bool) {
	j := raquelJob{queue: name}
	rest, ours := strings.CutPrefix(task, raquelTask)
	at := strings.LastIndexByte(rest, '-')
	if !ours || at < 0 {
		return j, false
	}
	j.id = rest[:at]
	_, err := fmt.Sscan(rest[at+1:], &j.attempts)
	return j, err == nil && j.task() == task
}

// spec returns the task of a row. It has one attempt: the row has the others.
func (j *raquelJob) spec(report string) queue.Spec {
	return queue.Spec{Parameters: j.payload, Options: queue.Options{
		ID: j.task(), Once: onceLife, Report: report,
		Retry:   queue.Retry{MaxAttempts: 1, MaxReschedules: queue.NoReschedules, MaxAge: j.left},
		Headers: map[string]string{headerRaquelID: j.id, headerRaquelAttempt: fmt.Sprint(j.attempts + 1)},
	}}
}

func byTask(jobs []*raquelJob) map[string]*raquelJob {
	all := make(map[string]*raquelJob, len(jobs))
	for _, job := range jobs {
		all[job.task()] = job
	}
	return all
}
