package relay

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// nsjWorld is a database with a queue table of nsj-queue-lib, made by its own script.
type nsjWorld struct {
	*world
	python []string // the environment of its clients and workers
}

//go:embed testdata/nsj.c
var nsjGuest string

const nsjMaxRetry = 2

func setupNsj(t testing.TB, w *world) *nsjWorld {
	t.Helper()
	packages, err := filepath.Abs("../../build/nsj")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(packages, "installed")); err != nil {
		runtimetest.Missing(t, "left out: there is no nsj-queue-lib; `make deps-all` brings it")
	}
	place, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	n := &nsjWorld{world: w, python: append(os.Environ(),
		"PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "DB_DRIVER=POSTGRES", "DB_HOST="+place.Hostname(), "DB_PORT="+place.Port(),
		"DB_BASE="+strings.Trim(place.Path, "/"), "DB_USER="+place.User.Username(), "DB_PASS=x", "QUEUE_NAME=fila",
		"QUEUE_TABLE=fila", "QUEUE_SUBSCRIBER_TABLE=fila_subscriber", fmt.Sprintf("QUEUE_MAX_RETRY=%d", nsjMaxRetry),
		"QUEUE_BASE_INTERVAL_RETRY=60", "QUEUE_MINUTE_RETRY_THREAD="+everyMinute, "QUEUE_MINUTE_NOTIFY_THREAD="+everyMinute,
	)}
	schema := n.command("-m", "nsj_queue_lib.db_gen", "public", "fila")
	text, err := schema.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.db.Script(t.Context(), string(text)); err != nil {
		t.Fatal(err)
	}
	return n
}

var everyMinute = func() string {
	minutes := make([]string, 60)
	for i := range minutes {
		minutes[i] = fmt.Sprint(i)
	}
	return strings.Join(minutes, ",")
}()

// command returns a call of Python.
func (n *nsjWorld) command(args ...string) *osexec.Cmd {
	cmd := osexec.CommandContext(context.Background(), filepath.Join("..", "..", "build", "venv", "bin", "python"), args...)
	cmd.Env = n.python
	return cmd
}

// enqueue inserts tasks with the unchanged QueueClient.
func (n *nsjWorld) enqueue(tasks ...map[string]any) {
	n.t.Helper()
	text, err := json.Marshal(tasks)
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := n.command("testdata/nsj.py", "enqueue")
	cmd.Stdin = bytes.NewReader(text)
	if text, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%v\n%s", err, text)
	}
}

// worker runs an unchanged worker until the end of the test, and waits until it listens. kill ends it like a crash.
func (n *nsjWorld) worker(env ...string) (kill func()) {
	n.t.Helper()
	const listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN fila%' AND datname = current_database()"
	before := n.value(listening)
	cmd := n.command("testdata/nsj.py", "worker")
	cmd.Env = append(cmd.Env, env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := false
	kill = func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if ended = true; n.t.Failed() {
				n.t.Logf("%s", output.Bytes()[max(0, output.Len()-4<<10):])
			}
		}
	}
	n.t.Cleanup(kill)
	var more int
	if _, err := fmt.Sscan(before, &more); err != nil {
		n.t.Fatal(err)
	}
	n.eventually(fmt.Sprint(more+1), func() string { return n.value(listening) })
	return kill
}

// nsjRelay runs a relay of the table.
func (n *nsjWorld) nsjRelay(change func(*Config)) (stop func()) {
	return n.relay(func(c *Config) {
		c.Nsj = &Nsj{Table: "fila", MaxRetry: nsjMaxRetry, RetryInterval: time.Hour}
		if change != nil {
			change(c)
		}
	})
}

// host runs a host that does what testdata/nsj.py does, until stop or the end of the test.
func (n *nsjWorld) host(queues ...string) (stop func()) { return n.world.host(nsjGuest, queues...) }

// nsjCase is a task, or rows that stand in the table, and what becomes of them.
type nsjCase struct {
	name string
	task map[string]any // for the QueueClient; its key is the name of the case
	sql  string         // inserts with the columns of nsjInserted; $key stands for the name of the case
	done string         // what the states of the rows are then, in their order
}

const nsjInserted = "INSERT INTO fila (origem, destino, processo, chave_externa, status, tentativa, data_hora, data_hora_inicial, payload, id_inicial, dead) VALUES "

