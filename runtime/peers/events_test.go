package peers

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// The scenario: "index" and "mail" take a publication. "bills" fails, is tried again after one minute and after two, fails for ever, and
// then a handler for the dead ones runs; a webhook gets the publication as well.
const (
	eventAttempts = 3
	eventInterval = time.Minute
	eventPayload  = `{"order": 7}`
)

// events is what a system did, in words: the rows of the table.
type events struct {
	publish func(b *testing.B, key string)
	// ended tells whether all that was published has come to its end.
	ended func(b *testing.B) bool
	// tell ends the system, and says what it did.
	tell func(b *testing.B) map[string]string
}

// BenchmarkEvents has nsj-queue-lib and Quern do the same with publications, side by side in some four minutes, and prints what each
// did as a table in Markdown.
func BenchmarkEvents(b *testing.B) {
	folder, hooks := outFolder(b), newHooks(b)
	systems := []events{nsjEvents(b, hooks), quernEvents(b, hooks)}
	for _, s := range systems {
		s.publish(b, "order-7")
		s.publish(b, "order-7")
	}
	ticker, deadline := time.NewTicker(lookInterval), time.After(2*patience)
	defer ticker.Stop()
	for _, s := range systems {
		for !s.ended(b) {
			select {
			case <-ticker.C:
			case <-deadline:
				b.Fatal("not all that was published came to its end")
			}
		}
	}
	var told []map[string]string
	for _, s := range systems {
		told = append(told, s.tell(b))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "| the same publication, twice | %s | %s |\n|---|---|---|\n", told[0]["name"], told[1]["name"])
	for _, row := range []string{
		"tasks of the first", "tasks of the second, with the same key", "index and mail ran after", "bills ran after", "its dead handler ran after", "left of it",
		"webhook", "its signature", "purge",
	} {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", row, told[0][row], told[1][row])
	}
	report(b, folder, "events.md", text.String())
	b.ReportMetric(0, "ns/op") // of an iteration, which is all of this
}

// hooks is a server that takes webhooks.
type hooks struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string][]hook // by path; guarded by mu
}

type hook struct {
	at      time.Time
	headers http.Header
	body    string
}

func newHooks(b *testing.B) *hooks {
	h := &hooks{got: make(map[string][]hook)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got[r.URL.Path] = append(h.got[r.URL.Path], hook{time.Now(), r.Header, string(body)})
	}))
	b.Cleanup(h.Close)
	return h
}

// say tells what came to a path, and how it was signed.
func (h *hooks) say(path string, begun time.Time) (came, signed string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.got[path]
	if len(all) == 0 {
		return "nothing came", ""
	}
	came = fmt.Sprintf("%d times, first after %s: `%s`, content type %q", len(all), after(all[0].at, begun), all[0].body, all[0].headers.Get("Content-Type"))
	if signed = "none"; all[0].headers.Get("Webhook-Signature") != "" {
		signed = "Standard Webhooks"
	}
	return came, signed
}

// after writes how long after the publication something was.
func after(at, begun time.Time) string {
	if d := at.Sub(begun); d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return at.Sub(begun).Round(time.Second).String()
}

