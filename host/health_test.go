package host

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quern-project/quern/metrics"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	var b backoff
	now := time.Unix(1, 0)
	for _, want := range []int{50, 100, 200, 400, 800, 1600, 2000, 2000} {
		if !b.over(now) {
			t.Fatalf("not over before the pause of %d ms", want)
		}
		if left := b.failed(now); left != time.Duration(want)*time.Millisecond {
			t.Errorf("pause of %s, want %d ms", left, want)
		}
		now = now.Add(10 * time.Millisecond)
		if left := b.failed(now); left != time.Duration(want-10)*time.Millisecond || b.over(now) {
			t.Errorf("what failed meanwhile made the pause %s", left)
		}
		now = now.Add(time.Duration(want-10) * time.Millisecond)
	}
	b.succeeded()
	if left := b.failed(now); left != minBackoff {
		t.Errorf("pause of %s after a success", left)
	}
}

// A success of one kind says nothing of another, and a refused queue nothing of Redis.
func TestHealth(t *testing.T) {
	t.Parallel()
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	h := newHealth(m, hclog.New(&hclog.LoggerOptions{Output: log}), func() {})
	check := func(healthy bool, warned, back, refused int) {
		t.Helper()
		if h.healthy() != healthy || log.lines("cannot reach Redis") != warned || log.lines("answers again") != back || log.lines("refuses a queue") != refused {
			t.Errorf("healthy %v, want %v, %d warned, %d back, %d refused; the log:\n%s", h.healthy(), healthy, warned, back, refused, log)
		}
	}
	full, damaged := io.ErrUnexpectedEOF, errors.New("WRONGTYPE")
	h.failed(opReserve, "q", full)
	h.failed(opDue, "", full)
	h.succeeded(opRenew, "")
	h.succeeded(opDue, "")
	h.failed(opReserve, "q", full)
	check(false, 1, 0, 0)
	if h.mayReserve(time.Now()) {
		t.Error("reserving does not pause")
	}
	h.succeeded(opReserve, "q")
	check(true, 1, 1, 0)
	if !h.mayReserve(time.Now()) {
		t.Error("reserving pauses after a success")
	}
	h.failed(opReserve, "q", damaged)
	h.failed(opReserve, "q", damaged)
	h.failed(opSettle, "q", damaged)
	h.succeeded(opReserve, "other")
	check(true, 1, 1, 2)
	h.succeeded(opReserve, "q")
	h.failed(opReserve, "q", full)
	check(false, 2, 1, 2)
	h.failed(opReserve, "q", damaged) // an answer
	check(true, 2, 2, 3)
}

// Dead letters that are not written are told of once in a row for each queue, and each is counted.
// What several calls were refused for is one line of the log, and each reason stands there once.
func TestRefusalInOneLine(t *testing.T) {
	t.Parallel()
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	h := newHealth(m, hclog.New(&hclog.LoggerOptions{Output: log}), func() {})
	same := errors.New("WRONGTYPE key t_nodes")
	h.failed(opReclaim, "", errors.Join(same, same, errors.New("NOPERM key t_queues")))
	if !log.has("[ERROR]", `error="WRONGTYPE key t_nodes; NOPERM key t_queues"`) {
		t.Errorf("the log:\n%s", log)
	}
}

func TestDeadLettersAreNotWritten(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	h := newHealth(m, hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug}), func() {})
	for range 3 {
		h.noDeadLetter(opSettle, "q", "WRONGTYPE")
		h.noDeadLetter(opSettle, "other", "WRONGTYPE")
		h.noDeadLetter(opSettle, "q", "")
		h.succeeded(opSettle, "q")
	}
	for _, name := range []string{"q", "other"} {
		if told := log.lines("[ERROR]", "its dead letter was not written", "queue="+name); told != 1 {
			t.Errorf("those of %s are told of %d times:\n%s", name, told, log)
		}
	}
	if told := log.lines("its dead letter was not written"); told != 6 {
		t.Errorf("%d lines in all, want 6", told)
	}
}

// A task that falls due brings the next poll forward; it does not put off the regular one, nor make polls follow each other
// without a pause.
func TestNextRun(t *testing.T) {
	t.Parallel()
	var d duty
	now := time.Now()
	about := func(what string, got, want time.Duration) {
		t.Helper()
		if got > want || got < want-time.Minute {
			t.Errorf("%s: after %s, want %s", what, got, want)
		}
	}
	next := func(regular, earliest time.Time) time.Duration {
		d.earliest = earliest
		d.plan(regular)
		return time.Until(d.begins())
	}
	about("nothing known", next(now.Add(time.Hour), now), time.Hour)
	d.askBy(now.Add(2 * time.Hour))
	about("due after the regular run", next(now.Add(time.Hour), now), time.Hour)
	d.askBy(now.Add(10 * time.Minute))
	d.askBy(now.Add(20 * time.Minute))
	about("due before it", next(now.Add(time.Hour), now), 10*time.Minute)
	d.askBy(now.Add(-time.Minute))
	about("overdue", next(now.Add(time.Hour), now.Add(5*time.Minute)), 5*time.Minute)
}
