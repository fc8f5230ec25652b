package host

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/host/relay"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// shop is a database for handlers with the table t (id int PRIMARY KEY, task text), and Quern's tables.
type shop struct {
	t      *testing.T
	owner  *postgres.Conn
	server *postgrestest.Server
	url    string // for the handlers' role
	sql    *sql.Databases
	log    *logBuffer // of sql
	dir    string     // of secrets
}

func newShop(t *testing.T, tenant string) *shop { return newShopOn(t, tenant, postgrestest.Shared(t)) }

func newShopOn(t *testing.T, tenant string, server *postgrestest.Server) *shop {
	t.Helper()
	s := &shop{t: t, server: server, owner: server.Connect(t, server.Database(t)), log: &logBuffer{}, dir: t.TempDir()}
	s.sql = sql.New(sql.Config{Logger: hclog.New(&hclog.LoggerOptions{Output: s.log, Level: hclog.Debug})})
	t.Cleanup(s.sql.Close)
	name := s.text("SELECT current_database()")
	s.url = server.UserURL(name+"_h", name)
	s.exec("CREATE ROLE " + name + "_h LOGIN; CREATE TABLE t (id int PRIMARY KEY, task text); GRANT ALL ON t TO " + name + "_h")
	if err := relay.Init(t.Context(), s.owner); err != nil {
		t.Fatal(err)
	}
	if err := relay.GrantHandler(t.Context(), s.owner, name+"_h"); err != nil {
		t.Fatal(err)
	}
	s.secret(tenant, s.url)
	return s
}

// secret makes url the database shop of a tenant.
func (s *shop) secret(tenant, url string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Join(s.dir, tenant), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, tenant, "database.shop"), []byte(url+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) exec(script string) {
	s.t.Helper()
	if err := s.owner.Script(s.t.Context(), script); err != nil {
		s.t.Fatalf("%s: %v", script, err)
	}
}