var nsjCases = []nsjCase{
	{name: "success", task: map[string]any{"payload": "return done: ação"}, done: "sucesso"},
	{name: "nothing", task: map[string]any{"payload": "nothing"}, done: "sucesso"},
	{name: "no payload", task: map[string]any{"payload": nil}, done: "sucesso"},
	{name: "object", task: map[string]any{"payload": map[string]any{"a": "ção"}, "tenant": 7, "grupo_empresarial": "g"}, done: "sucesso"},
	{name: "failure", task: map[string]any{"payload": "fail no such order", "tenant": 7, "grupo_empresarial": "g"}, done: "falha agendada"},
	{name: "due", sql: `('o', 'd', 'p', $key, 'agendada', 1, now() - interval '1 minute', now(), 'return later', NULL, false)`, done: "sucesso"},
	{name: "last", sql: `('o', 'd', 'p', $key, 'falha', 1, now() - interval '2 minutes', now(), 'fail alive', NULL, false),
		('o', 'd', 'p', $key, 'agendada', 2, now() - interval '1 minute', now(), NULL, currval('fila_id_seq'), false)`, done: "falha falha sucesso"},
	{name: "dead", sql: `('o', 'd', 'p', $key, 'pendente', 2, now() - interval '2 minutes', now(), 'fail always', NULL, false)`, done: "falha falha agendada"},
	{name: "lost", sql: `('o', 'd', 'p', $key, 'processando', 1, now() - interval '2 minutes', now(), 'return x', NULL, false)`, done: "falha_processando agendada"},
	{name: "lost last", sql: `('o', 'd', 'p', $key, 'processando', 2, now() - interval '2 minutes', now(), 'return x', NULL, false)`, done: "falha_processando sucesso"},
	{name: "future", sql: `('o', 'd', 'p', $key, 'pendente', 1, now() + interval '1 hour', now(), 'return x', NULL, false)`, done: "pendente"},
	{name: "publication", task: map[string]any{"payload": "return read: ação", "publication": true, "processo": "topic", "tenant": 7}, done: "sucesso sucesso sucesso"},
	{name: "publication to all", task: map[string]any{"payload": "return read", "publication": true, "processo": "topic"}, done: "sucesso sucesso"},
	{name: "publication that fails", task: map[string]any{"payload": "fail it", "publication": true, "processo": "topic"}, done: "sucesso falha agendada"},
	{name: "publication to nobody", task: map[string]any{"payload": "x", "publication": true, "processo": "nobody"}, done: "sucesso"},
}

// insert makes the rows of all cases.
func (n *nsjWorld) insert() {
	n.t.Helper()
	n.exec(`INSERT INTO fila_subscriber (id, tenant, grupo_empresarial, processo, url, http_method, headers, ativo) VALUES
		('every', NULL, NULL, 'topic', NULL, NULL, NULL, true), ('one', 7, NULL, 'topic', NULL, NULL, '{"X": "ção"}', true),
		('other', 8, NULL, 'topic', NULL, NULL, NULL, true), ('group', NULL, 'g', 'topic', NULL, NULL, NULL, true),
		('off', NULL, NULL, 'topic', NULL, NULL, NULL, false)`)
	var tasks []map[string]any
	for _, c := range nsjCases {
		if c.sql != "" {
			n.exec(nsjInserted + strings.ReplaceAll(c.sql, "$key", "'"+c.name+"'"))
			continue
		}
		task := map[string]any{"processo": "p", "key": c.name}
		for name, value := range c.task {
			task[name] = value
		}
		tasks = append(tasks, task)
	}
	n.enqueue(tasks...)
}

// states returns the states of a case's rows.
func (n *nsjWorld) states(name string) string {
	return n.value("SELECT string_agg(status, ' ' ORDER BY id) FROM fila WHERE chave_externa = $1", name)
}