// nsjEvents is nsj-queue-lib with one worker. All that it does at certain minutes it does at each.
func nsjEvents(b *testing.B, h *hooks) events {
	database := startPostgres(b)
	python, err := filepath.Abs("../../build/peers/venv/bin/python")
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil || database == "" {
		b.Fatalf("nsj-queue-lib needs PostgreSQL and .ci/peers: %v", err)
	}
	pool := connectPostgres(b, database)
	b.Cleanup(pool.Close)
	to, err := url.Parse(database)
	if err != nil {
		b.Fatal(err)
	}
	minutes := "0"
	for minute := 1; minute < 60; minute++ {
		minutes += "," + strconv.Itoa(minute)
	}
	command := func(arguments ...string) *exec.Cmd {
		cmd := exec.Command(python, arguments...)
		cmd.Dir = "testdata/queues"
		cmd.Env = append(os.Environ(), "DB_DRIVER=POSTGRES", "DB_HOST=127.0.0.1", "DB_PORT="+to.Port(), "DB_BASE=postgres", "DB_USER=peer", "DB_PASS=peer",
			"QUEUE_NAME=events", "QUEUE_TABLE=events", "QUEUE_SUBSCRIBER_TABLE=events_subscriber", "QUEUE_MAX_RETRY="+strconv.Itoa(eventAttempts),
			fmt.Sprint("QUEUE_BASE_INTERVAL_RETRY=", eventInterval.Minutes()), "QUEUE_MINUTE_RETRY_THREAD="+minutes, "QUEUE_MINUTE_NOTIFY_THREAD="+minutes,
			"QUEUE_MINUTE_PURGE_THREAD="+minutes, "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	}
	made, err := command("-m", "nsj_queue_lib.db_gen", "public", "events").Output()
	if err == nil {
		_, err = pool.Exec(b.Context(), string(made))
	}
	for _, id := range []string{"index", "mail", "bills", "hook"} {
		if err == nil {
			_, err = pool.Exec(b.Context(), "insert into events_subscriber (id, processo, url, http_method, headers) values ($1, 'orders', $2, 'POST', '{}')", id, h.URL+"/nsj")
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	works := startWorker(b, command("nsj_peer.py", "work"))
	return events{
		publish: func(b *testing.B, key string) {
			if said, err := command("nsj_peer.py", "publish", key, eventPayload).CombinedOutput(); err != nil {
				b.Fatalf("publish: %v\n%s", err, said)
			}
		},
		ended: func(b *testing.B) bool {
			return rows(b, pool, "select count(*) from events where dead and status = 'sucesso'") > 0 &&
				rows(b, pool, "select count(*) from events where status not in ('sucesso', 'falha')") == 0
		},
		tell: func(b *testing.B) map[string]string {
			works.stop()
			var begun time.Time
			if err := pool.QueryRow(b.Context(), "select min(data_hora_inicial) from events").Scan(&begun); err != nil {
				b.Fatal(err)
			}
			runs := make(map[string][]string)
			for _, line := range strings.Split(works.said.String(), "\n") {
				var name string
				var at float64
				if n, _ := fmt.Sscanf(line, "peer %s %g", &name, &at); n == 2 {
					runs[name] = append(runs[name], after(time.UnixMicro(int64(at*1e6)), begun))
				}
			}
			came, signed := h.say("/nsj", begun)
			tasks := func(of string) string {
				return strconv.Itoa(rows(b, pool, "select count(distinct subscriber_id) from events where not dead and publication_id = (select "+of+"(id) from events where pub_sub)"))
			}
			first, second := tasks("min"), tasks("max")
			kept := rows(b, pool, "select count(*) from events")
			begin := time.Now()
			purging := command("nsj_peer.py", "work")
			purging.Env = append(purging.Env, "QUEUE_PURGE_MAX_AGE=0")
			defer startWorker(b, purging).stop()
			require.Eventually(b, func() bool { return rows(b, pool, "select count(*) from events") == 0 }, patience, lookInterval, "nothing was purged")
			return map[string]string{
				"name": "nsj-queue-lib 1.2.2", "tasks of the first": first, "tasks of the second, with the same key": second,
				"index and mail ran after": strings.Join(append(runs["index"], runs["mail"]...), ", "), "bills ran after": strings.Join(runs["bills"], ", "),
				"its dead handler ran after": strings.Join(runs["bills.dead"], ", "), "left of it": "a row for each attempt, and those of the dead one",
				"webhook": came, "its signature": signed,
				"purge": fmt.Sprintf("all %d rows %s after the worker's start with age 0", kept, after(time.Now(), begin)),
			}
		},
	}
}

func rows(b *testing.B, pool *pgxpool.Pool, sql string) (n int) {
	b.Helper()
	if err := pool.QueryRow(b.Context(), sql).Scan(&n); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
	return n
}

// eventsWork fails in the queue bills, and does nothing in the others.
const eventsWork = `
#include <stdlib.h>
#include <string.h>
int main(void) { return strcmp(getenv("TASK_QUEUE"), "bills") == 0; }
`

// quernEvents is a host with one plugin for the same.
func quernEvents(b *testing.B, h *hooks) events {
	folder, secrets := b.TempDir(), b.TempDir()
	for path, content := range map[string]string{
		filepath.Join(folder, "work.wasm"):                             string(runtimetest.BuildC(b, eventsWork)),
		filepath.Join(folder, "work.yaml"):                             "queues: [index, mail, bills, bills.dead]\n",
		filepath.Join(secrets, "blueque", queue.WebhookSecrets+"hook"): "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3",
	} {
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	server := queuetest.Start(b)
	client, err := queue.New(server.URL(), queue.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	retry := queue.Retry{MaxAttempts: eventAttempts, Backoff: queue.Linear, Base: eventInterval, Jitter: new(bool)}
	for _, s := range []queue.Subscription{
		{ID: "index", Queue: "index"},
		{ID: "mail", Queue: "mail"},
		{ID: "bills", Queue: "bills", Dead: "bills.dead"},
		{ID: "hook", Webhook: &queue.Webhook{URL: h.URL + "/quern", Secrets: []string{queue.WebhookSecrets + "hook"}}},
	} {
		s.Topic, s.Retry = "orders", retry
		if _, err := client.Subscribe(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
	host := startWorker(b, exec.Command(buildQuern(b), "serve", "--redis", server.URL(), "--plugins", folder, "--secrets", secrets, "--allow-networks", "127.0.0.0/8",
		"--cache", filepath.Join(b.TempDir(), "compiled"), "--http", "127.0.0.1:0"))
	names := []string{"index", "mail", "bills", "bills.dead", "webhook.hook"}
	var tasks []int
	of := func(name string) *queue.Task {
		list, err := manage.New(client).Queue(name).List(b.Context(), manage.ListOptions{})
		if err != nil || len(list) != 1 {
			b.Fatalf("%d tasks in %s: %v", len(list), name, err)
		}
		return list[0]
	}
	return events{
		publish: func(b *testing.B, key string) {
			made, err := client.Publish(b.Context(), "orders", []byte(eventPayload), queue.PublishOptions{ID: key})
			if err != nil {
				b.Fatal(err)
			}
			if made.Existed {
				made.Subscribers = 0
			}
			tasks = append(tasks, made.Subscribers)
		},
		ended: func(b *testing.B) bool {
			select {
			case <-host.ended:
				b.Fatal("the host has ended")
			default:
			}
			stats, err := manage.New(client).Stats(b.Context(), names...)
			if err != nil {
				b.Fatal(err)
			}
			done := int64(0)
			for _, s := range stats {
				done += s.Depth[queue.Complete] + s.Depth[queue.Failed]
			}
			return done == int64(len(names))
		},
		tell: func(b *testing.B) map[string]string {
			first, err := client.Publication(b.Context(), "order-7")
			if err != nil {
				b.Fatal(err)
			}
			begun, runs := first.Created, make(map[string][]string)
			for _, name := range names {
				attempts, err := manage.New(client).History(b.Context(), of(name))
				if err != nil {
					b.Fatal(err)
				}
				for _, one := range attempts {
					runs[name] = append(runs[name], after(one.Started, begun))
				}
			}
			came, signed := h.say("/quern", begun)
			begin, purged := time.Now(), 0
			for _, name := range names {
				n, err := manage.New(client).Queue(name).Purge(b.Context(), listen.PurgeOptions{Everything: true})
				if err != nil {
					b.Fatal(err)
				}
				purged += n
			}
			host.stop()
			return map[string]string{
				"name": "Quern", "tasks of the first": strconv.Itoa(tasks[0]), "tasks of the second, with the same key": strconv.Itoa(tasks[1]) + ": the publication's ID is the key",
				"index and mail ran after": strings.Join(append(runs["index"], runs["mail"]...), ", "), "bills ran after": strings.Join(runs["bills"], ", "),
				"its dead handler ran after": strings.Join(runs["bills.dead"], ", "), "left of it": "a task with its attempts, and its dead letter",
				"webhook": came, "its signature": signed,
				"purge": fmt.Sprintf("all %d tasks in %s", purged, time.Since(begin).Round(time.Millisecond)),
			}
		},
	}
}
