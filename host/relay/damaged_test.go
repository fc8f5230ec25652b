package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

const (
	least8, most8 = "-9223372036854775808", "9223372036854775807"
	least4, most4 = "-2147483648", "2147483647"
)

// told waits until operators see this number of refused rows, and an error with this text.
func (w *world) told(refused int64, text string) {
	w.t.Helper()
	w.eventually(fmt.Sprint(refused, " true"), func() string {
		relays, err := listen.NewFleet(w.client).Relays(w.t.Context())
		if err != nil || len(relays) == 0 {
			return fmt.Sprint(err)
		}
		return fmt.Sprint(relays[0].Refused, " ", strings.Contains(relays[0].Error+"\n"+relays[0].Parked, text))
	})
}

// Values of a row at the end of their types stop no other row. The row ends as it would with values that fit.
func TestRaquelDamaged(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.exec("ALTER TABLE jobs ALTER attempts DROP NOT NULL")
	r.exec("ALTER TABLE jobs ALTER error TYPE varchar(10)")
	ids := make(map[string]string)
	for _, c := range []struct{ want, payload, columns string }{
		{"success 1 oldest max_age", "0", "max_age=" + most8},
		{"expired 0 youngest max_age", "0", "max_age=" + least8},
		{"success 1 latest enqueued_at", "0", "max_age=60000 enqueued_at=" + most8},
		{"expired 0 earliest enqueued_at", "0", "max_age=1 enqueued_at=" + least8},
		{"success 1 earliest scheduled_at", "0", "scheduled_at=" + least8},
		{"success 2 later than the earliest", "75 0 later;0", "min_retry_delay=" + least4 + " scheduled_at=" + least8},
		{"queued 0 latest scheduled_at", "0", "scheduled_at=" + most8},
		{"success " + most4 + " most attempts", "0", "attempts=" + most4},
		{"exhausted " + most4 + " exhausted attempts", "1 0 boom", "max_retry_count=3 attempts=" + most4},
		{"failed " + most4 + " failed with most attempts", "1 0 boom", "attempts=" + most4},
		{"success -4 few attempts", "0", "attempts=-5"},
		{"failed -2147483647 fewest attempts", "1 0 boom", "min_retry_delay=3600000 attempts=" + least4},
		{"success 1 no attempts", "0", "attempts=NULL"},
		{"failed 1 most delays", "1 0 boom", "min_retry_delay=" + most4 + " max_retry_delay=" + most4 + " backoff_base=" + most4},
		{"success 2 least delays", "1 0 boom;0", "min_retry_delay=" + least4 + " max_retry_delay=" + least4 + " backoff_base=" + least4},
		{"failed 1 long error", "1 0 an error that is longer than its column", "min_retry_delay=3600000"},
		{"queued 0 cannot be claimed", "0", "error_trace='bad'"},
		{"claimed 0 cannot end", "0", "error_trace='never'"},
		{"success 1 good", "0", ""},
	} {
		columns := map[string]string{"attempts": "0", "enqueued_at": nowMS, "scheduled_at": nowMS}
		for _, one := range strings.Fields(c.columns) {
			name, value, _ := strings.Cut(one, "=")
			columns[name] = value
		}
		var names, values []string
		for name, value := range columns {
			names, values = append(names, name), append(values, value)
		}
		ids[c.want] = r.insert(c.payload, zip(names, values)...)
	}
	r.exec("ALTER TABLE jobs ADD CONSTRAINT bad CHECK (error_trace <> 'bad') NOT VALID")
	r.exec("ALTER TABLE jobs ADD CONSTRAINT never CHECK (error_trace <> 'never' OR status <> 'success') NOT VALID")
	r.host("q")
	r.relayRaquel(soon)
	for want, id := range ids {
		state := strings.Join(strings.Fields(want)[:2], " ")
		r.eventually(want, func() string {
			return strings.Replace(want, state, r.value("SELECT concat_ws(' ', status, coalesce(attempts, 0)) FROM jobs WHERE id = $1", id), 1)
		})
	}
	if got := r.value("SELECT error FROM jobs WHERE id = $1", ids["failed 1 long error"]); got != "an error t" {
		t.Errorf("error %q", got)
	}
	r.told(2, "cannot be changed")
	r.exec("ALTER TABLE jobs DROP CONSTRAINT bad, DROP CONSTRAINT never")
	r.exec("UPDATE jobs SET scheduled_at = 0 WHERE id = $1", ids["queued 0 cannot be claimed"])
	r.eventually("success 1", func() string { return r.state(ids["claimed 0 cannot end"]) })
}

