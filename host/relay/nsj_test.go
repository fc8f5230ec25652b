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
	"github.com/quern-project/quern/runtime/runtimetest"
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
	// nsj-queue-lib 1.2.2 prints this line with its words in an order that PostgreSQL does not take.
	if err := w.db.Script(t.Context(), strings.Replace(string(text), "boolean not null default true", "boolean default true not null", 1)); err != nil {
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

// nsjCase is a task, or rows that stand in the table, and how many rows come of it.
type nsjCase struct {
	name string
	task map[string]any // for the QueueClient; its key is the name of the case
	sql  string         // inserts with the columns of nsjInserted; $key stands for the name of the case
	rows int            // how many there are when all is done
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
