package host

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue/listen"
)

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
	h.Failed(opReserve, "q", full)
	h.Failed(opPoll, "", full)
	h.Succeeded(listen.OpRenew, "")
	h.Succeeded(opPoll, "")
	h.Failed(opReserve, "q", full)
	check(false, 1, 0, 0)
	if h.mayReserve(time.Now()) {
		t.Error("reserving does not pause")
	}
	h.Succeeded(opReserve, "q")
	check(true, 1, 1, 0)
	if !h.mayReserve(time.Now()) {
		t.Error("reserving pauses after a success")
	}
	h.Failed(opReserve, "q", damaged)
	h.Failed(opReserve, "q", damaged)
	h.Failed(opSettle, "q", damaged)
	h.Succeeded(opReserve, "other")
	check(true, 1, 1, 2)
	h.Succeeded(opReserve, "q")
	h.Failed(opReserve, "q", full)
	check(false, 2, 1, 2)
	h.Failed(opReserve, "q", damaged) // an answer
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
	h.Failed(listen.OpJoin, "", errors.Join(same, same, errors.New("NOPERM key t_queues")))
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
		h.NoDeadLetter(opSettle, "q", "WRONGTYPE")
		h.NoDeadLetter(opSettle, "other", "WRONGTYPE")
		h.NoDeadLetter(opSettle, "q", "")
		h.Succeeded(opSettle, "q")
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
