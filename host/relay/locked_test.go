package relay

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// number is the ID of a row.
type number int

func (n number) rowID() string { return fmt.Sprint(int(n)) }

// A block with refused rows takes one check of the table, and one with locked rows waits once.
func TestEachOfBlock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.exec("CREATE TABLE things (id bigint PRIMARY KEY, status text, CHECK (id NOT IN (7, 30, 31) OR status <> 'done'))")
	w.exec("INSERT INTO things SELECT n, 'new' FROM generate_series(1, 64) n")
	checks, runs := 0, 0
	s := statements{table: "things", spare: w.db, check: func(context.Context, *postgres.Conn) error {
		checks++
		return nil
	}}
	do := func(status string) (wrong []number) {
		var all []number
		for n := range number(64) {
			all = append(all, n+1)
		}
		checks, runs = 0, 0
		err := each(t.Context(), &s, all, func(some []number) error {
			runs++
			return s.run(t.Context(), w.db, nil, "UPDATE things SET status = $2 WHERE id = ANY ($1::bigint[])", idsOf(some), status)
		}, func(n number, _ error) error {
			wrong = append(wrong, n)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return wrong
	}
	if wrong := do("done"); fmt.Sprint(wrong) != "[7 30 31]" || checks != 1 {
		t.Errorf("refused: %v after %d checks, want [7 30 31] after 1", wrong, checks)
	}
	if s.good {
		t.Error("the next block would not check the table")
	}
	other := w.server.Connect(t, w.url)
	if err := other.Script(t.Context(), "BEGIN; SELECT FROM things WHERE id BETWEEN 20 AND 60 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if wrong := do("again"); len(wrong) != 41 || wrong[0] != 20 || runs != 2 || checks != 1 {
		t.Errorf("locked: %v after %d statements and %d checks, want 20 to 60 after 2 and 1", wrong, runs, checks)
	}
	if got := w.value("SELECT count(*) FROM things WHERE status = 'again'"); got != "23" {
		t.Errorf("%s rows were changed, want 23", got)
	}
}

// A pending row that others have locked leaves no lock of the relay on the rows beside it.
func TestNsjClaimLeavesNoLock(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec("INSERT INTO fila (processo, payload) SELECT 'p', 'return x' FROM generate_series(1, 20)")
	unlock := n.lock("fila", n.value("SELECT id FROM fila ORDER BY id OFFSET 10 LIMIT 1"))
	n.host("p")
	n.nsjRelay(nil)
	n.eventually("19", func() string { return n.count("sucesso") })
	n.told(1, "cannot be changed")
	n.eventually("0", func() string {
		return n.value(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	})
	unlock()
}

// lockAll locks all rows of a table in a session of its own, until unlock.
func (w *world) lockAll(table string) (unlock func()) {
	w.t.Helper()
	db := w.server.Connect(w.t, w.url)
	if err := db.Script(w.t.Context(), "BEGIN; SELECT FROM "+table+" FOR UPDATE"); err != nil {
		w.t.Fatal(err)
	}
	return db.Close
}

// patience is how long a relay may take with a hundred locked rows. One wait for each would take a minute.
const patience = 25 * time.Second

// Many locked rows whose tasks have ended cost one wait for each block of them, and not one each.
func TestRaquelManyLocked(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.exec(`INSERT INTO jobs (queue, payload, status, claimed_at, claimed_by)
		SELECT 'q', '0', 'claimed', 1, $1 FROM generate_series(1, $2)`, "quern:"+r.client.Tenant(), maxParked)
	unlock := r.lockAll("jobs")
	r.host("q", "good")
	began := time.Now()
	r.relayRaquel(soon)
	r.told(maxParked, "its end cannot be written")
	good := r.value("INSERT INTO jobs (queue, payload) VALUES ('good', '0') RETURNING id")
	r.eventually("success 1", func() string { return r.state(good) })
	if took := time.Since(began); took > patience {
		t.Errorf("%s, want less than %s", took, patience)
	}
	unlock()
	r.eventually("0", func() string { return r.value("SELECT count(*) FROM jobs WHERE status <> 'success'") })
}

// So do locked rows that are to be claimed, or to become pending.
func TestNsjManyLocked(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec(`INSERT INTO fila (id, processo, payload, status, mensagem)
		SELECT n, 'p', 'return x', 'processando', 'Quern: nsj-fila-' || n || '-abc' FROM generate_series(1001, 1000 + $1::int) n`, maxParked)
	n.exec("INSERT INTO fila (processo, payload, status) SELECT 'q', 'return x', unnest('{pendente,agendada}'::text[]) FROM generate_series(1, $1)", maxParked)
	unlock := n.lockAll("fila")
	n.host("p", "q", "good")
	began := time.Now()
	n.nsjRelay(func(c *Config) { c.parkedFor = 5 * time.Second })
	n.told(3*maxParked, "cannot be changed")
	n.exec("INSERT INTO fila (processo, payload, chave_externa) VALUES ('good', 'return x', 'good')")
	n.eventually("sucesso", func() string { return n.states("good") })
	if took := time.Since(began); took > patience {
		t.Errorf("%s, want less than %s", took, patience)
	}
	unlock()
	n.eventually(fmt.Sprint(3*maxParked+1), func() string { return n.count("sucesso") })
}

// A claim that was not renewed because of a lock is renewed soon after the lock is gone, and not with the others.
func TestRaquelRenewsSkipped(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	id := r.value("INSERT INTO jobs (queue, status, claimed_at, claimed_by) VALUES ('q', 'claimed', 1, $1) RETURNING id",
		"quern:"+r.client.Tenant())
	unlock := r.lock("jobs", id)
	r.listener("q")
	r.relayRaquel(nil)
	r.eventually("1", func() string { return fmt.Sprint(r.depth("q", queue.Pending)) }) // after the first renewal
	unlock()
	r.eventually("t", func() string { return r.value("SELECT claimed_at > 1 FROM jobs WHERE id = $1", id) })
	if late := r.value(`SELECT claimed_at > extract(epoch FROM since) * 1000 + $2::int FROM jobs, quern.relays WHERE id = $1`,
		id, raquelRenew.Milliseconds()-1000); late != "f" {
		t.Errorf("it was renewed with the other rows, %s after the relay took the lead", raquelRenew)
	}
}

// givenBlocks records how many rows are given back at a time.
type givenBlocks struct {
	rows
	given []int
}

func (g *givenBlocks) unclaim(ctx context.Context, given []*claim, wrong func(*claim, error) error) error {
	if len(given) > 0 {
		g.given = append(g.given, len(given))
	}
	return g.rows.unclaim(ctx, given, wrong)
}

// Parked rows of a queue that nobody serves are given back a block at a time.
func TestParkedGivenBack(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	l := n.claims(n.client)
	blocks := &givenBlocks{rows: l.rows}
	l.rows = blocks
	n.exec(`INSERT INTO fila (id, processo, status, mensagem) SELECT n, 'p', 'processando', 'Quern: nsj-fila-' || n || '-abc'
		FROM generate_series(1001, 1000 + $1::int) n`, maxParked)
	for i := range maxParked {
		c := &claim{row: fmt.Sprint(1001 + i), queue: "p", sent: true}
		c.spec.ID = "nsj-fila-" + c.row + "-abc"
		l.hand[c.spec.ID] = c
		l.queue("p").hand++
		if err := l.parkClaim(c, context.Canceled); err != nil {
			t.Fatal(err)
		}
		row := l.parked[c.row]
		row.until = time.Time{}
		l.parked[c.row] = row
		if _, err := n.client.Queue("p").Enqueue(t.Context(), nil, queue.Options{ID: c.spec.ID}); err != nil {
			t.Fatal(err)
		}
	}
	l.queue("p").unserved = time.Now().Add(-time.Hour)
	for len(l.hand) > 0 && len(blocks.given) <= maxParked {
		l.asked = time.Time{}
		if err := l.serve(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.retryParked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := strings.Repeat(fmt.Sprint(parkedBlock, " "), maxParked/parkedBlock); fmt.Sprintln(blocks.given) != "["+strings.TrimSpace(want)+"]\n" {
		t.Errorf("blocks of %d, want %s", blocks.given, want)
	}
	if got := n.count("pendente"); got != fmt.Sprint(maxParked) {
		t.Errorf("%s rows were given back, want %d", got, maxParked)
	}
}

// Rows that a rule keeps from a duty stop it for no others, however many they are, and the log tells of them.
func TestDutyGoesOn(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec("INSERT INTO fila_subscriber (id, processo) VALUES ('s', 'bad'), ('t', 'good')")
	n.forbid("fila", "NEW.processo = 'bad'")
	n.exec("INSERT INTO fila (processo, status) SELECT 'bad', 'agendada' FROM generate_series(1, $1)", batchRows+1)
	n.exec("INSERT INTO fila (processo, pub_sub) SELECT 'bad', true FROM generate_series(1, $1)", maxParked+1)
	var log chan struct{}
	n.nsjRelay(func(c *Config) { log = watchLog(c, "the others wait") })
	n.eventually("true", func() string {
		relays, err := listen.NewFleet(n.client).Relays(t.Context())
		return fmt.Sprint(err == nil && len(relays) > 0 && relays[0].Refused > 2*maxParked)
	})
	n.exec("INSERT INTO fila (processo, status, chave_externa) VALUES ('good', 'agendada', 'retry')")
	n.exec("INSERT INTO fila (processo, pub_sub, chave_externa) VALUES ('good', true, 'publication')")
	n.eventually("pendente", func() string { return n.states("retry") })
	n.eventually("sucesso pendente", func() string { return n.states("publication") })
	<-log
	if got := n.value("SELECT count(*) FROM fila WHERE processo = 'bad' AND status NOT IN ('agendada', 'pendente')"); got != "0" {
		t.Errorf("%s refused rows were changed", got)
	}

	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.forbid("jobs", "NEW.queue = 'bad'")
	r.listener("bad")
	r.listener("good")
	const expired = "INSERT INTO jobs (queue, status, max_age, enqueued_at, scheduled_at) SELECT $1, 'queued', 1, 1, 1 FROM generate_series(1, $2) RETURNING id"
	r.exec(expired, "bad", batchRows+1)
	r.relayRaquel(nil)
	r.told(maxParked, "cannot be changed")
	id := r.value(expired, "good", 1)
	r.eventually("expired 0", func() string { return r.state(id) })
}