// text returns the values of an answer in one line.
func (s *shop) text(statement string, args ...any) string {
	s.t.Helper()
	var all []string
	err := s.owner.Query(s.t.Context(), func(r postgres.Row) {
		for i := range r {
			all = append(all, r.Text(i))
		}
	}, statement, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
	return strings.Join(all, " ")
}

// services is what a host needs to reach the database.
func (s *shop) services() guest.Config { return guest.Config{Secrets: s.dir, Databases: s.sql} }

// buyer is a handler that runs its input, statements separated by semicolons, and then does what the last part says:
// ok, fail, fatal, trap, later, or child, which also enqueues a task. An error of the database is its result.
var buyer = sync.OnceValue(func() string {
	return `
#include "quern.h"
static char input[1 << 16], answer[1 << 20];
static int ends(const char *s, uint32_t n, const char *word) { return quern_equal(s, n, word, quern_length(word)); }
QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_input(input, sizeof input);
	quern_output_write("done", 4);
	for (uint32_t at = 0, end; at <= (uint32_t)size; at = end + 1) {
		for (end = at; end < (uint32_t)size && input[end] != ';'; end++) {
		}
		const char *s = input + at;
		uint32_t n = end - at;
		if (end < (uint32_t)size) {
			int32_t got = quern_slot(quern_sql("shop", 4, s, n, 0, 0), answer, sizeof answer);
			if (got < 0) return 1;
			quern_rows rows;
			if (quern_split_rows(answer, (uint32_t)got, &rows) < 0) {
				quern_output_write(QUERN_VIEW(rows.state));
				quern_log(QUERN_WARNING, QUERN_VIEW(rows.message), 0, 0);
			}
			continue;
		}
		if (ends(s, n, "fail")) return quern_fail(1, "it failed");
		if (ends(s, n, "fatal")) return quern_fail(QUERN_FATAL, "it failed for good");
		if (ends(s, n, "trap")) __builtin_trap();
		if (ends(s, n, "later")) return QUERN_RETRY;
		if (ends(s, n, "child")) quern_enqueue("other", 5, "x", 1, 0, 0);
	}
	return 0;
}`
})

func (s *shop) start(t *testing.T, tenant, manifest string, more ...func(*settings)) *node {
	t.Helper()
	set := settings{
		tenants: []string{tenant}, Config: Config{Services: s.services()},
		guests: map[string][]byte{"buy": runtimetest.BuildCHandler(t, buyer())},
		yaml:   map[string]string{"buy": manifest},
	}
	for _, change := range more {
		change(&set)
	}
	return start(t, set)
}

const buying = "capabilities: {sql: [{database: shop, access: rw}], enqueue: {queues: [other]}}"

// What a handler does in its database is committed with its completion, and only then.
func TestCommitWithCompletion(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	n := s.start(t, tenant, buying)
	for i, tt := range []struct {
		then   string
		status queue.Status
		rows   string
	}{
		{"ok", queue.Complete, "1"},
		{"child", queue.Complete, "1"},
		{"fail", queue.Failed, "0"},
		{"fatal", queue.Failed, "0"},
		{"trap", queue.Failed, "0"},
	} {
		task := n.wait(n.enqueue("buy", fmt.Sprintf("INSERT INTO t VALUES (%d);%s", i, tt.then)))
		if task.Status != tt.status {
			t.Errorf("%s: %s, %+v", tt.then, task.Status, task.Failure())
		}
		if got := s.text("SELECT count(*) FROM t WHERE id = $1", i); got != tt.rows {
			t.Errorf("%s: %s rows, want %s", tt.then, got, tt.rows)
		}
		if got := s.text("SELECT count(*) FROM quern.runs WHERE task = $1 AND tenant = $2", task.ID, tenant); got != tt.rows {
			t.Errorf("%s: %s runs, want %s", tt.then, got, tt.rows)
		}
	}
	if got := n.depth("other")[queue.Pending]; got != 1 {
		t.Errorf("%d children", got)
	}
}

// through leads the connections of a tenant's handlers through a proxy.
func (s *shop) through(tenant string) *queuetest.Proxy {
	s.t.Helper()
	proxy := queuetest.NewProxy(s.t, s.server)
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	u.Host = proxy.Addr()
	s.secret(tenant, u.String())
	return proxy
}

// A host that is cut off from Redis after it has committed leaves its row, and the next host settles the task with it.
func TestTheRowSettlesTheTask(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	proxy := queuetest.NewProxy(t, queuetest.Shared(t))
	first := s.start(t, tenant, buying, func(set *settings) { set.proxy, set.lease = proxy, time.Second })
	first.serving("buy")
	s.exec("SELECT pg_advisory_lock(7)")
	id := first.enqueue("buy", "SELECT pg_advisory_xact_lock(7);INSERT INTO t VALUES (1);child")
	first.eventually("waiting", func() bool { return s.waiting() == "1" })
	proxy.Block()
	s.exec("SELECT pg_advisory_unlock(7)")
	first.eventually("a commit", func() bool { return s.text("SELECT task FROM quern.runs") == id })
	second := s.start(t, tenant, buying)
	task := second.wait(id)
	if task.Status != queue.Complete || string(task.Result) != "done" {
		t.Errorf("%s %q, %+v", task.Status, task.Result, task.Failure())
	}
	proxy.Pass()
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	if got := second.depth("other")[queue.Pending]; got != 1 || s.text("SELECT count(*) FROM t") != "1" {
		t.Errorf("%d children, %s rows", got, s.text("SELECT count(*) FROM t"))
	}
}

// If the answer to a commit is lost, the database is asked whether the task is complete.
func TestALostAnswerToACommit(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	proxy := s.through(tenant)
	n := s.start(t, tenant, buying)
	n.wait(n.enqueue("buy", "SELECT 1;ok")) // the connection is there
	proxy.CutReplies(1, "COMMIT")
	task := n.wait(n.enqueue("buy", "INSERT INTO t VALUES (1);child"))
	if task.Status != queue.Complete || s.text("SELECT count(*) FROM t") != "1" || n.depth("other")[queue.Pending] != 1 {
		t.Errorf("%s, %+v, %s rows", task.Status, task.Failure(), s.text("SELECT count(*) FROM t"))
	}
	if proxy.Cuts() != 1 || !n.log.has("the answer to a commit was lost") {
		t.Errorf("%d cuts, %s", proxy.Cuts(), n.log)
	}
}

// If the commit whose answer is lost was not done, the task runs again without an attempt being counted.
func TestALostCommit(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	s.atCommit("IF nextval('commits') = 1 THEN PERFORM pg_advisory_xact_lock(7); END IF;")
	n := s.start(t, tenant, buying)
	s.exec("SELECT pg_advisory_lock(7)")
	id := n.enqueue("buy", "INSERT INTO t VALUES (1);child")
	n.eventually("a lost commit", func() bool {
		return s.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'") == "t"
	})
	task := n.wait(id)
	if task.Status != queue.Complete || task.Attempts != 1 || s.text("SELECT count(*) FROM t") != "1" || n.depth("other")[queue.Pending] != 1 {
		t.Errorf("%s after %d, %+v, %s rows", task.Status, task.Attempts, task.Failure(), s.text("SELECT count(*) FROM t"))
	}
}

// A task that is cancelled while nobody knows whether its commit was done is cancelled, and not complete.
func TestACancelDuringALostCommit(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	proxy := s.through(tenant)
	s.atCommit("PERFORM pg_advisory_xact_lock(7);")
	n := s.start(t, tenant, buying)
	s.exec("SELECT pg_advisory_lock(7)")
	id := n.enqueue("buy", "INSERT INTO t VALUES (1);child")
	n.eventually("a commit under way", func() bool { return s.waiting() == "1" })
	proxy.Refuse()
	n.eventually("the host knows", func() bool { return n.log.has("the answer to a commit was lost") })
	if s.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'") != "t" {
		t.Error("the commit was done")
	}
	if changed := n.client.Change(t.Context(), queue.ChangeCancel, id); changed.Err != nil {
		t.Fatal(changed.Err)
	}
	task := n.wait(id)
	if task.Status != queue.Failed || task.Reason != queue.ReasonCancelled || s.text("SELECT count(*) FROM t") != "0" || n.depth("other")[queue.Pending] != 0 {
		t.Errorf("%s, %+v, %s rows", task.Status, task.Failure(), s.text("SELECT count(*) FROM t"))
	}
}