// left returns what is left in the rows of each case when all have ended: numbers of rows by their place in the case,
// and times as minutes after the first row's.
func (n *nsjWorld) left() map[string][]string {
	n.t.Helper()
	for _, c := range nsjCases {
		n.eventually(c.name+": "+c.done, func() string { return c.name + ": " + n.states(c.name) })
	}
	all := make(map[string][]string)
	err := n.db.Query(n.t.Context(), func(v postgres.Row) {
		all[v.Text(0)] = append(all[v.Text(0)], v.Text(1))
	}, `
		WITH placed AS (
		  SELECT *, row_number() OVER (PARTITION BY chave_externa ORDER BY coalesce(subscriber_id, ''), id) AS place,
		    first_value(data_hora) OVER (PARTITION BY chave_externa ORDER BY id) AS zero FROM fila
		)
		SELECT chave_externa, jsonb_build_object('place', place,
		  'id_inicial', (SELECT place FROM placed o WHERE o.id = p.id_inicial),
		  'data_hora_inicial', round(extract(epoch FROM data_hora_inicial - zero) / 60), 'data_hora', round(extract(epoch FROM data_hora - zero) / 60),
		  'origem', origem, 'destino', destino, 'processo', processo, 'proxima_tentativa', round(extract(epoch FROM proxima_tentativa - zero) / 60),
		  'tentativa', tentativa, 'status', status, 'reenfileirado', reenfileirado, 'estouro_tentativas', estouro_tentativas,
		  'mensagem', mensagem, 'id_anterior', (SELECT place FROM placed o WHERE o.id = p.id_anterior),
		  'data_hora_anterior', round(extract(epoch FROM data_hora_anterior - zero) / 60), 'status_anterior', status_anterior,
		  'mensagem_anterior', mensagem_anterior, 'tenant', tenant, 'grupo_empresarial', grupo_empresarial,
		  'payload', CASE WHEN subscriber_id IS NULL THEN to_jsonb(payload)
		    ELSE jsonb_set(payload::jsonb, '{subscription,created_at}', to_jsonb(length(payload::jsonb #>> '{subscription,created_at}'))) END,
		  'hash', payload_hash = convert_to(encode(sha256(convert_to(payload, 'UTF8')), 'hex'), 'UTF8'), 'hashed', length(payload_hash),
		  'pub_sub', pub_sub, 'publication', (SELECT place FROM placed o WHERE o.id = p.publication_id), 'subscriber', subscriber_id,
		  'dead', dead, 'live', (SELECT place FROM placed o WHERE o.id = p.live_id), 'prioridade', prioridade)
		FROM placed p ORDER BY chave_externa, place`)
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

// A relay with hosts leaves the same in the rows as the workers of nsj-queue-lib do.
func TestNsjRows(t *testing.T) {
	t.Parallel()
	theirs := setupNsj(t, setup(t))
	theirs.worker()
	theirs.insert()
	ours := setupNsj(t, setup(t))
	ours.host("p", "p.dead", "every", "every.dead", "one", "one.dead", "group")
	ours.insert()
	ours.nsjRelay(nil)
	got, want := ours.left(), theirs.left()
	for _, c := range nsjCases {
		for i := range max(len(got[c.name]), len(want[c.name])) {
			if i >= len(got[c.name]) || i >= len(want[c.name]) {
				t.Fatalf("%s: %d rows, want %d", c.name, len(got[c.name]), len(want[c.name]))
			}
			if got[c.name][i] != want[c.name][i] {
				t.Errorf("%s:\n%s, want\n%s", c.name, got[c.name][i], want[c.name][i])
			}
		}
	}
}

// count returns how many rows have a status.
func (n *nsjWorld) count(status string) string {
	return n.value("SELECT count(*) FROM fila WHERE status = $1", status)
}

// Workers of nsj-queue-lib and hosts share a table: each row runs once, and both get some.
func TestNsjShared(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.host("p")
	n.worker()
	n.worker()
	n.nsjRelay(nil)
	const rows = 300
	n.exec("INSERT INTO fila (processo, payload) SELECT 'p', 'sleep 20' FROM generate_series(1, $1)", rows)
	n.eventually(fmt.Sprint(rows), func() string { return n.count("sucesso") })
	if all := n.value("SELECT count(*) FROM fila"); all != fmt.Sprint(rows) {
		t.Errorf("%s rows", all)
	}
	ran := n.depth("p", queue.Complete)
	if ran == 0 || ran == rows {
		t.Errorf("hosts ran %d of %d rows", ran, rows)
	}
}

// A row that a worker of nsj-queue-lib has locked is left alone, as are rows in hand by its duties. When the worker
// dies, its row is tried again.
func TestNsjLocks(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	// The workers' duties take the locks 1 to 3, which are also those of the rows.
	n.exec("INSERT INTO fila (processo, payload, status) SELECT 'p', 'x', 'sucesso' FROM generate_series(1, 3)")
	n.exec("INSERT INTO fila (processo, payload) VALUES ('p', 'x')")
	other := n.server.Connect(t, n.url)
	locked := func(statement string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	locked("SELECT pg_advisory_lock(4)")
	n.host("p")
	n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload) VALUES ('p', 'x')")
	n.eventually("sucesso", func() string { return n.value("SELECT status FROM fila WHERE id = 5") })
	if got := n.value("SELECT status FROM fila WHERE id = 4"); got != "pendente" {
		t.Errorf("the locked row is %s", got)
	}
	locked("UPDATE fila SET status = 'processando' WHERE id = 4")
	n.exec("INSERT INTO fila (processo, payload) VALUES ('p', 'sleep 20000')")
	n.eventually("processando", func() string { return n.value("SELECT status FROM fila WHERE id = 6") })
	n.worker() // its duties run after 15 s
	n.eventually("t", func() string {
		return n.value("SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_advisory_unlock(1)%'")
	})
	for id, want := range map[int]string{4: "processando", 6: "processando"} {
		if got := n.value("SELECT status FROM fila WHERE id = $1", id); got != want {
			t.Errorf("row %d is %s, want %s", id, got, want)
		}
	}
	other.Close()
	n.eventually("falha_processando", func() string { return n.value("SELECT status FROM fila WHERE id = 4") })
	n.eventually("sucesso", func() string { return n.value("SELECT status FROM fila WHERE id = 6") })
}

// Where nsj-queue-lib loses something, the relay does not: a message longer than its column, the priority of a retry,
// and the payload of a task whose last worker died. An end for good uses up the attempts.
func TestNsjKept(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	long := strings.Repeat("é", 600)
	n.exec(`INSERT INTO fila (processo, payload, prioridade, chave_externa) VALUES ('p', 'return ' || $1, 1, 'result'),
		('p', 'fail ' || $1, 90, 'failure'), ('p', 'fatal ' || $1, 90, 'fatal')`, long)
	n.exec(`INSERT INTO fila (processo, payload, tentativa, chave_externa) VALUES ('p', 'return x', 1, 'payload')`)
	n.exec(`UPDATE fila SET status = 'falha' WHERE chave_externa = 'payload'`)
	n.exec(`INSERT INTO fila (processo, tentativa, chave_externa, status, id_inicial) SELECT processo, 2, chave_externa, 'processando', id
		FROM fila WHERE chave_externa = 'payload'`)
	n.host("p")
	n.nsjRelay(nil)
	for key, want := range map[string]string{
		"result":  "sucesso 500 1",
		"failure": "falha 500 90, agendada  90",
		"fatal":   "falha 500 90, pendente  90",
		"payload": "falha  50, falha_processando 109 50, pendente  50",
	} {
		n.eventually(key+": "+want, func() string {
			return key + ": " + n.value("SELECT string_agg(concat(status, ' ', length(mensagem), ' ', prioridade), ', ' ORDER BY id) FROM fila WHERE chave_externa = $1", key)
		})
	}
	for key, want := range map[string]string{"failure": "é. Tarefa reenfileirada.", "fatal": "é. Máximo de tentativas atingido."} {
		if got := n.value("SELECT mensagem FROM fila WHERE chave_externa = $1 ORDER BY id LIMIT 1", key); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", key, got)
		}
	}
	if got := n.value("SELECT concat(payload, ' ', live_id = (SELECT min(id) FROM fila WHERE chave_externa = 'payload')) FROM fila WHERE dead AND chave_externa = 'payload'"); got != "return x t" {
		t.Errorf("the dead row has %q", got)
	}
}

