package main

import (
	"fmt"
	"regexp"
	"syscall"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// killed is a table of another library, for TestRelayKilled.
type killed struct {
	guest, queue string
	relay        []string // arguments
	leads        string   // what the log of the leader has
	insert       string   // inserts $1 rows
	done         string   // counts the tasks that have succeeded
	busy         string   // counts the rows that have not ended
	odd          string   // counts the rows that have ended otherwise than once and well
	ran          string   // counts hosts as one, and workers as one, if they have run some; "" if rows do not tell
	late         string   // makes the claims of dead workers old; "" for nothing
	// worker starts a worker of the library, and returns how to kill it.
	worker func() (kill func())
}

// No row of a table of another library is lost when a relay, a host and a worker are killed: each ends once.
func TestRelayKilled(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	const rows = 2000
	test := func(t *testing.T, db *postgres.Conn, url string, k *killed) {
		count := func(statement string) (n int) {
			if _, err := fmt.Sscan(value(t, db, statement), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		u := newUser(t, queuetest.Start(t).URL()).asBuilt()
		u.must("database", "init", "--postgres", url)
		plugins := folder(t, map[string][]byte{k.queue: runtimetest.BuildCHandler(t, string(content(t, k.guest)))})
		if _, err := db.Exec(t.Context(), k.insert, rows); err != nil {
			t.Fatal(err)
		}
		var hosts, relays []*child
		var kills []func()
		for range 2 {
			hosts = append(hosts, u.spawn("serve", "--plugins", plugins, "--http", "127.0.0.1:0"))
			relays = append(relays, u.spawn(append([]string{"relay", "--postgres", url}, k.relay...)...))
			kills = append(kills, k.worker())
		}
		done := func(n int) {
			t.Helper()
			eventually(t, fmt.Sprintf("%d tasks that have ended", n), func() bool { return count(k.done) >= n })
		}
		leads := regexp.MustCompile(k.leads)
		done(rows / 10)
		victim, other := relays[0], relays[1]
		if leads.MatchString(other.stderr.String()) {
			victim, other = other, victim
		}
		_ = victim.Process.Signal(syscall.SIGKILL)
		other.stderr.await(t, leads)
		_ = hosts[0].Process.Signal(syscall.SIGKILL)
		done(rows / 2)
		kills[0]()
		eventually(t, "the end of all rows", func() bool {
			if k.late != "" {
				if _, err := db.Exec(t.Context(), k.late); err != nil {
					t.Fatal(err)
				}
			}
			return count(k.done) == rows && count(k.busy) == 0
		})
		if n := count(k.odd); n > 0 {
			t.Errorf("%d rows have ended otherwise", n)
		}
		if k.ran != "" && count(k.ran) != 2 {
			t.Errorf("%d of hosts and workers have run some", count(k.ran))
		}
	}
	t.Run("Raquel", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Shared(t)
		url, python := raquelTable(t, server)
		test(t, server.Connect(t, url), url, &killed{
			guest: "../../host/relay/testdata/raquel.c", queue: "q", relay: []string{"--raquel", "jobs"}, leads: "leads raquel:jobs",
			insert: `INSERT INTO jobs (id, queue, payload, status, enqueued_at, scheduled_at, attempts)
				SELECT gen_random_uuid(), 'q', '0 10', 'queued', 0, n, 0 FROM generate_series(1, $1) n`,
			done: "SELECT count(*) FROM jobs WHERE status = 'success'",
			busy: "SELECT count(*) FROM jobs WHERE status <> 'success'",
			odd:  "SELECT count(*) FROM jobs WHERE attempts <> 1",
			ran:  "SELECT count(DISTINCT claimed_by) FROM jobs",
			// A claim of a worker is given up after a minute.
			late: `UPDATE jobs SET claimed_at = claimed_at - 60000
				WHERE id IN (SELECT id FROM jobs WHERE status = 'claimed' AND claimed_by = 'python' FOR UPDATE SKIP LOCKED)`,
			worker: func() func() {
				worker := python()
				worker.Do(nil, "work", "q", 0.01, 60_000)
				return worker.Kill
			},
		})
	})
	t.Run("Nsj", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Shared(t)
		url, python := nsjTable(t, server)
		test(t, server.Connect(t, url), url, &killed{
			guest: "../../host/relay/testdata/nsj.c", queue: "p", relay: []string{"--nsj", "fila", "--nsj-retry-interval", "1s"},
			leads:  "leads nsj:fila",
			insert: "INSERT INTO fila (processo, payload, chave_externa) SELECT 'p', 'sleep 10', n FROM generate_series(1, $1) n",
			done:   "SELECT count(DISTINCT chave_externa) FROM fila WHERE status = 'sucesso'",
			busy:   "SELECT count(*) FROM fila WHERE status NOT IN ('sucesso', 'falha_processando')",
			odd:    "SELECT count(*) FROM fila WHERE dead",
			worker: func() func() {
				worker := python(absolute(t, "../../host/relay/testdata/nsj.py"), "worker")
				if err := worker.Start(); err != nil {
					t.Fatal(err)
				}
				kill := func() {
					_ = worker.Process.Kill()
					_ = worker.Wait()
				}
				t.Cleanup(kill)
				return kill
			},
		})
	})
}