// atCommit makes each commit of changes to t run statements of PL/pgSQL, which can use the sequence commits.
func (s *shop) atCommit(statements string) {
	s.t.Helper()
	s.exec("CREATE SEQUENCE commits; CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN " + statements +
		" RETURN NULL; END $$; CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()")
}

// A transaction that loses against another one runs again at once.
func TestALostRace(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	s.atCommit("IF nextval('commits') <= 3 THEN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END IF;")
	n := s.start(t, tenant, buying)
	task := n.wait(n.enqueue("buy", "INSERT INTO t VALUES (1);child"))
	if task.Status != queue.Complete || task.Attempts != 1 || s.text("SELECT count(*), (SELECT last_value FROM commits) FROM t") != "1 4" {
		t.Errorf("%s after %d, %+v", task.Status, task.Attempts, task.Failure())
	}
	if n.depth("other")[queue.Pending] != 1 {
		t.Error("not one child")
	}
	s.exec("SELECT setval('commits', 1, false); CREATE OR REPLACE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN PERFORM nextval('commits'); RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$")
	task = n.wait(n.enqueue("buy", "INSERT INTO t VALUES (2);ok"))
	if got := s.text("SELECT last_value FROM commits"); task.Status != queue.Failed || got != "6" {
		t.Errorf("%s after %s commits", task.Status, got)
	}
}

// What a commit refuses fails the task, with the words of the database.
func TestARefusedCommit(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	s.atCommit("RAISE EXCEPTION 'too dear';")
	n := s.start(t, tenant, buying)
	for input, want := range map[string]string{
		"INSERT INTO t VALUES (1);ok":                                     "too dear (SQLSTATE P0001)",
		"SELECT nonsense;ok":                                              `column "nonsense" does not exist (SQLSTATE 42703): use ON CONFLICT or a savepoint`,
		"SAVEPOINT a;SELECT nonsense;ROLLBACK TO a;SELECT 1;ok":           "",
		"SELECT set_config('transaction_timeout','1',true), pg_sleep(0);": "",
	} {
		task := n.wait(n.enqueue("buy", input))
		if want == "" {
			continue
		}
		if f := task.Failure(); task.Status != queue.Failed || !strings.Contains(f.Message, want) {
			t.Errorf("%s: %s, %+v, want %q", input, task.Status, f, want)
		}
	}
	if s.text("SELECT count(*) FROM t") != "0" {
		t.Error("rows remain")
	}
}