// Rows of higher priority run first, also those that come later.
func TestNsjPriority(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.exec("INSERT INTO fila (processo, payload) SELECT 'p', 'sleep 40' FROM generate_series(1, 600)")
	n.exec("INSERT INTO fila (processo, payload, prioridade) VALUES ('p', 'x', 90)")
	n.host("p")
	n.nsjRelay(nil)
	n.eventually("1", func() string {
		return n.value("SELECT count(*) FROM fila WHERE status = 'sucesso' AND prioridade = 90")
	})
	n.exec("INSERT INTO fila (processo, payload, prioridade) VALUES ('p', 'x', 80)")
	n.eventually("1", func() string {
		return n.value("SELECT count(*) FROM fila WHERE status = 'sucesso' AND prioridade = 80")
	})
	// The transaction that ended a row tells the order; how many have ended by now depends on the machine.
	n.eventually("602", func() string { return n.count("sucesso") })
	later := "SELECT count(*) FROM fila WHERE xmin::text::bigint > (SELECT xmin::text::bigint FROM fila WHERE prioridade = 80)"
	if got := n.value(later); got == "0" {
		t.Error("it ran last")
	}
}

// A relay that takes over finishes what the one before it has claimed: rows whose task has ended, runs or was never
// enqueued.
func TestNsjHandover(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	stopHost := n.host("p")
	stop := n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload) SELECT 'p', 'sleep 300' FROM generate_series(1, 20)")
	n.eventually("20", func() string { return n.count("processando") })
	n.eventually("20", func() string { // a row is claimed before its task is enqueued
		sum := int64(0)
		for _, status := range []queue.Status{queue.Pending, queue.Reserved, queue.Started, queue.Complete} {
			sum += n.depth("p", status)
		}
		return fmt.Sprint(sum)
	})
	stop()
	n.exec(`INSERT INTO fila (id, processo, payload, status, mensagem) VALUES (100, 'p', 'x', 'processando', 'Quern: nsj-fila-100-abc')`)
	n.eventually("20", func() string { return fmt.Sprint(n.depth("p", queue.Complete)) })
	n.nsjRelay(nil)
	n.eventually("21", func() string { return n.count("sucesso") })
	if got := n.depth("p", queue.Complete); got != 21 {
		t.Errorf("%d tasks, want 21", got)
	}
	stopHost()
}

