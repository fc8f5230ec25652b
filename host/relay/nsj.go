package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Nsj names a queue table of nsj-queue-lib, whose rows become tasks. A row is one attempt and becomes one task, and its
// end is written as a worker of nsj-queue-lib would. Such workers may share the table.
//
//	          lock, claim                enqueue, once          hosts
//	pendente ────────────▶ processando ──────────────▶ task ─────────▶ ended
//	  ▲  ▲                                                               │ report
//	  │  └─ agendada ◀─ a retry ─┬─ falha, sucesso ◀─── write, unlock ───┘
//	  └─────────────── a dead row┘
type Nsj struct {
	Table string `yaml:"table"` // with its schema, unless the role's search path has it
	// Subscribers is the table of subscribers (default: Table with _subscriber behind it, if there is one).
	Subscribers string `yaml:"subscribers"`
	// MaxRetry is how many attempts a task has, as QUEUE_MAX_RETRY says to workers (default 100).
	MaxRetry int `yaml:"max_retry"`
	// RetryInterval is the delay of the first retry, as QUEUE_BASE_INTERVAL_RETRY (default 5m). The delay of the nth
	// retry is n times as long.
	RetryInterval time.Duration `yaml:"retry_interval"`
	// Queues maps what a row names, its subscriber or else its process, to the queue for its tasks. "*" stands for all
	// others (default: the queue has the same name). A row that names nothing counts as naming the table.
	Queues map[string]string `yaml:"queues"`
}

const (
	// maxInHand is how many rows a relay holds at a time. Each is a lock in the database's shared memory, and a row that
	// workers of nsj-queue-lib cannot take. A queue gets at most as many as it leaves free.
	maxInHand = 1000
	// claimRows is how many rows one statement claims, and lookRows how many due rows one look reads.
	claimRows, lookRows = 250, 2000
	// nsjInterval is how often the duties of nsj-queue-lib are done, and how often the relay looks for rows without a
	// notification. auditInterval is how often it checks what it holds. A row whose queue no host serves is given back
	// after unservedFor.
	nsjInterval   = time.Second
	auditInterval = 5 * time.Second
	unservedFor   = 10 * time.Second
	// deadSuffix follows the name of the queue for rows that have used up their attempts.
	deadSuffix = ".dead"
	anyName    = "*"
)

// nsjTable is a queue table of nsj-queue-lib as a source. check sets what is not exported.
type nsjTable struct {
	Nsj
	tableName          // the channel of notifications has the bare name too
	subscribers string // the quoted name of the table of subscribers; "" for none
	sequence    string // of the table's numbers, in SQL; "" for none
	report      string // the name of its reports
	message     int    // how many characters the column mensagem takes
}

func newNsjTable(n Nsj) *nsjTable {
	n.MaxRetry, n.RetryInterval = cmp.Or(n.MaxRetry, 100), cmp.Or(n.RetryInterval, 5*time.Minute)
	return &nsjTable{Nsj: n}
}

// validate returns an error that names the field that is wrong.
func (n *Nsj) validate() error {
	const mostRetries, longest = 1_000_000, 365 * 24 * time.Hour
	switch {
	case n.MaxRetry < 0 || n.MaxRetry > mostRetries:
		return fmt.Errorf("%w: max_retry %d: use 1 to %d, as QUEUE_MAX_RETRY of the workers", queue.ErrInvalid, n.MaxRetry, mostRetries)
	case n.RetryInterval < 0 || n.RetryInterval > longest:
		return fmt.Errorf("%w: retry_interval %s: use 1s to 8760h, such as 5m for 5 in QUEUE_BASE_INTERVAL_RETRY", queue.ErrInvalid, n.RetryInterval)
	}
	for name, to := range n.Queues {
		if err := queue.ValidTarget(to + deadSuffix); err != nil {
			return fmt.Errorf("queues: %q: %w", name, err)
		}
	}
	return nil
}

func (n *nsjTable) name() string {
	return "nsj:" + strings.TrimPrefix(cmp.Or(n.quoted, n.Table), "public.")
}

