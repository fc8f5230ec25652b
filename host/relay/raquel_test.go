package relay

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

//go:embed testdata/raquel.py
var raquelDriver string

//go:embed testdata/raquel.c
var raquelGuest string

// raquel is a world with a table of Raquel, and a Python process with the real package.
type raquel struct {
	*world
	python *queuetest.Driver
}

func setupRaquel(t testing.TB) *raquel {
	t.Helper()
	r := &raquel{world: setup(t)}
	r.python = r.process()
	r.python.Do(nil, "create_all")
	return r
}

// process starts another Python process.
func (r *raquel) process() *queuetest.Driver {
	r.t.Helper()
	packages, err := filepath.Abs("../../build/raquel")
	if err == nil {
		_, err = os.Stat(packages)
	}
	if err != nil {
		runtimetest.Missing(r.t, "left out: there is no Raquel; `make deps-all` brings it")
	}
	return queuetest.StartDriver(r.t, "Raquel", raquelDriver, packages,
		strings.Replace(r.url, "postgres://", "postgresql+psycopg2://", 1))
}

// relayRaquel runs a relay of the table.
func (r *raquel) relayRaquel(change func(*Config)) (stop func()) {
	r.t.Helper()
	return r.relay(func(c *Config) {
		c.Raquel = &Raquel{Table: "jobs"}
		if change != nil {
			change(c)
		}
	})
}

// host runs a host that serves queues with the guest of these tests, until stop or the end of the test.
func (r *raquel) host(queues ...string) (stop func()) { return r.world.host(raquelGuest, queues...) }

func (r *raquel) enqueue(name, payload string, options map[string]any) (id string) {
	r.t.Helper()
	if options == nil {
		options = map[string]any{}
	}
	r.python.Do(&id, "enqueue", name, payload, options)
	return id
}

// row describes all of a row that does not differ from run to run.
func (r *raquel) row(id string) (text string) {
	r.t.Helper()
	err := r.db.Query(r.t.Context(), func(v postgres.Row) {
		text = fmt.Sprintf("%s attempts=%s error=%s trace=%s claimed=%s,%s finished=%s due=%s", v.Text(0), v.Text(1), v.Text(2), v.Text(3), v.Text(4), v.Text(5), v.Text(6), v.Text(7))
	}, `SELECT status, attempts, error, error_trace IS NOT NULL, claimed_by IS NOT NULL, claimed_at IS NOT NULL,
		finished_at IS NOT NULL, CASE WHEN status = 'failed' THEN 'finished + ' || round((scheduled_at - finished_at) / 10.0) * 10
		ELSE 'enqueued + ' || round((scheduled_at - enqueued_at) / 10000.0) * 10000 END FROM jobs WHERE id = $1`, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// raquelCases are ways in which rows end. A payload has a step for each attempt: see testdata/raquel.c. until is the
// beginning of the row at which the case ends.
var raquelCases = map[string]struct {
	payload string
	options map[string]any
	until   string
}{
	"Success":          {"0", nil, "success"},
	"NoPayload":        {"", nil, "success"},
	"Failed":           {"1 0 boom", map[string]any{"backoff_base": 60_000}, "failed attempts=1"},
	"FailedMin":        {"1 0 boom", map[string]any{"min_retry_delay": 90_000}, "failed attempts=1"},
	"FailedMax":        {"1 0 boom", map[string]any{"backoff_base": 90_000, "max_retry_delay": 70_000}, "failed attempts=1"},
	"FailedTwice":      {"1 0 first;1 0 second;0", map[string]any{"min_retry_delay": 1, "max_retry_delay": 1}, "success attempts=3"},
	"WithinAge":        {"0", map[string]any{"max_age": 60_000}, "success"},
	"Exhausted":        {"1 0 first;1 0 second;1 0 third", map[string]any{"max_retry_count": 3, "min_retry_delay": 1, "max_retry_delay": 20}, "exhausted"},
	"ExhaustedAtOnce":  {"1 0 boom", map[string]any{"max_retry_count": 1}, "exhausted"},
	"Rescheduled":      {"75 60000 later", nil, "queued attempts=1"},
	"RescheduledLeast": {"75 0 later", map[string]any{"min_retry_delay": 70_000}, "queued attempts=1"},
	"RescheduledLate":  {"75 80000 later", map[string]any{"age": 30_000}, "queued attempts=1"},
	"RescheduledAfter": {"1 0 boom;75 60000 later", map[string]any{"min_retry_delay": 1, "max_retry_delay": 1}, "queued attempts=2"},
	"SuccessAfter":     {"1 0 boom;0", map[string]any{"min_retry_delay": 1, "max_retry_delay": 1}, "success"},
	"Expired":          {"0", map[string]any{"age": 10_000, "max_age": 5000}, "expired"},
	"Delayed":          {"0", map[string]any{"delay": 300}, "success"},
}

// A row ends as Raquel's own worker leaves it: this test runs each case with the worker first.
func TestRaquelEnds(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	want := make(map[string]string)
	ids := make(map[string]string)
	for name, c := range raquelCases {
		ids[name] = r.enqueue("python", c.payload, c.options)
	}
	r.python.Do(nil, "work", "python", 0.01, 60_000)
	for name, c := range raquelCases {
		r.eventually(c.until, func() string { return r.row(ids[name])[:len(c.until)] })
		want[name] = r.row(ids[name])
		t.Logf("%s: %s", name, want[name])
	}
	r.relayRaquel(nil)
	for name, c := range raquelCases {
		ids[name] = r.enqueue("q", c.payload, c.options)
	}
	for name, c := range raquelCases {
		r.eventually(c.until, func() string { return r.row(ids[name])[:len(c.until)] })
		// A handler in C leaves no trace of an error.
		if got := r.row(ids[name]); got != strings.Replace(want[name], "trace=t", "trace=f", 1) {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
	}
}