// A row whose payload no task can have ends for good, also one that an earlier leader has claimed.
func TestNsjTooLarge(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.host("p")
	n.exec(`INSERT INTO fila (processo, payload, status, mensagem, id) VALUES
		('p', repeat('x', 64 * 1024 * 1024 + 1), 'pendente', NULL, 100),
		('p', repeat('x', 64 * 1024 * 1024 + 1), 'processando', 'Quern: nsj-fila-101-abc', 101),
		('p', 'return adopted', 'processando', 'Quern: nsj-fila-102-abc', 102)`)
	n.nsjRelay(nil)
	n.eventually("adopted", func() string { return n.value("SELECT mensagem FROM fila WHERE id = 102") })
	const want = "falha the payload has 67108865 bytes: a task may have 64MiB. Máximo de tentativas atingido."
	for _, id := range []int{100, 101} {
		n.eventually(want, func() string { return n.value("SELECT concat(status, ' ', mensagem) FROM fila WHERE id = $1", id) })
	}
	if retries := n.value("SELECT count(*) FROM fila WHERE status = 'agendada'"); retries != "0" {
		t.Errorf("%s retries", retries)
	}
}

// Rows wait that no host serves. When the hosts of a queue are gone, its rows are left to others.
func TestNsjServed(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	stop := n.host("slow")
	n.nsjRelay(func(c *Config) {
		c.Nsj.Queues = map[string]string{"Pedido Novo": "pedido", "*": "slow"}
	})
	n.exec("INSERT INTO fila (processo, payload) VALUES ('Pedido Novo', 'x'), ('anything', 'return x'), (NULL, 'return x')")
	n.eventually("2", func() string { return n.count("sucesso") })
	if got := n.value("SELECT status FROM fila WHERE processo = 'Pedido Novo'"); got != "pendente" {
		t.Errorf("the row that no host serves is %s", got)
	}
	stop()
	_, stop = n.listener("slow")
	n.exec("INSERT INTO fila (processo, payload) VALUES ('later', 'x')")
	n.eventually("1", func() string { return n.count("processando") })
	stop()
	n.eventually("2 0", func() string { return fmt.Sprint(n.count("pendente"), " ", n.depth("slow", queue.Pending)) })
	n.eventually("0", func() string {
		return n.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = 0 AND objid < 100")
	})
}

