package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// maxInHand is how many rows a relay has in hand at a time. Each is a lock in the database's shared memory, and a row
	// that workers of nsj-queue-lib cannot take. A queue gets at most as many as it leaves free.
	maxInHand = 1000
	// claimRows is how many rows one statement claims, and lookRows how many due rows one look reads.
	claimRows, lookRows = 250, 2000
	// nsjInterval is how often the duties of nsj-queue-lib are done, and how often the relay looks for rows without a
	// notification. auditInterval is how often it checks what it has in hand, and what waits.
	nsjInterval   = time.Second
	auditInterval = 5 * time.Second
)

// nsjRows are the rows of a queue table of nsj-queue-lib. The session that holds the advisory lock of a row's ID owns
// the row. Locks of rows in hand belong to the session lock. Those that end with a statement are taken by db, because a
// session gets its own locks once more.
type nsjRows struct {
	statements
	table    *nsjTable
	lock, db *postgres.Conn
	claims   *claims

	due    []nsjDue // rows that can be claimed
	more   bool     // whether there are more of them
	given  bool     // rows were given back since release was called
	warned string   // the queues that nobody serves, as last logged

	looked, kept, named time.Time
	took                time.Duration // of the last look
}

func newNsjRows(table *nsjTable, lock, db *postgres.Conn, l *claims) *nsjRows {
	check := func(ctx context.Context, db *postgres.Conn) error {
		found := *table // others read its name meanwhile
		return found.check(ctx, db)
	}
	return &nsjRows{
		statements: statements{table: table.quoted, check: check, spare: lock}, table: table, lock: lock, db: db, claims: l,
	}
}

// upkeep does the duties, adopts what an earlier leader has claimed, and counts the rows that wait.
func (n *nsjRows) upkeep(ctx context.Context) error {
	if time.Since(n.kept) < nsjInterval {
		return nil
	}
	if err := n.duties(ctx); err != nil {
		return err
	}
	if err := n.adopt(ctx); err != nil {
		return err
	}
	n.kept = time.Now()
	if time.Since(n.named) < auditInterval {
		return nil
	}
	n.named = n.kept
	return n.count(ctx)
}

// count counts the rows that wait, and names the queues that no host serves.
func (n *nsjRows) count(ctx context.Context) error {
	names, waiting, err := n.names(ctx, n.claims.alone())
	if err != nil {
		return err
	}
	n.claims.setCounts(waiting, n.claims.damaged.count())
	var waits []string
	for _, row := range names {
		to := n.table.queueOf(row.name, row.dead)
		if q := n.claims.queues[to]; q == nil || !q.served {
			waits = append(waits, to)
		}
	}
	slices.Sort(waits)
	if text := strings.Join(slices.Compact(waits), " "); text != n.warned {
		if n.warned = text; text != "" {
			n.claims.relay.log.Info("rows wait for a worker of nsj-queue-lib, or for a host that serves their queue", "queues", text)
		}
	}
	return nil
}

// room returns how many rows of a queue can be claimed. A queue gets at most as many as it leaves free, so that there
// is always room for others. If that is few compared with what it has in hand, it waits until more is free.
func (n *nsjRows) room(name string) int {
	q := n.claims.queues[name]
	if q == nil || q.isFull() || n.claims.hasMost(name) {
		return 0
	}
	hand := q.hand + n.claims.parkedOf[name]
	room := (maxInHand - len(n.claims.hand) - hand) / 2
	if 4*room < hand {
		return 0
	}
	return max(room, 0)
}

// claim claims rows that are due, and publishes publications.
func (n *nsjRows) claim(ctx context.Context, woken bool) (changed int, wait time.Duration, err error) {
	n.more = n.more || woken
	if n.lookIn() <= 0 {
		if err := n.look(ctx); err != nil {
			return 0, 0, err
		}
	}
	publications, rows := n.next()
	if len(publications) > 0 {
		published, err := n.copyToSubscribers(ctx, publications)
		if err != nil {
			return 0, 0, err
		}
		n.claims.relay.config.Metrics.RelayRows(n.claims.relay.config.Name, "ended", published)
		n.more = true // the rows of subscribers
	}
	claimed, err := n.claimRows(ctx, rows)
	if err != nil {
		return 0, 0, err
	}
	n.claims.take(claimed...)
	wait = max(time.Millisecond, n.lookIn())
	if len(n.claims.hand) > 0 {
		wait = busyInterval
	}
	return len(claimed) + len(publications), wait, nil
}

// next takes from due what can be published and claimed now.
func (n *nsjRows) next() (publications, rows []nsjDue) {
	var left []nsjDue
	size, rooms := int64(0), make(map[string]int)
	for i, row := range n.due {
		if len(rows) == claimRows || size > batchBytes || len(publications) == claimRows {
			left = append(left, n.due[i:]...)
			break
		}
		if row.publication {
			if !n.claims.hasMost(row.queue) {
				publications = append(publications, row)
			}
			continue
		}
		if _, ok := rooms[row.queue]; !ok {
			rooms[row.queue] = n.room(row.queue)
		}
		if rooms[row.queue] == 0 || len(n.claims.hand)+len(rows) >= maxInHand {
			left = append(left, row)
			continue
		}
		rooms[row.queue]--
		rows, size = append(rows, row), size+row.size
	}
	n.due = left
	return publications, rows
}

// failPublication ends a publication that cannot be copied to its subscribers, as a worker would.
func (n *nsjRows) failPublication(ctx context.Context, row nsjDue, why error) error {
	claimed, err := n.claimThese(ctx, []nsjDue{row}, "")
	if ofRow(err) {
		return n.claims.parkRow(row.queue, row.id, err)
	}
	n.claims.take(claimed...)
	for _, c := range claimed {
		failure := queue.Failure{Reason: queue.ReasonError, Message: fmt.Sprintf("cannot be copied to its subscribers: %s", why)}
		if err := n.claims.refuseWith(ctx, c, failure); err != nil {
			return err
		}
	}
	return err
}

// lookIn returns how long the next look waits. When there may be more rows it waits lookShare times as long as the
// last look took, which sorts all rows that are due.
func (n *nsjRows) lookIn() time.Duration {
	wait := nsjInterval
	if n.more && len(n.due) == 0 {
		wait = min(nsjInterval, lookShare*n.took)
	}
	return wait - time.Since(n.looked)
}

// look reads which rows are due.
func (n *nsjRows) look(ctx context.Context) error {
	began := time.Now()
	var queues []string
	for _, name := range n.claims.served() {
		if n.room(name) > 0 {
			queues = append(queues, name)
		}
	}
	due, oldest, err := n.dueRows(ctx, queues, n.claims.alone())
	if err != nil {
		return err
	}
	n.looked, n.due, n.more = time.Now(), due, len(due) == lookRows
	n.took = n.looked.Sub(began)
	n.claims.setLag(oldest)
	return nil
}