func zip(names, values []string) (pairs []string) {
	for i, name := range names {
		pairs = append(pairs, name+"="+values[i])
	}
	return pairs
}

// setupEncoded returns a world whose database has an encoding.
func setupEncoded(t *testing.T, encoding string) *world {
	t.Helper()
	w := &world{t: t, server: postgrestest.Shared(t), redis: queuetest.Shared(t)}
	url := w.server.Database(t)
	name := "e" + strings.ReplaceAll(queuetest.Tenant(), "-", "_")
	w.db = w.server.Connect(t, url)
	w.exec("CREATE DATABASE " + name + " ENCODING '" + encoding + "' TEMPLATE template0")
	w.url = url[:strings.LastIndexByte(url, '/')+1] + name
	w.db = w.server.Connect(t, w.url)
	if err := Init(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	w.client = w.tenant(queuetest.Tenant())
	return w
}

// A payload that is no text for the relay ends its row alone, as one that no task can have.
func TestRaquelUnreadable(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setupEncoded(t, "SQL_ASCII")}
	r.exec(raquelDocumented)
	id := func(payload, name string) string {
		return r.value("INSERT INTO jobs (payload, queue) VALUES (" + payload + ", " + name + ") RETURNING id")
	}
	good, bad, other := id("'0'", "'q'"), id("chr(233)", "'q'"), id("'0'", "chr(233)")
	adopted := id("'0'", "chr(233)")
	r.exec("UPDATE jobs SET status = 'claimed', claimed_at = 1, claimed_by = $1 WHERE id = $2", "quern:"+r.client.Tenant(), adopted)
	r.host("q")
	r.relayRaquel(nil)
	for id, want := range map[string]string{good: "success 1", bad: "exhausted 1", other: "queued 0", adopted: "exhausted 1"} {
		r.eventually(want, func() string { return r.state(id) })
	}
	if got := r.value("SELECT error FROM jobs WHERE id = $1", bad); !strings.HasPrefix(got, "the row cannot be read: invalid byte sequence") {
		t.Error(got)
	}
	r.told(2, "")
	findings, err := Check(t.Context(), r.db, []string{"jobs"}, nil)
	if text := fmt.Sprint(findings); err != nil || !strings.Contains(text, `"?"`) {
		t.Error(text, err)
	}
}

// An error with a character that the database's encoding lacks is written without it.
func TestEncodingLacksCharacter(t *testing.T) {
	t.Parallel()
	w := setupEncoded(t, "LATIN1")
	r := &raquel{world: w}
	r.exec(raquelDocumented)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, w.client, "q", func(context.Context, *queue.Task) ([]byte, error) { return nil, errors.New("ação ✗") })
	}()
	id := r.value("INSERT INTO jobs (queue, payload, min_retry_delay) VALUES ('q', 'ação', 3600000) RETURNING id")
	r.relayRaquel(nil)
	r.eventually("failed 1", func() string { return r.state(id) })
	if got := r.value("SELECT error FROM jobs WHERE id = $1", id); got != "a??o ?" {
		t.Error(got)
	}
	stop()
	<-done
}

