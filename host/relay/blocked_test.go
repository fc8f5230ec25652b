package relay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/sdk/queue/periodic"
)

// refusing makes a trigger that refuses changes of rows whose column names an error.
const refusing = `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF new.COLUMN = 'missing' THEN PERFORM 1 FROM missing_table; END IF;
		IF new.COLUMN ~ '^SQLSTATE' THEN RAISE EXCEPTION 'no' USING ERRCODE = substr(new.COLUMN, 10); END IF;
		RETURN new; END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON TABLE FOR EACH ROW EXECUTE FUNCTION refuse()`

// refusedBy are values of the column.
var refusedBy = []string{"missing", "SQLSTATE 42501", "SQLSTATE ZZ001", "SQLSTATE 55000", "SQLSTATE 0A000"}

// A trigger stops the row that it refuses, and no other, with whatever SQLSTATE.
func TestRaquelTriggerRefuses(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	if err := r.db.Script(t.Context(), strings.NewReplacer("COLUMN", "error_trace", "TABLE", "jobs").Replace(refusing)); err != nil {
		t.Fatal(err)
	}
	var refused, good []string
	for _, value := range refusedBy {
		refused = append(refused, r.insert("0", "error_trace='"+value+"'"))
		good = append(good, r.insert("0"))
	}
	r.host("q")
	r.relayRaquel(nil)
	for _, id := range good {
		r.eventually("success 1", func() string { return r.state(id) })
	}
	r.told(int64(len(refusedBy)), "cannot be changed")
	for _, id := range refused {
		if got := r.state(id); got != "queued 0" {
			t.Errorf("%s, want queued 0", got)
		}
	}
}

func TestNsjTriggerRefuses(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	if err := n.db.Script(t.Context(), strings.NewReplacer("COLUMN", "origem", "TABLE", "fila").Replace(refusing)); err != nil {
		t.Fatal(err)
	}
	for i, value := range refusedBy {
		n.exec("INSERT INTO fila (processo, payload, chave_externa, origem) VALUES ('p', 'return x', 'bad', $1), ('p', 'return x', $2, '')",
			value, fmt.Sprint("good", i))
	}
	n.host("p")
	n.nsjRelay(nil)
	for i := range refusedBy {
		n.eventually("sucesso", func() string { return n.states(fmt.Sprint("good", i)) })
	}
	n.told(int64(len(refusedBy)), "cannot be changed")
	if got := n.states("bad"); got != strings.TrimSpace(strings.Repeat("pendente ", len(refusedBy))) {
		t.Error(got)
	}
}

// watchedLog notifies of entries with a text.
type watchedLog struct {
	text string
	came chan struct{}
}

func (w watchedLog) Write(text []byte) (int, error) {
	if strings.Contains(string(text), w.text) {
		periodic.Notify(w.came)
	}
	return len(text), nil
}

// watchLog has a relay log to a watchedLog.
func watchLog(c *Config, text string) (came chan struct{}) {
	came = make(chan struct{}, 1)
	c.Logger = hclog.New(&hclog.LoggerOptions{Output: watchedLog{text, came}})
	return came
}

// If the table itself is at fault, no row is.
func TestTableAtFault(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.host("q")
	var log chan struct{}
	r.relayRaquel(func(c *Config) { log = watchLog(c, "finished_at is missing") })
	first := r.insert("0")
	r.eventually("success 1", func() string { return r.state(first) })
	r.exec("ALTER TABLE jobs RENAME finished_at TO elsewhere")
	id := r.insert("0")
	r.eventually("true", func() string { return fmt.Sprint(len(log) > 0) })
	r.exec("ALTER TABLE jobs RENAME elsewhere TO finished_at")
	r.eventually("success 1", func() string { return r.state(id) })
}

// lock locks a row in a session of its own, as psql does with BEGIN; SELECT … FOR UPDATE, until unlock.
func (w *world) lock(table, id string) (unlock func()) {
	w.t.Helper()
	db := w.server.Connect(w.t, w.url)
	if err := db.Script(w.t.Context(), "BEGIN; SELECT FROM "+table+" WHERE id = '"+id+"' FOR UPDATE"); err != nil {
		w.t.Fatal(err)
	}
	return db.Close
}

