package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// gone reports whether a task does not exist any more.
func (w *world) gone(task string) bool {
	_, err := w.client.Summary(w.t.Context(), task)
	return errors.Is(err, queue.ErrNoTask)
}

// empty waits until a queue has no tasks: those of lost rows are cancelled and deleted.
func (w *world) empty(name string) {
	w.t.Helper()
	w.eventually("0", func() string {
		return fmt.Sprint(w.depth(name, queue.Pending) + w.depth(name, queue.Started) + w.depth(name, queue.Failed))
	})
}

// A table that is emptied, and whose dump is loaded back, loses no row: claimed ones run again, also if another relay
// leads meanwhile.
func TestRaquelRestored(t *testing.T) {
	t.Parallel()
	for name, handover := range map[string]bool{"SameLeader": false, "OtherLeader": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &raquel{world: setup(t)}
			r.exec(raquelDocumented)
			r.host("q")
			stop := r.relayRaquel(nil)
			r.exec("INSERT INTO jobs (queue, payload) SELECT 'q', '0 600000' FROM generate_series(1, 8)")
			r.eventually("8", func() string { return r.value("SELECT count(*) FROM jobs WHERE status = 'claimed'") })
			r.eventually("true", func() string { return fmt.Sprint(r.depth("q", queue.Started) > 0) })
			r.exec("CREATE TABLE dump AS TABLE jobs")
			r.exec("TRUNCATE jobs")
			r.empty("q")
			if handover {
				stop()
				r.relayRaquel(nil)
			}
			r.exec("UPDATE dump SET payload = '0'")
			r.exec("INSERT INTO jobs TABLE dump")
			r.eventually("8", func() string { return r.value("SELECT count(*) FROM jobs WHERE status = 'success' AND attempts = 1") })
		})
	}
}

// So does a queue table of nsj-queue-lib.
func TestNsjRestored(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.host("p")
	n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload) SELECT 'p', 'sleep 600000' FROM generate_series(1, 8)")
	n.eventually("8", func() string { return n.count("processando") })
	n.eventually("true", func() string { return fmt.Sprint(n.depth("p", queue.Started) > 0) })
	n.exec("CREATE TABLE dump AS TABLE fila")
	n.exec("TRUNCATE fila")
	n.empty("p")
	n.exec("UPDATE dump SET payload = 'return x'")
	n.exec("INSERT INTO fila TABLE dump")
	n.eventually("8", func() string { return n.count("sucesso") })
	if got := n.value("SELECT count(*) FROM fila"); got != "8" {
		t.Errorf("%s rows, want 8", got)
	}
}

// A row that is back before its task has stopped runs again after that.
func TestRaquelRestoredBeforeStop(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	began, stopped, end, again := make(chan struct{}), make(chan struct{}), make(chan struct{}), false
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, r.client, "q", func(ctx context.Context, _ *queue.Task) ([]byte, error) {
			if again {
				return nil, nil
			}
			again = true
			close(began)
			<-ctx.Done()
			close(stopped)
			<-end
			return nil, ctx.Err()
		})
	}()
	r.relayRaquel(nil)
	id := r.insert("0")
	<-began
	r.exec("CREATE TABLE dump AS TABLE jobs")
	r.exec("TRUNCATE jobs")
	<-stopped
	r.exec("INSERT INTO jobs TABLE dump")
	r.eventually("t", func() string { // it is adopted, and its claim renewed
		return r.value("SELECT j.claimed_at > d.claimed_at FROM jobs j JOIN dump d USING (id)")
	})
	close(end)
	r.eventually("success 1", func() string { return r.state(id) })
	stop()
	<-done
}

// A dump that has a row as claimed, which was given back since, is no cancel of this row either.
func TestRaquelRestoredAfterGivenBack(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	_, stop := r.listener("q")
	r.relayRaquel(nil)
	id := r.insert("0")
	r.eventually("1", func() string { return fmt.Sprint(r.depth("q", queue.Pending)) })
	r.exec("CREATE TABLE dump AS TABLE jobs")
	stop()
	r.eventually("queued 0 0", func() string { return fmt.Sprint(r.state(id), " ", r.depth("q", queue.Pending)) })
	r.exec("DELETE FROM jobs")
	r.exec("INSERT INTO jobs TABLE dump")
	r.host("q")
	r.eventually("success 1", func() string { return r.state(id) })
}

// A row in hand whose number of attempts or ID somebody changes runs again, as what it is now.
func TestRaquelChangedInHand(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.host("q")
	r.relayRaquel(nil)
	first, second := r.insert("0 600000"), r.insert("0 600000")
	tasks := []string{"raquel-" + first + "-0", "raquel-" + second + "-0"}
	for _, task := range tasks {
		r.eventually("true", func() string { return fmt.Sprint(r.running(task)) })
	}
	r.exec("UPDATE jobs SET attempts = 7, payload = '0' WHERE id = $1", first)
	other := r.value("UPDATE jobs SET id = gen_random_uuid(), payload = '0' WHERE id = $1 RETURNING id", second)
	r.eventually("success 8", func() string { return r.state(first) })
	r.eventually("success 1", func() string { return r.state(other) })
	for _, task := range tasks {
		r.eventually("true", func() string { return fmt.Sprint(r.gone(task)) })
	}
}