// Values of a row at the end of their types stop no other row of nsj-queue-lib.
func TestNsjDamaged(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec("INSERT INTO fila_subscriber (id, processo) VALUES ('s', 'topic')")
	want := make(map[string]string)
	for i, c := range []struct{ want, columns string }{
		{"sucesso", "data_hora='-infinity'"},
		{"sucesso", "data_hora='4713-01-01 BC'"},
		{"pendente", "data_hora='infinity'"},
		{"falha …", "payload='fail x' data_hora='-infinity'"}, // the retry is due at once
		{"falha …", "payload='fail x' tentativa=" + least4},   // so is each
		{"falha_processando sucesso", "status='processando' tentativa=" + most4},
		{"falha_processando agendada", "status='processando' tentativa=NULL"},
		{"falha_processando agendada", "status='processando' tentativa=" + least4},
		{"falha_processando agendada", "status='processando' data_hora='294000-01-01'"},
		{"falha_processando agendada", "status='processando' data_hora='infinity'"},
		{"falha_processando agendada", "status='processando' data_hora=NULL"},
		{"sucesso", "id=-7"},
		{"falha agendada", "id=-8 payload='fail x'"},
		{"sucesso", "prioridade=NULL"},
		{"sucesso", "prioridade=" + least4},
		{"sucesso", "tenant=" + most8 + " live_id=" + least8},
		{"pendente", "origem='bad'"},
		{"processando", "origem='never'"},
		{"agendada", "status='agendada' origem='bad'"},
		{"processando", "status='processando' origem='bad'"},
		{"falha agendada", "pub_sub=true processo='topic' origem='uncopied'"},
		{"sucesso sucesso", "pub_sub=true processo='topic'"},
		{"sucesso", ""},
	} {
		key := fmt.Sprintf("%d %s", i, c.columns)
		names, values := []string{"chave_externa"}, []string{"'" + strings.ReplaceAll(key, "'", "''") + "'"}
		columns := map[string]string{"processo": "'p'", "payload": "'return x'"}
		for _, one := range strings.Fields(strings.ReplaceAll(strings.ReplaceAll(c.columns, "fail x", "fail_x"), " BC", "_BC")) {
			name, value, _ := strings.Cut(strings.ReplaceAll(one, "_x", " x"), "=")
			columns[name] = strings.ReplaceAll(value, "_BC", " BC")
		}
		for name, value := range columns {
			names, values = append(names, name), append(values, value)
		}
		n.exec("INSERT INTO fila (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
		want[key] = c.want
	}
	n.exec("ALTER TABLE fila ADD CONSTRAINT bad CHECK (origem <> 'bad') NOT VALID")
	n.exec("ALTER TABLE fila ADD CONSTRAINT never CHECK (origem <> 'never' OR status <> 'sucesso') NOT VALID")
	n.exec("ALTER TABLE fila ADD CONSTRAINT uncopied CHECK (origem <> 'uncopied' OR subscriber_id IS NULL)")
	n.host("p", "p.dead", "s")
	n.nsjRelay(func(c *Config) { c.Nsj.RetryInterval, c.parkedFor = 8760*time.Hour, time.Second })
	for key, want := range want {
		n.eventually(key+": "+want, func() string {
			states := n.states(key)
			if first, rest, _ := strings.Cut(states, " "); strings.HasSuffix(want, " …") && rest != "" {
				states = first + " …"
			}
			return key + ": " + states
		})
	}
	n.told(5, "cannot be changed") // of which one was refused
	n.exec("ALTER TABLE fila DROP CONSTRAINT never")
	n.eventually("sucesso", func() string { return n.value("SELECT status FROM fila WHERE origem = 'never'") })
}

// Text that the relay cannot read ends its row alone.
func TestNsjUnreadable(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setupEncoded(t, "SQL_ASCII"))
	n.exec(`INSERT INTO fila (chave_externa, processo, payload, origem) VALUES ('good', 'p', 'return x', 'o'),
		('payload', 'p', chr(233), 'o'), ('header', 'p', 'x', chr(233)), ('name', chr(233), 'x', 'o')`)
	n.exec(`INSERT INTO fila (chave_externa, processo, payload, status, mensagem) VALUES
		('lost', 'p', chr(233), 'processando', chr(233)), ('last', 'p', chr(233), 'processando', chr(233))`)
	n.exec("UPDATE fila SET tentativa = 2 WHERE chave_externa = 'last'")
	n.host("p")
	n.nsjRelay(nil)
	for key, want := range map[string]string{
		"good": "sucesso", "payload": "falha pendente", "header": "falha pendente", "name": "pendente",
		"lost": "falha_processando agendada", "last": "falha_processando pendente",
	} {
		n.eventually(key+" "+want, func() string { return key + " " + n.states(key) })
	}
	if got := n.value("SELECT mensagem FROM fila WHERE chave_externa = 'header' ORDER BY id LIMIT 1"); !strings.HasPrefix(got, "the row cannot be read: invalid byte sequence") {
		t.Error(got)
	}
	findings, err := Check(t.Context(), n.db, nil, []string{"fila"})
	if text := fmt.Sprint(findings); err != nil || !strings.Contains(text, "for the queues ?, p.dead") {
		t.Error(text, err)
	}
}

