package relay

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// forbid makes a trigger that refuses changes of a table, and counts them in the sequence tries.
func (w *world) forbid(table, when string) {
	w.t.Helper()
	w.exec("CREATE SEQUENCE IF NOT EXISTS tries")
	w.exec(`CREATE OR REPLACE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM nextval('tries'); RAISE EXCEPTION 'forbidden'; END $$`)
	w.exec("CREATE TRIGGER forbid BEFORE UPDATE ON " + table + " FOR EACH ROW WHEN (" + when + ") EXECUTE FUNCTION forbid()")
}

func soon(c *Config) { c.parkedFor = time.Second }

// A row that cannot be given back stays in hand: its task waits, and runs when a host comes.
func TestNsjUnclaimRefused(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	_, stop := n.listener("p")
	n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload) VALUES ('p', 'return x')")
	n.eventually("1", func() string { return fmt.Sprint(n.depth("p", queue.Pending)) })
	n.forbid("fila", "OLD.status = 'processando' AND NEW.status = 'pendente'")
	stop()
	n.told(1, "it cannot be given back")
	n.exec("INSERT INTO fila (processo, payload) VALUES ('q', 'return x')")
	n.host("q")
	n.eventually("1", func() string { return n.count("sucesso") })
	if got := n.depth("p", queue.Pending); got != 1 {
		t.Errorf("%d tasks wait, want 1", got)
	}
	n.host("p")
	n.eventually("2", func() string { return n.count("sucesso") })
	n.told(0, "")
}

// A row that cannot be given back is given back when the rule is gone.
func TestRaquelUnclaimRefused(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	_, stop := r.listener("q")
	r.relayRaquel(soon)
	id := r.enqueue("q", "0", nil)
	r.eventually("1", func() string { return fmt.Sprint(r.depth("q", queue.Pending)) })
	r.forbid("jobs", "OLD.status = 'claimed' AND NEW.status = 'queued'")
	stop()
	r.told(1, "it cannot be given back")
	if got := r.state(id); got != "claimed 0" || r.depth("q", queue.Pending) != 1 {
		t.Errorf("%s, and %d tasks wait", got, r.depth("q", queue.Pending))
	}
	r.exec("DROP TRIGGER forbid ON jobs")
	r.eventually("queued 0 0", func() string { return fmt.Sprint(r.state(id), " ", r.depth("q", queue.Pending)) })
	r.told(0, "")
}