// A database that is away costs no attempt, is told once, and loses nothing.
func TestADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	server := postgrestest.Start(t)
	s := newShopOn(t, tenant, server)
	n := s.start(t, tenant, buying)
	n.wait(n.enqueue("buy", "INSERT INTO t VALUES (1);ok"))
	server.Kill()
	var ids []string
	for i := 2; i < 6; i++ { // also a task that may not put itself off, as of a row of Raquel
		options := queue.Options{Retry: queue.Retry{MaxReschedules: -(i % 2)}}
		ids = append(ids, n.enqueueAs("buy", fmt.Sprintf("INSERT INTO t VALUES (%d);ok", i), options))
	}
	n.eventually("put off", func() bool { return n.depth("buy")[queue.Scheduled] > 0 })
	server.Restart(t)
	for _, id := range ids {
		if task := n.wait(id); task.Status != queue.Complete || task.Attempts != 1 {
			t.Errorf("%s after %d attempts: %+v", task.Status, task.Attempts, task.Failure())
		}
	}
	s.owner = server.Connect(t, s.url)
	if got := s.text("SELECT count(*) FROM t"); got != "5" {
		t.Errorf("%s rows", got)
	}
	if told := s.log.lines("database does not serve"); told < 1 || told > 3 || !s.log.has("serves again") {
		t.Errorf("told %d times:\n%s", told, s.log)
	}
}

// What the operator has not set up is told at once, with the remedy, and the task waits for it.
func TestADatabaseThatIsNotSetUp(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	n := s.start(t, tenant, buying)
	role := s.text("SELECT current_database()") + "_h"
	for _, tt := range []struct{ name, broken, repaired, told string }{
		{"URL", "", "", "not a URL of PostgreSQL"},
		{"database", "", "", "make it with CREATE DATABASE"},
		{"right", "REVOKE INSERT (tenant, task, created, step, settlement) ON quern.runs FROM " + role, "GRANT INSERT (tenant, task, created, step, settlement) ON quern.runs TO " + role, "quern database init --grant-handler"},
		{"table", "ALTER TABLE quern.runs RENAME TO away", "ALTER TABLE quern.away RENAME TO runs", "quern database init --grant-handler"},
		{"role", "ALTER ROLE " + role + " NOLOGIN", "ALTER ROLE " + role + " LOGIN", "correct user and password"},
		{"secret", "", "", "write the URL into"},
	} {
		switch tt.name {
		case "URL":
			s.secret(tenant, "shop")
		case "database":
			s.secret(tenant, s.server.UserURL(role, "nowhere"))
		case "secret":
			if err := os.Remove(filepath.Join(s.dir, tenant, "database.shop")); err != nil {
				t.Fatal(err)
			}
		default:
			s.exec(tt.broken)
			s.sql.CloseIdle(time.Time{})
		}
		id := n.enqueue("buy", "SELECT 1;ok")
		n.eventually(tt.name+" told", func() bool { return n.log.has(tt.told) || s.log.has(tt.told) })
		n.eventually(tt.name+" put off", func() bool { return n.task(id).Reschedules > 0 })
		s.exec(tt.repaired)
		s.secret(tenant, s.url)
		if task := n.wait(id); task.Status != queue.Complete || task.Attempts != 1 {
			t.Errorf("%s: %s after %d: %+v", tt.name, task.Status, task.Attempts, task.Failure())
		}
	}
}

