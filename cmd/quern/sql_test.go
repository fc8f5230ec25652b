package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// bookGuest inserts its input's row, whose task it names, and enqueues a child; before it ends it waits for the lock 7
// if somebody holds it.
const bookGuest = `
#include "quern.h"
static char input[64], id[64], room[256], answer[1024];
static int32_t run(quern_view values, const char *statement) {
	int32_t size = quern_slot(quern_sql("shop", 4, statement, quern_length(statement), QUERN_VIEW(values)), answer, sizeof answer);
	quern_rows rows;
	return size < 0 || quern_split_rows(answer, (uint32_t)size, &rows) < 0;
}
QUERN_HANDLER int32_t handle(void) {
	int32_t size = quern_input(input, sizeof input), named = quern_slot(quern_task_text(QUERN_TASK_ID), id, sizeof id);
	quern_builder values = quern_build(room, sizeof room);
	if (run(quern_view_of(room, 0), "SELECT pg_advisory_xact_lock_shared(7)")) return 1;
	quern_add_value(&values, id, (uint32_t)named);
	if (run(quern_view_of(values.data, values.size), "INSERT INTO booked (task) VALUES ($1)")) return 1;
	quern_output_write(input, (uint32_t)size);
	return quern_enqueue("booked", 6, id, (uint32_t)named, 0, 0) < 0;
}`

// Tasks that insert a row, complete and enqueue a child do each exactly once, although their hosts are killed: one
// between its commit and the completion in Redis, others at any time.
func TestSQLExactlyOnce(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	server, redis := postgrestest.Shared(t), queuetest.Start(t)
	url := server.Database(t)
	owner := server.Connect(t, url)
	role := "booker_" + queuetest.Tenant()
	u := newUser(t, redis.URL())
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN", "CREATE TABLE booked (id bigserial PRIMARY KEY, task text)",
		"GRANT INSERT ON booked TO " + role, "GRANT USAGE ON booked_id_seq TO " + role,
	} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	u.must("database", "init", "--postgres", url, "--grant-handler", role)
	secrets := t.TempDir()
	if err := os.Mkdir(filepath.Join(secrets, queue.DefaultTenant), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(secrets, queue.DefaultTenant, "database.shop"), strings.Replace(url, "postgres@", role+"@", 1))
	plugins := folder(t, map[string][]byte{"book": runtimetest.BuildCHandler(t, bookGuest)})
	write(t, filepath.Join(plugins, "book.yaml"), "name: book\ncapabilities: {sql: [{database: shop, access: rw}], enqueue: {queues: [booked]}}\n")
	value := func(statement string) (value string) {
		t.Helper()
		if err := owner.Query(t.Context(), func(r postgres.Row) { value = r.Text(0) }, statement); err != nil {
			t.Fatal(err)
		}
		return value
	}
	serve := func(redisURL string) *child {
		c := newUser(t, redisURL).spawn("serve", "--plugins", plugins, "--secrets", secrets, "--http", "127.0.0.1:0", "--lease", "1s", "--max-crashes", "1000")
		c.stderr.await(t, regexp.MustCompile(`serving queue: .*queue=book`))
		return c
	}
	kill := func(c *child) {
		_ = c.Process.Kill()
		c.wait(t)
	}

	proxy := queuetest.NewProxy(t, redis)
	value("SELECT pg_advisory_lock(7)")
	first := serve(proxy.URL())
	u.must("enqueue", "book", "one", "--id", "one")
	eventually(t, "the guest waits", func() bool {
		return value("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'") == "1"
	})
	proxy.Block()
	value("SELECT pg_advisory_unlock(7)")
	eventually(t, "the commit", func() bool { return value("SELECT count(*) FROM quern.runs") == "1" })
	kill(first)
	if got := u.must("task", "show", "one"); !strings.Contains(got, "started") {
		t.Fatalf("it is complete although its host was killed before:\n%s", got)
	}
	next := serve(redis.URL())
	if got := u.must("task", "wait", "one"); got != "one" {
		t.Errorf("result %q", got)
	}
	const tasks = 300
	for i := range tasks {
		u.must("enqueue", "book", "many", "--id", fmt.Sprint("many", i))
	}
	for killed := range 5 {
		eventually(t, "some more", func() bool {
			return value(fmt.Sprintf("SELECT count(*) >= %d FROM booked", killed*tasks/6)) == "t"
		})
		kill(next)
		next = serve(redis.URL())
	}
	for i := range tasks {
		if got := u.must("task", "wait", fmt.Sprint("many", i)); got != "many" {
			t.Errorf("result %q", got)
		}
	}
	if got := value("SELECT concat(count(*), ' ', count(DISTINCT task)) FROM booked"); got != fmt.Sprint(tasks+1, " ", tasks+1) {
		t.Errorf("rows and tasks: %s", got)
	}
	if got := u.must("queue", "show", "booked"); !regexp.MustCompile(fmt.Sprintf(`booked +0 +%d +0 `, tasks+1)).MatchString(got) {
		t.Errorf("children:\n%s", got)
	}
}