// queueOf returns the queue for rows that name this subscriber or process.
func (n *nsjTable) queueOf(name string, dead bool) string {
	to, ok := n.Queues[name]
	if !ok {
		to = cmp.Or(n.Queues[anyName], name)
	}
	if dead {
		to += deadSuffix
	}
	return to
}

func (n *nsjTable) relay(ctx context.Context, t *term) error {
	lock, err := t.relay.config.Direct.Connect(ctx, "quern relay, locks")
	if err != nil {
		return err
	}
	defer lock.Close() // gives the locks back
	own, err := lock.OwnSession(ctx)
	if err != nil {
		return err
	}
	if !own {
		return fmt.Errorf("%s is a pooler, and locks need a session of their own: give the URL without the pooler as direct",
			t.relay.config.Direct)
	}
	db, err := t.relay.connect(ctx, ", nsj")
	if err != nil {
		return err
	}
	defer db.Close()
	const session = "; SET default_transaction_isolation = 'read committed'"
	if err := errors.Join(lock.Script(ctx, keepAlive+session), db.Script(ctx, keepAlive+session)); err != nil {
		return err
	}
	l := &nsjTerm{
		term: t, nsjRows: nsjRows{n, lock, db}, client: t.relay.client(""),
		hand: make(map[string]*nsjTask), count: make(map[string]int), full: make(map[string]time.Time),
		unserved: make(map[string]time.Time),
	}
	wake := make(chan struct{}, 1)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return t.listen(ctx, quoteName(n.bare), func() { periodic.Notify(wake) }) })
	work.Go(func() error { return l.run(ctx, wake) })
	return work.Wait()
}

// nsjTerm is one term as leader of a queue table. All of it belongs to the goroutine of run, so no two steps of a row
// meet.
type nsjTerm struct {
	*term
	nsjRows
	client *queue.Client

	hand   map[string]*nsjTask // the rows that are claimed, by the ID of their task
	count  map[string]int      // how many of them each queue has
	unsent []*nsjTask          // those of hand whose task may not exist yet
	due    []nsjDue            // rows that can be claimed
	more   bool                // whether there are more of them
	// unsure are rows that are pending again, but whose task may run: the cancel was refused, which a repeated one is too,
	// or Redis did not answer.
	unsure []*nsjTask

	served   map[string]bool      // the queues that hosts serve and nobody has paused
	unserved map[string]time.Time // since when the queue of rows in hand is not served
	full     map[string]time.Time // until when nothing is claimed for a queue, because it took no task
	pause    periodic.Pause       // after failures of Redis
	warned   string               // the names of rows that nobody serves, as last logged

	looked, kept, audited time.Time
	took                  time.Duration // of the last look
	damaged
}