// A header of the task chooses the database, if the grants say so.
func TestAHeaderChoosesTheDatabase(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s, other := newShop(t, tenant), newShop(t, tenant)
	for value, url := range map[string]string{"47": s.url, "48": other.url} {
		if err := os.WriteFile(filepath.Join(s.dir, tenant, "database.shop."+value), []byte(url), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	grants, err := manifest.ParseGrants("grants.yaml", []byte(`"*": {databases: {shop: {by: nsj-tenant, pool: 2, settings: {app.tenant: acme}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	n := s.start(t, tenant, buying, func(set *settings) { set.grants = grants })
	statement := "INSERT INTO t SELECT 1, current_setting('app.tenant');ok"
	for _, value := range []string{"47", "48"} {
		task := n.wait(n.enqueueAs("buy", statement, queue.Options{Headers: map[string]string{"nsj-tenant": value}}))
		if task.Status != queue.Complete {
			t.Errorf("%s: %+v", value, task.Failure())
		}
	}
	for value, want := range map[string]string{
		"":      `the task's header nsj-tenant chooses the database shop, and is "": enqueue the task with 1 to 64 of`,
		"../47": `the task's header nsj-tenant chooses the database shop, and is "../47"`,
		"49": `the task's header nsj-tenant is "49", and there is no secret database.shop.49: enqueue the task with another value, or write the URL into ` +
			tenant + "/database.shop.49 in the folder of --secrets",
	} {
		task := n.wait(n.enqueueAs("buy", statement, queue.Options{Headers: map[string]string{"nsj-tenant": value}}))
		if task.Status != queue.Failed || task.Reschedules != 0 || !strings.Contains(task.Failure().Message, want) {
			t.Errorf("%q: %s, %+v, want %q", value, task.Status, task.Failure(), want)
		}
	}
	for _, shop := range []*shop{s, other} {
		if got := shop.text("SELECT task FROM t"); got != "acme" {
			t.Errorf("rows %q", got)
		}
	}
}

// A row of quern.runs that a handler's role has forged gives a task no more than its plugin may. The tasks of one host
// do not hinder each other.
func TestAForgedRow(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	n := s.start(t, tenant, "capabilities: {sql: [{database: shop, access: rw}], enqueue: {queues: [other], bytes: 1KiB}}\n"+
		"retry: {max_attempts: 2, base: 10ms, min: 10ms}\nlimits: {output: 1KiB}\n")
	for _, tt := range []struct{ row, want string }{
		{`{"children":[{"Queue":"admin","ID":"forged"}]}`, `queue "admin" is not granted`},
		{`{"result":"` + strings.Repeat("AAAA", 512) + `"}`, "the result in the task's row in quern.runs has 1536 bytes"},
		{`{"result":"` + strings.Repeat("AAAA", 1<<18) + `"}`, "the result in the task's row in quern.runs has 786432 bytes"},
		{`{"result":"` + strings.Repeat("AAAA", 5<<18) + `"}`, "the task's row in quern.runs has 5242893 bytes, and may have"},
		{`{"publications":[` + strings.Repeat("{},", 300) + `{}]}`, "has 301 publications"},
		{"forged", "the task's row in quern.runs: invalid character"},
	} {
		s.exec("SELECT pg_advisory_lock(7)")
		id := n.enqueue("buy", "SELECT pg_advisory_xact_lock(7);fail")
		n.eventually("the first attempt waits", func() bool { return s.waiting() == "1" })
		created := fmt.Sprint(n.task(id).Created.UnixMicro())
		if _, err := s.server.Connect(t, s.url).Exec(t.Context(),
			"INSERT INTO quern.runs (tenant, task, created, settlement) VALUES ($1, $2, $3, $4)", tenant, id, created, []byte(tt.row)); err != nil {
			t.Fatal(err)
		}
		s.exec("SELECT pg_advisory_unlock(7)")
		if task := n.wait(id); task.Status != queue.Failed || !strings.Contains(task.Failure().Message, tt.want) || task.Reschedules != 0 {
			t.Errorf("%s, %+v, put off %d times, want %q", task.Status, task.Failure(), task.Reschedules, tt.want)
		}
	}
	if _, err := n.client.Task(t.Context(), "forged"); err == nil {
		t.Error("the forged child is there")
	}
}

// waiting returns how many statements wait for an advisory lock.
func (s *shop) waiting() string {
	s.t.Helper()
	return s.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'")
}

// A commit that takes longer than it may ends in a known state, and costs an attempt: nothing is committed.
func TestALongCommit(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	s.atCommit("PERFORM nextval('commits'), pg_sleep(600);")
	n := s.start(t, tenant, "capabilities: {sql: [{database: shop, access: rw}]}\nretry: {max_attempts: 1}\n")
	task := n.wait(n.enqueue("buy", "INSERT INTO t VALUES (1);ok"))
	if f := task.Failure(); task.Status != queue.Failed || !strings.Contains(f.Message, "the commit on shop takes longer than 15s: raise timeout of database \"shop\"") {
		t.Errorf("%s, %+v", task.Status, f)
	}
	if got := s.text("SELECT count(*), (SELECT last_value FROM commits), (SELECT count(*) FROM quern.runs) FROM t"); got != "0 1 0" {
		t.Errorf("rows, commits and runs: %s", got)
	}
}

// A task that is cancelled during a commit that takes too long is cancelled, and has not failed.
func TestACancelDuringALongCommit(t *testing.T) {
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	s.atCommit("PERFORM nextval('commits'), pg_sleep(600);")
	for _, most := range []int{1, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			n := s.start(t, tenant, fmt.Sprintf("capabilities: {sql: [{database: shop, access: rw}]}\nretry: {max_attempts: %d}\n", most))
			id := n.enqueue("buy", "INSERT INTO t VALUES (1);ok")
			n.eventually("a commit under way", func() bool {
				return s.text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == "1"
			})
			if changed := n.client.Change(t.Context(), queue.ChangeCancel, id); changed.Err != nil {
				t.Fatal(changed.Err)
			}
			task := n.wait(id)
			if f := task.Failure(); task.Status != queue.Failed || task.Reason != queue.ReasonCancelled || f.Message != "cancelled while it ran" {
				t.Errorf("%s, %+v", task.Status, f)
			}
			if got := s.text("SELECT count(*), (SELECT count(*) FROM quern.runs) FROM t"); got != "0 0" {
				t.Errorf("rows and runs: %s", got)
			}
		})
	}
}

// A statement, or a commit, for which the server lacks memory or disk costs no attempt.
func TestAServerWithoutResources(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	const lack = "IF nextval('%s') = 1 THEN RAISE EXCEPTION 'out of shared memory' USING ERRCODE = '%s'; END IF;"
	s.exec("CREATE SEQUENCE calls; GRANT ALL ON calls TO public; CREATE FUNCTION lack() RETURNS void LANGUAGE plpgsql AS $$ BEGIN " + fmt.Sprintf(lack, "calls", "53200") + " END $$")
	s.atCommit(fmt.Sprintf(lack, "commits", "53100"))
	n := s.start(t, tenant, "capabilities: {sql: [{database: shop, access: rw}]}\nretry: {max_attempts: 1}\n")
	for _, id := range []string{n.enqueue("buy", "SELECT lack();ok"), n.enqueue("buy", "INSERT INTO t VALUES (1);ok")} {
		if task := n.wait(id); task.Status != queue.Complete || task.Attempts != 1 || task.Reschedules != 1 {
			t.Errorf("%s after %d attempts and %d put-offs: %+v", task.Status, task.Attempts, task.Reschedules, task.Failure())
		}
	}
	if s.sql.Sample().Away != 0 || s.log.has("does not serve") {
		t.Error("the database counts as away")
	}
}

// A statement, or a commit, that ends its own connection costs attempts in the end, so the task does not run for ever.
func TestAPoisonStatement(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	s := newShop(t, tenant)
	s.exec("CREATE FUNCTION die() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'SELECT pg_terminate_backend(pg_backend_pid())'")
	s.atCommit("PERFORM die();")
	n := s.start(t, tenant, "capabilities: {sql: [{database: shop, access: rw}]}\nretry: {max_attempts: 2, base: 10ms, min: 10ms}\n")
	ids := []string{n.enqueue("buy", "SELECT die();fail"), n.enqueue("buy", "INSERT INTO t VALUES (1);ok")}
	for _, id := range ids {
		task := n.wait(id)
		if f := task.Failure(); task.Status != queue.Failed || task.Attempts != 2 || task.Reschedules != maxLosses || !strings.Contains(f.Message, sql.ErrConnectionLost.Error()) {
			t.Errorf("%s after %d attempts and %d put-offs: %+v", task.Status, task.Attempts, task.Reschedules, f)
		}
	}
	if got := s.text("SELECT count(*) FROM t"); got != "0" {
		t.Errorf("%s rows", got)
	}
}