// The rows of a paused queue are left to others: those in hand too, and also if the answer of the cancel is lost.
func TestNsjPaused(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	proxy := queuetest.NewProxy(t, n.redis)
	_, stop := n.listener("q")
	n.nsjRelay(func(c *Config) { c.Tenants = map[string]*queue.Client{c.Tenant: n.through(proxy)} })
	n.exec("INSERT INTO fila (processo, payload) VALUES ('q', 'x')")
	n.eventually("1", func() string { return fmt.Sprint(n.depth("q", queue.Pending)) })
	task := strings.TrimPrefix(n.value("SELECT mensagem FROM fila"), markPrefix)
	cutCancel(proxy, "q", task)
	if err := manage.QueueOf(n.client.Queue("q")).Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.eventually("1", func() string { return n.count("pendente") })
	n.exec("INSERT INTO fila (processo, payload) VALUES ('q', 'x')")
	stop()
	n.host("q", "other")
	n.exec("INSERT INTO fila (processo, payload) VALUES ('other', 'x')")
	n.eventually("1 2", func() string { return n.count("sucesso") + " " + n.count("pendente") })
	if proxy.Cuts() != 1 {
		t.Errorf("%d answers were lost, want 1", proxy.Cuts())
	}
	if err := manage.QueueOf(n.client.Queue("q")).Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.eventually("3", func() string { return n.count("sucesso") })
	if all := n.value("SELECT count(*) FROM fila"); all != "3" {
		t.Errorf("%s rows, want 3", all)
	}
}

// A full queue holds up no other queue.
func TestNsjFull(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	if err := n.client.Queue("full").SetLimit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	n.listener("full")
	n.host("other")
	n.exec("INSERT INTO fila (processo, payload) SELECT 'full', 'x' FROM generate_series(1, 5)")
	n.nsjRelay(nil)
	n.eventually("queue is full", func() string {
		return n.value("SELECT substring(error FROM 'queue is full') FROM quern.relays")
	})
	n.exec("INSERT INTO fila (processo, payload) SELECT 'other', 'x' FROM generate_series(1, 5)")
	n.eventually("5", func() string { return n.count("sucesso") })
	if err := n.client.Queue("full").SetLimit(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	n.host("full")
	n.eventually("10", func() string { return n.count("sucesso") })
}

// A row in hand that somebody changes is left alone, and its task is cancelled. A row whose task is gone from Redis runs
// again.
func TestNsjAudit(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.listener("p")
	n.listener("q")
	n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload) VALUES ('p', 'x'), ('q', 'return again')")
	n.eventually("1 1", func() string { return fmt.Sprint(n.depth("p", queue.Pending), n.depth("q", queue.Pending)) })
	n.exec("UPDATE fila SET status = 'cancelada' WHERE processo = 'p'")
	n.eventually("0", func() string { return fmt.Sprint(n.depth("p", queue.Pending)) })
	rdb, task := n.redis.Client(t), strings.TrimPrefix(n.value("SELECT mensagem FROM fila WHERE processo = 'q'"), markPrefix)
	tenant := n.client.Tenant()
	if err := rdb.Del(t.Context(), tenant+"_task_"+task, tenant+"_once_"+task, tenant+"_pending_q").Err(); err != nil {
		t.Fatal(err)
	}
	n.host("q")
	n.eventually("again", func() string { return n.value("SELECT mensagem FROM fila WHERE processo = 'q'") })
	if got := n.value("SELECT status FROM fila WHERE processo = 'p'"); got != "cancelada" {
		t.Errorf("the changed row is %s", got)
	}
}