// run relays until ctx ends. wake tells of new rows.
func (l *nsjTerm) run(ctx context.Context, wake <-chan struct{}) error {
	woken := true
	for ctx.Err() == nil {
		wait, err := l.round(ctx, woken)
		switch {
		case err == nil:
			l.pause.Succeeded()
			if len(l.full) == 0 && len(l.parked) == 0 {
				l.forgetFailure()
			}
		case errors.As(err, new(databaseError)) || errors.Is(err, errNotLeader) || ctx.Err() != nil:
			return err
		default: // of Redis
			l.pause.Failed(time.Now())
			l.noteFailure(err)
			wait = max(0, l.pause.Left(time.Now()))
		}
		waking := wake
		if err != nil {
			waking = nil // a new row does not end the pause
		}
		woken = false
		if wait == 0 {
			select {
			case <-wake:
				woken = true
			default:
			}
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-waking:
			woken = true
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return ctx.Err()
}

// round takes one look at everything, and returns how long the next may wait. Its errors are those of the database, and
// of Redis.
func (l *nsjTerm) round(ctx context.Context, woken bool) (wait time.Duration, err error) {
	if err := l.giveBack(ctx, l.unsure); err != nil {
		return 0, err
	}
	if time.Since(l.kept) >= nsjInterval {
		if err := l.keep(ctx); err != nil {
			return 0, err
		}
		l.kept = time.Now()
	}
	if err := l.send(ctx); err != nil {
		return 0, err
	}
	claimed, err := l.claim(ctx, woken)
	if err != nil {
		return 0, err
	}
	if err := l.send(ctx); err != nil {
		return 0, err
	}
	switch {
	case claimed > 0:
		wait = time.Millisecond
	case len(l.hand) > 0:
		wait = busyInterval
	default:
		return max(time.Millisecond, min(nsjInterval, l.lookIn())), nil
	}
	return 0, l.reports(ctx, wait)
}

// keep does what is done each nsjInterval.
func (l *nsjTerm) keep(ctx context.Context) error {
	listeners, err := l.client.Queues(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(listeners))
	stats, err := manage.New(l.client).Stats(ctx, names...)
	if err != nil {
		return err
	}
	l.served = make(map[string]bool)
	for i, name := range names {
		if listeners[name] > 0 && !stats[i].Paused {
			l.served[name] = true
			delete(l.unserved, name)
		}
	}
	if err := l.duties(ctx, l.alone(), l.parkRow); err != nil {
		return err
	}
	adopted, err := l.adopt(ctx, l.inHand())
	if err != nil {
		return err
	}
	for _, task := range adopted {
		l.take(task)
	}
	if len(l.hand) == 0 { // ends of tasks that an earlier leader has enqueued
		if err := l.reports(ctx, -1); err != nil {
			return err
		}
	}
	if time.Since(l.audited) < auditInterval {
		return nil
	}
	l.audited = time.Now()
	if err := l.audit(ctx); err != nil {
		return err
	}
	return l.giveBackUnserved(ctx)
}

func (l *nsjTerm) inHand() []int64 {
	ids := make([]int64, 0, len(l.hand))
	for _, task := range l.hand {
		ids = append(ids, task.id)
	}
	return ids
}

// take notes a claimed row.
func (l *nsjTerm) take(task *nsjTask) {
	task.since = time.Now()
	l.hand[task.task] = task
	l.count[task.queue]++
	l.unsent = append(l.unsent, task)
}

// drop forgets rows, and gives their locks back.
func (l *nsjTerm) drop(ctx context.Context, tasks ...*nsjTask) error {
	var ids []int64
	for _, task := range tasks {
		if l.hand[task.task] == task {
			delete(l.hand, task.task)
			l.damaged.forget(strconv.FormatInt(task.id, 10))
			if !task.parked {
				l.uncount(task)
			}
			ids = append(ids, task.id)
		}
	}
	return l.unlock(ctx, ids)
}

// uncount takes a row out of what its queue has in hand.
func (l *nsjTerm) uncount(task *nsjTask) {
	if l.count[task.queue]--; l.count[task.queue] == 0 {
		delete(l.count, task.queue)
	}
}

// parkRow leaves a row alone for a while that no statement can change.
func (l *nsjTerm) parkRow(id int64, why error) error {
	l.term.park(&l.damaged, strconv.FormatInt(id, 10), why)
	return nil
}

// parkEnd keeps a row in hand whose end cannot be written. It is tried again with each audit, and has no part in what
// may be claimed.
func (l *nsjTerm) parkEnd(e nsjEnd, why error) error {
	if task := l.hand[e.task]; task != nil && !task.parked {
		task.parked = true
		l.uncount(task)
	}
	return l.parkRow(e.id, fmt.Errorf("its end %s cannot be written: %w", e.kind, why))
}

// room returns how many rows of a queue can be claimed. A queue gets at most as many as it leaves free, so that there
// is always room for others, and no few at a time.
func (l *nsjTerm) room(name string) int {
	if time.Now().Before(l.full[name]) {
		return 0
	}
	room := (maxInHand - len(l.hand) - l.count[name]) / 2
	if 4*room < l.count[name] {
		return 0
	}
	return max(room, 0)
}

// claim claims rows that are due, publishes publications, and returns how many rows they were.
func (l *nsjTerm) claim(ctx context.Context, woken bool) (claimed int, err error) {
	l.more = l.more || woken
	if l.lookIn() <= 0 {
		if err := l.look(ctx); err != nil {
			return 0, err
		}
	}
	var publications, rows []int64
	var left []nsjDue
	size, rooms := int64(0), make(map[string]int)
	for i, row := range l.due {
		if len(rows) == claimRows || size > batchBytes || len(publications) == claimRows {
			left = append(left, l.due[i:]...)
			break
		}
		if row.queue == "" {
			publications = append(publications, row.id)
			continue
		}
		if _, ok := rooms[row.queue]; !ok {
			rooms[row.queue] = l.room(row.queue)
		}
		if rooms[row.queue] == 0 || len(l.hand)+len(rows) >= maxInHand {
			left = append(left, row)
			continue
		}
		rooms[row.queue]--
		rows, size = append(rows, row.id), size+row.size
	}
	l.due = left
	if len(publications) > 0 {
		n, err := l.copyToSubscribers(ctx, publications, func(id int64, why error) error {
			return l.failPublication(ctx, id, why)
		})
		if err != nil {
			return 0, err
		}
		l.relay.config.Metrics.RelayRows(l.relay.config.Name, "ended", n)
		l.more = true // the rows of subscribers
	}
	if len(rows) == 0 {
		return len(publications), nil
	}
	tasks, err := l.nsjRows.claim(ctx, rows, l.parkRow)
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		l.take(task)
	}
	return len(tasks) + len(publications), nil
}

// failPublication ends a publication that cannot be copied to its subscribers, as a worker would.
func (l *nsjTerm) failPublication(ctx context.Context, id int64, why error) error {
	tasks, err := l.claimRows(ctx, []int64{id}, "")
	if ofRow(err) {
		return l.parkRow(id, err)
	}
	for _, task := range tasks {
		l.take(task)
		if err := l.refuse(ctx, task, nsjFailure, fmt.Errorf("cannot be copied to its subscribers: %w", why)); err != nil {
			return err
		}
	}
	return err
}

// lookIn returns how long the next look waits. When there may be more rows it waits lookShare times as long as the
// last look took, which sorts all rows that are due.
func (l *nsjTerm) lookIn() time.Duration {
	wait := nsjInterval
	if l.more && len(l.due) == 0 {
		wait = min(nsjInterval, lookShare*l.took)
	}
	return wait - time.Since(l.looked)
}

// look reads which rows are due.
func (l *nsjTerm) look(ctx context.Context) error {
	began := time.Now()
	for name, until := range l.full {
		if time.Now().After(until) {
			delete(l.full, name)
		}
	}
	var queues []string
	for name := range l.served {
		if l.room(name) > 0 {
			queues = append(queues, name)
		}
	}
	due, oldest, err := l.dueRows(ctx, queues, l.alone())
	if err != nil {
		return err
	}
	l.looked, l.due, l.more = time.Now(), due, len(due) == lookRows
	l.took = l.looked.Sub(began)
	l.setLag(oldest)
	return nil
}

// send enqueues the tasks of claimed rows.
func (l *nsjTerm) send(ctx context.Context) error {
	if l.since() > forgetAfter/2 { // it was stopped, and what another leader has sent may be forgotten
		return errNotLeader
	}
	groups := make(map[string][]*nsjTask)
	for _, task := range l.unsent {
		if l.hand[task.task] == task && !task.sent {
			groups[task.queue] = append(groups[task.queue], task)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		for _, tasks := range blocks(groups[name], func(task *nsjTask) int64 { return task.size }) {
			tasks, err := l.readPayloads(ctx, tasks)
			if err != nil {
				return err
			}
			if err := l.enqueue(ctx, name, tasks); err != nil {
				return err
			}
		}
	}
	l.unsent = nil
	return nil
}

// readPayloads reads the payloads of adopted rows. It drops rows that somebody has changed, refuses those whose payload
// is too large, and returns the others.
func (l *nsjTerm) readPayloads(ctx context.Context, tasks []*nsjTask) (ours []*nsjTask, err error) {
	var unread, changed []*nsjTask
	for _, task := range tasks {
		if task.unread {
			unread = append(unread, task)
		}
	}
	if len(unread) > 0 {
		err := l.payloads(ctx, unread, func(task *nsjTask, why error) error {
			return l.refuse(ctx, task, nsjFinal, fmt.Errorf("cannot be read: %w", why))
		})
		if err != nil {
			return nil, err
		}
	}
	for _, task := range tasks {
		switch {
		case task.refused:
		case task.unread:
			changed = append(changed, task)
		case task.size > maxPayload:
			if err := l.refuse(ctx, task, nsjFinal, tooLarge(task.size)); err != nil {
				return nil, err
			}
		default:
			ours = append(ours, task)
		}
	}
	return ours, l.drop(ctx, changed...)
}

// refuse ends a row that can be no task.
func (l *nsjTerm) refuse(ctx context.Context, task *nsjTask, kind string, why error) error {
	if !task.refused {
		task.refused = true
		l.relay.log.Error("row refused", "id", task.id, "error", why)
		l.relay.config.Metrics.RelayRows(l.relay.config.Name, "refused", 1)
		l.damaged.refuse()
	}
	parked := false
	err := l.write(ctx, []nsjEnd{{id: task.id, task: task.task, kind: kind, message: why.Error()}}, func(e nsjEnd, why error) error {
		parked = true
		return l.parkEnd(e, why)
	})
	if err != nil || parked {
		return err
	}
	return l.drop(ctx, task)
}

// enqueue enqueues the tasks of claimed rows of a queue. A task that exists was enqueued by an earlier leader, or by a
// call whose answer was lost.
func (l *nsjTerm) enqueue(ctx context.Context, name string, tasks []*nsjTask) error {
	specs := make([]queue.Spec, len(tasks))
	for i, task := range tasks {
		specs[i] = task.spec(l.table.report)
	}
	_, err := l.client.Queue(name).EnqueueMany(ctx, specs)
	switch {
	case errors.Is(err, queue.ErrQueueFull), errors.Is(err, queue.ErrManyQueues), errors.Is(err, queue.ErrDamaged):
		l.full[name] = time.Now().Add(fullPause)
		l.noteFailure(err)
		return l.giveBack(ctx, tasks)
	case errors.Is(err, queue.ErrInvalid) && len(tasks) > 1:
		for i := range tasks {
			if err := l.enqueue(ctx, name, tasks[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	case errors.Is(err, queue.ErrInvalid):
		return l.refuse(ctx, tasks[0], nsjFinal, err)
	case err != nil:
		return err
	}
	for _, task := range tasks {
		task.sent, task.payload = true, nil
	}
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "relayed", len(tasks))
	return nil
}

// reports reads reports, and writes the ends that they tell of.
func (l *nsjTerm) reports(ctx context.Context, wait time.Duration) error {
	relays := listen.NewRelay(l.client)
	reports, err := relays.Reports(ctx, l.table.report, wait)
	if err != nil || len(reports) == 0 {
		return err
	}
	ids := make([]string, len(reports))
	for i, report := range reports {
		ids[i] = report.Task
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	tasks, gone, err := relays.Ends(ctx, ids)
	if err != nil {
		return err
	}
	if err := l.end(ctx, tasks, gone); err != nil {
		return err
	}
	return relays.ForgetReports(ctx, l.table.report, reports)
}

// end writes the ends of tasks. gone are those that do not exist any more: it is unknown how they ended.
func (l *nsjTerm) end(ctx context.Context, tasks []listen.Ended, gone []string) error {
	ends := make([]nsjEnd, 0, len(tasks)+len(gone))
	var complete []*nsjEnd
	for _, task := range tasks {
		id, ok := l.table.rowOf(task.ID)
		if !ok {
			continue
		}
		ends = append(ends, nsjEnd{id: id, task: task.ID})
		if e := &ends[len(ends)-1]; task.Failure == nil {
			complete = append(complete, e)
		} else {
			e.failed(task.Failure)
		}
	}
	if err := l.results(ctx, complete); err != nil {
		return err
	}
	for _, task := range gone {
		if id, ok := l.table.rowOf(task); ok {
			ends = append(ends, nsjEnd{id: id, task: task, kind: nsjLost})
		}
	}
	if len(ends) == 0 {
		return nil
	}
	parked := make(map[string]bool)
	err := l.write(ctx, ends, func(e nsjEnd, why error) error {
		parked[e.task] = true
		return l.parkEnd(e, why)
	})
	if err != nil {
		return err
	}
	ends = slices.DeleteFunc(ends, func(e nsjEnd) bool { return parked[e.task] })
	l.relay.config.Metrics.RelayRows(l.relay.config.Name, "ended", len(ends))
	ids, done := make([]string, len(ends)), make([]*nsjTask, 0, len(ends))
	for i, end := range ends {
		ids[i] = end.task
		if task := l.hand[end.task]; task != nil {
			done = append(done, task)
		}
	}
	if err := listen.NewRelay(l.client).ForgetOnce(ctx, ids, forgetAfter); err != nil {
		l.relay.log.Debug("cannot shorten the memory of IDs", "error", err)
	}
	return l.drop(ctx, done...)
}

// results reads the results of tasks that are complete.
func (l *nsjTerm) results(ctx context.Context, complete []*nsjEnd) error {
	ids := make([]string, len(complete))
	for i, e := range complete {
		ids[i] = e.task
	}
	sizes, err := listen.NewFleet(l.client).ResultSizes(ctx, ids)
	if err != nil {
		return err
	}
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(resultReaders)
	for i, e := range complete {
		switch e.kind = nsjSuccess; {
		case sizes[i] == 0:
			e.message = nsjDone
		case sizes[i] > maxNsjResult:
			e.message = fmt.Sprintf("the result has %s: read it with `quern task wait %s`", units.FormatSize(sizes[i]), e.task)
		default:
			readers.Go(func() error {
				result, err := l.client.Result(ctx, e.task, math.MaxInt64)
				if e.message = valid(string(result)); errors.Is(err, queue.ErrNoTask) { // deleted meanwhile
					return nil
				}
				return err
			})
		}
	}
	return readers.Wait()
}

// audit finds rows in hand that somebody else has changed, and tasks whose end was not reported.
func (l *nsjTerm) audit(ctx context.Context) error {
	var known []*nsjTask
	for _, task := range l.hand {
		if task.parked && !task.sent { // its refusal could not be written
			l.unsent = append(l.unsent, task)
		}
		if task.sent && time.Since(task.since) > auditInterval {
			known = append(known, task)
		}
	}
	if len(known) == 0 {
		return nil
	}
	ours, err := l.claimed(ctx, known)
	if err != nil {
		return err
	}
	var ids []string
	var lost []*nsjTask
	for _, task := range known {
		if ours[task.id] {
			ids = append(ids, task.task)
		} else {
			lost = append(lost, task)
		}
	}
	ended, gone, err := listen.NewRelay(l.client).Ends(ctx, ids)
	if err != nil {
		return err
	}
	if err := l.end(ctx, ended, nil); err != nil {
		return err
	}
	for _, task := range lost {
		l.relay.log.Warn("a row was changed by somebody else; cancelling its task", "task_id", task.task)
		_ = l.client.Change(ctx, queue.ChangeCancel, task.task) // otherwise it runs to its end, which nobody reads
	}
	if err := l.drop(ctx, lost...); err != nil || len(gone) == 0 {
		return err
	}
	l.relay.log.Warn("tasks are gone before they ended; their rows run again", "tasks", len(gone))
	again := make([]*nsjTask, 0, len(gone))
	for _, id := range gone {
		again = append(again, l.hand[id])
	}
	if err := l.unclaim(ctx, again); err != nil {
		return err
	}
	return l.drop(ctx, again...)
}

// giveBackUnserved gives rows back whose queue no host serves any more, and names rows that no host serves.
func (l *nsjTerm) giveBackUnserved(ctx context.Context) error {
	var idle []*nsjTask
	for _, task := range l.hand {
		if l.served[task.queue] {
			continue
		}
		if l.unserved[task.queue].IsZero() {
			l.unserved[task.queue] = time.Now()
		}
		if time.Since(l.unserved[task.queue]) > unservedFor {
			idle = append(idle, task)
		}
	}
	if err := l.giveBack(ctx, idle); err != nil {
		return err
	}
	names, waiting, err := l.names(ctx)
	if err != nil {
		return err
	}
	l.setCounts(waiting, l.damaged.count())
	var waits []string
	for _, row := range names {
		if to := l.table.queueOf(row.name, row.dead); !l.served[to] {
			waits = append(waits, to)
		}
	}
	slices.Sort(waits)
	if text := strings.Join(slices.Compact(waits), " "); text != l.warned {
		if l.warned = text; text != "" {
			l.relay.log.Info("rows wait for a worker of nsj-queue-lib, or for a host that serves their queue", "queues", text)
		}
	}
	return nil
}

// giveBack leaves rows to others, as if they had never been claimed. A row whose task runs already stays in hand.
func (l *nsjTerm) giveBack(ctx context.Context, rows []*nsjTask) error {
	if len(rows) == 0 {
		return nil
	}
	byID, asked := make(map[string]*nsjTask, len(rows)), rows
	for _, row := range rows {
		byID[row.task] = row
	}
	tasks, _, _, err := l.client.Summaries(ctx, "", "", slices.Collect(maps.Keys(byID)), 0)
	if err != nil {
		return err
	}
	var waiting []*queue.Task
	for _, task := range tasks {
		unsure := slices.Contains(l.unsure, byID[task.ID])
		switch {
		case task.Status == queue.Pending || task.Status == queue.Scheduled:
			waiting = append(waiting, task)
		case unsure && task.Reason == queue.ReasonCancelled: // by the earlier attempt to give the row back
		case unsure:
			if err := l.claimAgain(ctx, byID[task.ID]); err != nil {
				return err
			}
			delete(byID, task.ID)
		default:
			delete(byID, task.ID)
		}
	}
	rows = slices.Collect(maps.Values(byID))
	l.unsure = slices.DeleteFunc(slices.Clone(l.unsure), func(row *nsjTask) bool { return slices.Contains(asked, row) })
	// The locks are still held. If this process ends here, the task may run although its row runs again.
	if err := l.unclaim(ctx, rows); err != nil {
		return err
	}
	var away error
	for _, change := range l.client.ChangeAll(ctx, queue.ChangeCancel, waiting) {
		if id := change.Task.ID; change.Err != nil && !errors.Is(change.Err, queue.ErrNoTask) {
			l.unsure = append(l.unsure, byID[id])
			delete(byID, id)
			if !isChanged(change.Err) {
				away = change.Err
			}
		}
	}
	if err := errors.Join(l.drop(ctx, slices.Collect(maps.Values(byID))...), l.notify(ctx), away); err != nil {
		return err
	}
	return l.giveBack(ctx, l.unsure)
}

// nsjTask is a claimed row.
type nsjTask struct {
	id       int64
	task     string // the ID of its task
	queue    string
	priority int
	payload  []byte // nil if it is larger than maxPayload, unread or sent
	size     int64  // of the payload
	unread   bool   // its payload was not read yet
	headers  map[string]string
	since    time.Time
	sent     bool // its task was enqueued
	refused  bool // it can be no task
	parked   bool // its end cannot be written
}

// spec returns the task of a row. It has one attempt: a retry is another row.
func (t *nsjTask) spec(report string) queue.Spec {
	return queue.Spec{Parameters: t.payload, Options: queue.Options{
		ID: t.task, Once: onceLife, Report: report, Headers: t.headers, Priority: &t.priority,
		Retry: queue.Retry{MaxAttempts: 1},
	}}
}

// taskPrefix is what the IDs of a table's tasks begin with. The number of the row and a word that is different for each
// claim follow, so a row that is put back by hand becomes another task.
func (n *nsjTable) taskPrefix() string {
	const most = 64
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, n.bare)
	return "nsj-" + name[:min(len(name), most)] + "-"
}

// claimWord returns a word for the IDs of the tasks of one claim.
func claimWord() string { return uuid.NewString()[:8] }

// rowOf returns the row of a task.
func (n *nsjTable) rowOf(task string) (id int64, ok bool) {
	rest, ours := strings.CutPrefix(task, n.taskPrefix())
	at := strings.LastIndexByte(rest, '-') // the number may be negative
	id, err := strconv.ParseInt(rest[:max(at, 0)], 10, 64)
	return id, ours && err == nil
}
