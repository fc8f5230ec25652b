package queue_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// keep keeps a record of the run of a task.
func (w *world) keep(node *listen.Node, hold listen.Claim, record []byte) error {
	return node.KeepRecords(w.ctx, []listen.RunRecord{{Claim: hold, Bytes: record}})[0]
}

// The record of a run is kept with its task, by the run that holds or has settled it, and goes with it.
func TestRecord(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		if _, err := manage.New(w.Client).Record(w.ctx, id); !errors.Is(err, manage.ErrNoRecord) {
			t.Errorf("before it ran: %v", err)
		}
		node, hold := w.held(t, "q")
		record := []byte("\x00\xff bytes")
		if err := w.keep(node, hold, record); err != nil {
			t.Fatal(err)
		}
		lost := hold
		lost.Run++
		if err := w.keep(node, lost, []byte("of another run")); !errors.Is(err, queue.ErrLost) {
			t.Errorf("of a run that does not hold it: %v", err)
		}
		if got, err := manage.New(w.Client).Record(w.ctx, id); err != nil || !bytes.Equal(got, record) {
			t.Errorf("%q, %v", got, err)
		}
		if task := w.task(t, id); task.RecordRun != hold.Run || task.RecordSize != int64(len(record)) {
			t.Errorf("the task says run %d, %d bytes", task.RecordRun, task.RecordSize)
		}
		if err := w.keep(node, hold, nil); err != nil { // too large
			t.Fatal(err)
		}
		if _, err := manage.New(w.Client).Record(w.ctx, id); !errors.Is(err, manage.ErrNoRecord) {
			t.Errorf("of one too large: %v", err)
		}
		if task := w.task(t, id); task.RecordRun != hold.Run || task.RecordSize != 0 {
			t.Errorf("of one too large the task says run %d, %d bytes", task.RecordRun, task.RecordSize)
		}
	})
}

// All records of a tenant have a bound: the oldest go first, and a newer record of the same task stays.
func TestRecordsOfATenant(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const size, most = 4 << 20, store.RecordBytes / (4 << 20)
		var ids []string
		for i := range most + 2 {
			ids = append(ids, w.enqueue(t, "q", fmt.Sprint(i), queue.Options{}))
			node, hold := w.held(t, "q")
			if err := w.keep(node, hold, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		for i, id := range ids {
			_, err := manage.New(w.Client).Record(w.ctx, id)
			if kept := i >= 2; (err == nil) != kept {
				t.Errorf("record %d: %v", i, err)
			}
			if has := w.task(t, id).RecordSize > 0; has != (i >= 2) {
				t.Errorf("task %d has one: %t", i, has)
			}
		}
		if n := must[int64](t)(w.rdb.ZCard(w.ctx, w.Store().Keys.Records()).Result()); n != most+1 { // and the bytes of all
			t.Errorf("%d entries", n)
		}
	})
}

// A record that another one of the task replaces counts no more, whatever its size.
func TestReplacedRecords(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		bytesOf := func() int64 {
			return -int64(must[float64](t)(w.rdb.ZScore(w.ctx, w.Store().Keys.Records(), ".").Result()))
		}
		const size = 4 << 20
		w.enqueue(t, "q", "first", queue.Options{ID: "first"})
		node, hold := w.held(t, "q")
		if err := w.keep(node, hold, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, "q", "again", queue.Options{ID: "again"})
		other, again := w.held(t, "q")
		for _, n := range []int{size, size, 10, size, 0, size + 1} {
			for range store.RecordBytes / size {
				if err := w.keep(other, again, make([]byte, n)); err != nil {
					t.Fatal(err)
				}
			}
			if got := bytesOf(); got != int64(size+n) {
				t.Errorf("with a last record of %d bytes all have %d", n, got-size)
			}
		}
		if _, err := manage.New(w.Client).Record(w.ctx, "first"); err != nil {
			t.Errorf("the other task: %v", err)
		}
		if err := w.keep(other, again, nil); err != nil {
			t.Fatal(err)
		}
		if got := must[int64](t)(w.rdb.ZCard(w.ctx, w.Store().Keys.Records()).Result()); got != 2 || bytesOf() != size {
			t.Errorf("at the end %d members of %d bytes", got, bytesOf())
		}
	})
}

// An encrypted record says so in its task.
func TestEncryptedRecord(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node, hold := w.held(t, "q")
		for _, encrypted := range []bool{true, false} {
			if err := node.KeepRecords(w.ctx, []listen.RunRecord{{Claim: hold, Bytes: []byte("x"), Encrypted: encrypted}})[0]; err != nil {
				t.Fatal(err)
			}
			if task := w.task(t, id); task.RecordEncrypted != encrypted || task.RecordSize != 1 {
				t.Errorf("encrypted %t: %+v", encrypted, task)
			}
		}
	})
}