// Names of tables that need quotes, or that have as many characters as PostgreSQL keeps, are as good as others.
func TestNames(t *testing.T) {
	t.Parallel()
	w := setup(t)
	long := strings.Repeat("x", maxName-1)
	for _, table := range []string{`"a.b"`, `"My ""jobs"" %d"`, long + "a", long + "b", `"s.c".jobs`} {
		schema, _, err := parseTable(table)
		if err != nil {
			t.Fatal(err)
		}
		if schema != "" {
			w.exec("CREATE SCHEMA " + quoteName(schema))
		}
		w.exec(strings.Replace(raquelDocumented, "jobs", table, 1))
		for range 2 {
			if err := InitRaquel(t.Context(), w.db, table); err != nil {
				t.Fatalf("%s: %v", table, err)
			}
		}
		findings, err := Check(t.Context(), w.db, []string{table}, nil)
		if text := fmt.Sprint(findings); err != nil || !strings.Contains(text, "has the index for claims") {
			t.Errorf("%s: %s, %v", table, text, err)
		}
	}
	if got := w.value("SELECT count(*) FROM pg_index WHERE pg_get_expr(indpred, indrelid) LIKE '%success%'"); got != "5" {
		t.Errorf("%s indexes, want 5", got)
	}
	for table, want := range map[string]string{
		"":                 "is no name of a table",
		"a b":              "is no name of a table",
		"a.b.c":            "is no name of a table",
		`"a`:               "is no name of a table",
		long + "more":      "PostgreSQL keeps 63",
		"s." + long + "ab": "PostgreSQL keeps 63",
	} {
		if err := ValidTable(table); !errors.Is(err, queue.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", table, err, want)
		}
	}
}

// A table is refused whose rows have no number of their own.
func TestNoPrimaryKey(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.exec(strings.Replace(raquelDocumented, "PRIMARY KEY", "", 1))
	if err := InitRaquel(t.Context(), w.db, "jobs"); err == nil || !strings.Contains(err.Error(), "id is no primary key") {
		t.Error(err)
	}
}

// Two databases with an outbox may relay to one tenant: each gets the ends of its own tasks.
func TestReportsOfTwoDatabases(t *testing.T) {
	t.Parallel()
	one := setup(t)
	two := &world{t: t, server: one.server, redis: one.redis, client: one.client, url: one.server.Database(t)}
	two.db = two.server.Connect(t, two.url)
	if err := Init(t.Context(), two.db); err != nil {
		t.Fatal(err)
	}
	const tasks = 20
	for name, w := range map[string]*world{"one": one, "two": two} {
		w.relay(nil)
		w.exec(`INSERT INTO quern.outbox (id, queue, options) SELECT $1 || n, 'q', '{"report": true}' FROM generate_series(1, $2) n`, name, tasks)
		w.eventually("0", w.waiting)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, one.client, "q", func(context.Context, *queue.Task) ([]byte, error) { return nil, nil })
	}()
	for name, w := range map[string]*world{"one": one, "two": two} {
		w.eventually(fmt.Sprint(tasks), func() string {
			if _, err := listen.NewFleet(w.client).Advance(t.Context()); err != nil { // no host runs here
				t.Fatal(err)
			}
			return w.value("SELECT count(*) FROM quern.ended")
		})
		if err := w.db.Query(t.Context(), func(v postgres.Row) {
			if !strings.HasPrefix(v.Text(0), name) {
				t.Errorf("the database %s has the end of %s", name, v.Text(0))
			}
		}, "SELECT id FROM quern.ended"); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	<-done
}