// A row that was given back while its task started, and that a rule keeps from being claimed again, stops no other row:
// its task is cancelled, and runs again when the rule is gone.
func TestRaquelClaimAgainRefused(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	_, stop := r.listener("q")
	r.relayRaquel(soon)
	id := r.enqueue("q", "0", nil)
	r.eventually("1", func() string { return fmt.Sprint(r.depth("q", queue.Pending)) })
	leads := r.value("SELECT since FROM quern.relays")
	r.forbid("jobs", "OLD.status = 'queued' AND NEW.status = 'claimed'")
	// Giving the row back waits for a lock of this test.
	r.exec("CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$")
	r.exec(`CREATE TRIGGER pause BEFORE UPDATE ON jobs FOR EACH ROW
		WHEN (OLD.status = 'claimed' AND NEW.status = 'queued') EXECUTE FUNCTION pause()`)
	other := r.server.Connect(t, r.url)
	if _, err := other.Exec(t.Context(), "SELECT pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	stop()
	r.eventually("1", func() string {
		return r.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()")
	})
	ctx, end := context.WithCancel(t.Context())
	started, done := make(chan struct{}, 1), make(chan error, 1)
	first := true
	go func() {
		done <- worker.Run(ctx, r.client, "q", func(ctx context.Context, _ *queue.Task) ([]byte, error) {
			if first {
				first = false
				started <- struct{}{}
				<-ctx.Done()
			}
			return nil, nil
		})
	}()
	<-started
	if _, err := other.Exec(t.Context(), "SELECT pg_advisory_unlock(7)"); err != nil {
		t.Fatal(err)
	}
	r.told(1, "cannot be changed")
	if got := r.value("SELECT since FROM quern.relays"); got != leads {
		t.Errorf("the relay leads anew since %s, not %s", got, leads)
	}
	r.exec("DROP TRIGGER forbid ON jobs")
	r.eventually("success 1", func() string { return r.state(id) })
	end()
	<-done
}

// A publication that cannot be copied never becomes a task, even if its end cannot be written: not later, and not by
// the next leader.
func TestNsjPublicationRefused(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec("INSERT INTO fila_subscriber (id, processo) VALUES ('s', 'topic')")
	n.exec("ALTER TABLE fila ADD CONSTRAINT uncopied CHECK (origem <> 'uncopied' OR subscriber_id IS NULL)")
	n.forbid("fila", "NEW.pub_sub AND NEW.status = 'falha'")
	n.exec("INSERT INTO fila (processo, payload, pub_sub, origem, chave_externa) VALUES ('topic', 'return x', true, 'uncopied', 'refused')")
	n.exec(`INSERT INTO fila (id, processo, payload, pub_sub, status, mensagem, chave_externa)
		VALUES (100, 'topic', 'return x', true, 'processando', 'Quern: nsj-fila-100-abc', 'adopted')`)
	n.host("topic", "s")
	stop := n.nsjRelay(soon)
	n.told(2, "its end cannot be written") // refused, and parked
	n.eventually("sucesso sucesso", func() string { return n.states("adopted") })
	tried := func() string { return n.value("SELECT last_value > 1 FROM tries") }
	n.exec("SELECT setval('tries', 1)")
	n.eventually("t", tried)
	stop()
	n.exec("SELECT setval('tries', 1)")
	n.nsjRelay(soon)
	n.eventually("t", tried)
	n.exec("DROP TRIGGER forbid ON fila")
	n.eventually("falha agendada", func() string { return n.states("refused") })
	if got := n.depth("topic", queue.Complete); got != 0 {
		t.Errorf("%d publications ran as tasks", got)
	}
}

// Parked rows are tried again each minute, and hold up no others. Their error stays when another failure is over.
func TestParkedBesideHealthy(t *testing.T) {
	t.Parallel()
	const parked = 30
	n := setupNsj(t, setup(t))
	n.forbid("fila", "NEW.origem = 'never' AND NEW.status = 'sucesso'")
	n.host("bad", "good")
	n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload, origem) SELECT 'bad', 'return x', 'never' FROM generate_series(1, $1)", parked)
	n.told(parked, "its end cannot be written")
	tries := n.value("SELECT last_value FROM tries")
	// The relay notices this row when it holds the others.
	n.exec("UPDATE fila SET mensagem = 'mine', status = 'falha' WHERE id = (SELECT max(id) FROM fila)")
	n.told(parked-1, "its end cannot be written")
	n.exec("INSERT INTO fila (processo, payload, origem) VALUES ('good', 'return x', 'o')")
	n.eventually("1", func() string { return n.count("sucesso") })
	if got := n.value("SELECT last_value FROM tries"); got != tries {
		t.Errorf("%s tries, want %s until a minute is over", got, tries)
	}

	if err := n.client.Queue("full").SetLimit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	n.listener("full")
	n.exec("INSERT INTO fila (processo, payload) SELECT 'full', 'x' FROM generate_series(1, 3)")
	n.told(parked-1, "full")
	relays, err := listen.NewFleet(n.client).Relays(t.Context())
	if err != nil || strings.Contains(relays[0].Error, "changed") || !strings.Contains(relays[0].Parked, "its end cannot be written") {
		t.Errorf("rows wait because %q, and one is parked because %q, %v", relays[0].Error, relays[0].Parked, err)
	}
	if err := n.client.Queue("full").SetLimit(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	n.told(parked-1, "its end cannot be written")
}

// A rule that refuses all ends, or all claims, of a queue stops this queue alone, before all of its rows are parked.
// Without the rule, all go on.
func TestParkedQueueStops(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.forbid("jobs", "NEW.queue = 'ends' AND NEW.status = 'success' OR NEW.queue = 'claims'")
	r.host("ends", "claims", "good")
	r.relayRaquel(func(c *Config) { c.parkedFor = 20 * time.Second })
	const rows = 5 * maxParked
	r.exec(`INSERT INTO jobs (id, queue, payload, status, attempts, enqueued_at, scheduled_at)
		SELECT gen_random_uuid(), q, '0', 'queued', 0, 1, 1 FROM generate_series(1, $1), unnest('{ends,claims}'::text[]) AS q`, rows)
	refused := func() int64 {
		relays, err := listen.NewFleet(r.client).Relays(t.Context())
		if err != nil || len(relays) == 0 {
			return 0
		}
		return relays[0].Refused
	}
	r.eventually("true", func() string { return fmt.Sprint(refused() >= 2*maxParked) })
	id := r.enqueue("good", "0", nil)
	r.eventually("success 1", func() string { return r.state(id) })
	if got := refused(); got > 4*maxParked {
		t.Errorf("%d rows are parked of %d", got, 2*rows)
	}
	if got := r.value("SELECT count(*) FROM jobs WHERE queue = 'ends' AND status = 'queued'"); got == "0" {
		t.Error("all rows of the queue were claimed")
	}
	r.exec("DROP TRIGGER forbid ON jobs")
	r.eventually("0", func() string { return r.value("SELECT count(*) FROM jobs WHERE status <> 'success'") })
}

// A row that is parked counts as refused, and not as one that waits.
func TestParkedDoesNotWait(t *testing.T) {
	t.Parallel()
	none := func(w *world) {
		w.t.Helper()
		w.told(1, "cannot be changed")
		w.eventually("0 0", func() string {
			relays, err := listen.NewFleet(w.client).Relays(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(relays[0].Waiting, " ", relays[0].Lag)
		})
	}
	r := setupRaquel(t)
	r.forbid("jobs", "NEW.status = 'claimed'")
	r.host("q")
	r.relayRaquel(nil)
	r.enqueue("q", "0", nil)
	none(r.world)

	n := setupNsj(t, setup(t))
	n.forbid("fila", "NEW.status = 'processando'")
	n.host("p")
	n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload) VALUES ('p', 'x')")
	none(n.world)
}
