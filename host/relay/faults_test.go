package relay

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// keptLog keeps what a relay logs, and counts its failures.
type keptLog struct {
	noMetrics
	mu     sync.Mutex
	text   strings.Builder
	failed int
}

func (k *keptLog) Write(text []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(text)
}

func (k *keptLog) RelayFailed(string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed++
}

// keep makes a relay log here.
func (k *keptLog) keep(c *Config) {
	c.Logger, c.Metrics = hclog.New(&hclog.LoggerOptions{Output: k}), k
}

// manyFailed is "true" when the relay has failed often.
func (k *keptLog) manyFailed() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprint(k.failed >= 4)
}

// count returns how often the log has a text.
func (k *keptLog) count(text string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Count(k.text.String(), text)
}

// Each table that is damaged while its relay runs is told once, with the remedy. The relay goes on when it is mended.
func TestDamagedWhileRunning(t *testing.T) {
	t.Parallel()
	const init = "run `quern database init` as the database's owner"
	for name, c := range map[string]struct{ change, mend, want string }{
		"OutboxColumn": {
			"ALTER TABLE quern.outbox RENAME json TO other", "ALTER TABLE quern.outbox RENAME other TO json",
			"column outbox.json is missing: " + init,
		},
		"OutboxKey": {
			"ALTER TABLE quern.ended DROP CONSTRAINT ended_pkey", "", "primary key of ended is missing: " + init,
		},
		"OutboxOther": {
			`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
			CREATE TRIGGER refuse BEFORE DELETE ON quern.outbox FOR EACH ROW EXECUTE FUNCTION refuse()`,
			"DROP TRIGGER refuse ON quern.outbox", "no (SQLSTATE P0001)",
		},
		"Raquel": {
			"ALTER TABLE jobs RENAME attempts TO other", "ALTER TABLE jobs RENAME other TO attempts",
			"attempts is missing: change it to what Raquel's create_all() makes",
		},
		"Nsj": {
			"ALTER TABLE fila RENAME payload_hash TO other; INSERT INTO fila (processo, payload) VALUES ('q', 'fail x')",
			"ALTER TABLE fila RENAME other TO payload_hash", "payload_hash is missing: change it to what",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, log := setup(t), &keptLog{}
			insert := "INSERT INTO quern.outbox (queue, options) VALUES ('q', '{\"report\":true}')"
			left := "SELECT count(*) FROM quern.outbox"
			switch name {
			case "Raquel":
				r := &raquel{world: w}
				r.exec(raquelDocumented)
				insert, left = "INSERT INTO jobs (queue, payload) VALUES ('q', '0')", "SELECT count(*) FROM jobs WHERE status <> 'success'"
				r.host("q")
				r.relayRaquel(log.keep)
			case "Nsj":
				n := setupNsj(t, w)
				insert = "INSERT INTO fila (processo, payload) VALUES ('q', 'return x')"
				left = "SELECT count(*) FROM fila WHERE status IN ('pendente', 'processando')"
				n.host("q")
				n.nsjRelay(log.keep)
			default:
				r := &raquel{world: w}
				r.host("q")
				w.relay(log.keep)
			}
			w.exec(insert)
			w.eventually("0", func() string { return w.value(left) })
			if err := w.db.Script(t.Context(), c.change); err != nil {
				t.Fatal(err)
			}
			w.exec(insert)
			w.eventually("true", log.manyFailed)
			if told, leads := log.count(c.want), log.count("leads "); told != 1 || leads != 1 {
				t.Errorf("told %d times, and leads %d times, want 1 and 1", told, leads)
			}
			if c.mend != "" {
				w.exec(c.mend)
			} else if err := Init(t.Context(), w.db); err != nil {
				t.Fatal(err)
			}
			w.eventually("0", func() string { return w.value(left) })
		})
	}
}

// A table of nsj-queue-lib that lacks its trigger is told with the remedy.
func TestNsjTrigger(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	for _, c := range []struct{ change, want string }{
		{"SELECT", ""},
		{"ALTER TABLE fila DISABLE TRIGGER trigger_insert_fila", "ALTER TABLE public.fila ENABLE TRIGGER trigger_insert_fila"},
		{"DROP TRIGGER trigger_insert_fila ON fila", "CREATE TRIGGER of `python -m nsj_queue_lib.db_gen public fila`"},
	} {
		n.exec(c.change)
		var told []string
		err := checkNsjTable(t.Context(), n.db, "fila", func(ok bool, _, format string, args ...any) {
			if !ok {
				told = append(told, fmt.Sprintf(format, args...))
			}
		})
		if text := strings.Join(told, "; "); err != nil || !strings.HasSuffix(text, c.want) || (text == "") != (c.want == "") {
			t.Errorf("%s: %q, %v", c.change, text, err)
		}
	}
}