// A row that somebody locks while its task runs holds up no other row. It ends when the lock is gone.
func TestRaquelRowLocked(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.host("q")
	r.relayRaquel(soon)
	id := r.insert("0 500")
	r.eventually("claimed 0", func() string { return r.state(id) })
	unlock := r.lock("jobs", id)
	r.told(1, "its end cannot be written")
	for range 3 {
		other := r.insert("0")
		r.eventually("success 1", func() string { return r.state(other) })
	}
	if got := r.state(id); got != "claimed 0" {
		t.Errorf("the locked row is %s", got)
	}
	unlock()
	r.eventually("success 1", func() string { return r.state(id) })
}

func TestNsjRowLocked(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec("INSERT INTO fila_subscriber (id, processo) VALUES ('s', 'topic')")
	n.host("p", "s")
	insert := func(payload, key, name string) {
		n.exec("INSERT INTO fila (processo, payload, chave_externa, pub_sub) VALUES ($1::text, $2, $3, $1::text = 'topic')", name, payload, key)
	}
	insert("return x", "publication", "topic")
	unlockPublication := n.lock("fila", n.value("SELECT id FROM fila"))
	n.nsjRelay(soon)
	n.told(1, "cannot be changed")
	insert("sleep 500", "locked", "p")
	n.eventually("processando", func() string { return n.states("locked") })
	unlock := n.lock("fila", n.value("SELECT id FROM fila WHERE chave_externa = 'locked'"))
	n.told(2, "cannot be changed")
	for i := range 3 {
		key := fmt.Sprint("other", i)
		insert("return x", key, "p")
		n.eventually("sucesso", func() string { return n.states(key) })
	}
	if got := n.states("locked") + " " + n.states("publication"); got != "processando pendente" {
		t.Error(got)
	}
	unlock()
	unlockPublication()
	n.eventually("sucesso", func() string { return n.states("locked") })
}

// A lock of the whole table is waited for: it is no fault of a row.
func TestTableLocked(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.host("q")
	r.relayRaquel(nil)
	id := r.insert("0 300")
	r.eventually("claimed 0", func() string { return r.state(id) })
	db := r.server.Connect(t, r.url)
	if err := db.Script(t.Context(), "BEGIN; LOCK TABLE jobs"); err != nil {
		t.Fatal(err)
	}
	r.eventually("1", func() string { // it waits without a bound of its own
		return r.value(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'EXPLAIN%'
			AND datname = current_database()`)
	})
	db.Close()
	r.eventually("success 1", func() string { return r.state(id) })
	r.told(0, "")
}

// A damaged row waits before each of its retries.
func TestRaquelRetriesWait(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	var ids []string
	for _, columns := range []string{
		"min_retry_delay=" + least4 + " max_retry_delay=" + most4 + " backoff_base=" + least4,
		"min_retry_delay=" + most4 + " max_retry_delay=" + least4 + " backoff_base=" + most4,
		"min_retry_delay=0 max_retry_delay=0 backoff_base=0",
	} {
		ids = append(ids, r.insert("1 0 boom", strings.Fields(columns)...))
	}
	later := r.insert("75 0 later", "scheduled_at="+least8, "min_retry_delay="+least4)
	r.host("q")
	r.relayRaquel(nil)
	for _, id := range ids {
		r.eventually("t", func() string {
			return r.value("SELECT coalesce(attempts > 0 AND scheduled_at = finished_at + 1000, false) FROM jobs WHERE id = $1", id)
		})
	}
	r.eventually("t", func() string {
		return r.value("SELECT attempts > 0 AND scheduled_at - enqueued_at BETWEEN 1000 AND 600000 FROM jobs WHERE id = $1", later)
	})
}

func TestNsjRetriesWait(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	var damaged []string
	for i, columns := range []string{
		"1, '-infinity'", "1, '4713-01-01 BC'", least4 + ", now()", "-1, now()", "0, now()", "NULL, NULL",
	} {
		damaged = append(damaged, fmt.Sprint(i))
		n.exec("INSERT INTO fila (processo, payload, chave_externa, status, tentativa, data_hora) VALUES ('p', 'fail x', $1, 'processando', "+
			columns+")", damaged[i])
	}
	n.nsjRelay(nil)
	for _, key := range damaged {
		n.eventually("t", func() string {
			return n.value(`SELECT EXISTS (SELECT FROM fila WHERE chave_externa = $1 AND status = 'agendada'
				AND tentativa BETWEEN 1 AND 2 AND data_hora > now() + interval '4 minutes')`, key)
		})
	}
}