// Whatever dies, each row ends, as one success for each task: relays, the database and Redis are killed meanwhile.
func TestNsjKills(t *testing.T) {
	t.Parallel()
	w := &world{t: t, server: postgrestest.Start(t), redis: queuetest.Start(t, "--appendonly", "yes", "--appendfsync", "always")}
	w.url = w.server.Database(t)
	w.db = w.server.Connect(t, w.url)
	if err := Init(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	w.client = w.tenant(queuetest.Tenant())
	n := setupNsj(t, w)
	stopHost := n.host("p")
	stops := []func(){n.nsjRelay(nil), n.nsjRelay(nil)}
	rows := 0
	insert := func(count int) { // repeats what the death of the database has undone, as an application would
		for rows += count; ; {
			_, err := w.reconnect().Exec(t.Context(), `INSERT INTO fila (processo, payload, chave_externa)
				SELECT 'p', 'sleep 2', n::text FROM generate_series(1, $1::int) n
				WHERE NOT EXISTS (SELECT FROM fila WHERE chave_externa = n::text)`, rows)
			if err == nil {
				return
			}
		}
	}
	for round := range 4 {
		insert(400)
		switch round {
		case 0:
			stops[0]()
			stops[0] = n.nsjRelay(nil)
		case 1:
			w.redis.Restart(t)
		case 2:
			w.server.Restart(t)
		case 3:
			stopHost()
			n.host("p")
		}
		insert(400)
	}
	n.eventually(fmt.Sprint(rows), func() string {
		w.reconnect()
		return n.value("SELECT count(DISTINCT chave_externa) FROM fila WHERE status = 'sucesso'")
	})
	if got := n.value("SELECT count(*) FROM fila WHERE status <> 'sucesso'"); got != "0" {
		t.Errorf("%s rows did not succeed", got)
	}
	if got := n.depth("p", queue.Complete); got < int64(rows) {
		t.Errorf("%d tasks of %d rows", got, rows)
	}
}

// What is wrong with a database is told with its remedy, and nothing is claimed.
func TestNsjWrong(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	role := "relay_" + queuetest.Tenant()
	n.exec("CREATE ROLE " + role + " LOGIN")
	as := strings.Replace(n.url, "postgres@", role+"@", 1)
	wrong := func(url string, table Nsj, want string) {
		t.Helper()
		address, err := postgres.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Database: address, Tenant: n.client.Tenant(), Tenants: map[string]*queue.Client{n.client.Tenant(): n.client}, Nsj: &table})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.lead(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", table, err, want)
		}
	}
	wrong(n.url, Nsj{Table: "nosuch"}, "no table nosuch")
	wrong(n.url, Nsj{Table: "fila", Subscribers: "nosuch"}, "no table nosuch")
	wrong(n.url, Nsj{Table: "fila_subscriber"}, "payload is missing")
	if err := GrantRelay(t.Context(), n.db, role); err != nil {
		t.Fatal(err)
	}
	wrong(as, Nsj{Table: "fila"}, "GRANT SELECT, INSERT, UPDATE ON public.fila TO "+role)
	n.exec("GRANT SELECT, INSERT, UPDATE ON fila TO " + role)
	wrong(as, Nsj{Table: "fila"}, "GRANT USAGE ON SEQUENCE public.fila_id_seq TO "+role)
	n.exec("GRANT USAGE ON SEQUENCE fila_id_seq TO " + role)
	wrong(as, Nsj{Table: "fila"}, "GRANT SELECT ON public.fila_subscriber TO "+role)
	if err := GrantNsj(t.Context(), n.db, "fila", role); err != nil {
		t.Fatal(err)
	}
	wrong(n.server.Pooler(t)(n.url), Nsj{Table: "fila"}, "give the URL without the pooler as direct")
	n.exec("ALTER TABLE fila DROP COLUMN prioridade, ALTER COLUMN payload_hash TYPE text USING ''")
	wrong(n.url, Nsj{Table: "fila"}, "payload_hash is text and should be bytea, prioridade is missing")
}

// When the session with the locks ends, the rows in hand are locked again, and run to their end once.
func TestNsjSessionLost(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.host("p")
	n.nsjRelay(nil)
	const sessions = "FROM pg_stat_activity WHERE application_name IN ('quern relay, locks', 'quern relay, nsj') AND datname = current_database()"
	for range 2 { // with tasks that run longer than the next term needs to begin
		n.exec("INSERT INTO fila (processo, payload) SELECT 'p', 'sleep 3000' FROM generate_series(1, 5)")
		n.eventually("5", func() string { return n.count("processando") })
		if got := n.value("SELECT count(pg_terminate_backend(pid)) " + sessions); got != "2" {
			t.Errorf("%s sessions, want 2", got)
		}
		n.eventually("0", func() string { return n.value("SELECT count(*) FROM fila WHERE status NOT IN ('sucesso', 'agendada')") })
	}
	if got := n.depth("p", queue.Complete); got != 10 {
		t.Errorf("%d tasks, want 10", got)
	}
	if got := n.value("SELECT count(*) FROM fila"); got != "10" {
		t.Errorf("%s rows, want 10", got)
	}
}
