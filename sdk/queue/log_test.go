package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

func (w *world) append(t testing.TB, node *listen.Node, hold listen.Claim, lines ...string) {
	t.Helper()
	for _, err := range node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: hold, Lines: lines}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) log(t testing.TB, id string, after int64) []manage.LogLine {
	t.Helper()
	return must[[]manage.LogLine](t)(manage.New(w.Client).Log(w.ctx, id, after))
}

// numbered checks that the lines are numbered without a gap, and returns their texts.
func numbered(t testing.TB, lines []manage.LogLine, first int64) []string {
	t.Helper()
	texts := make([]string, len(lines))
	for i, line := range lines {
		if line.Number != first+int64(i) {
			t.Fatalf("line %d has the number %d, want %d", i, line.Number, first+int64(i))
		}
		texts[i] = line.Text
	}
	return texts
}

func TestLog(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		if lines := w.log(t, id, 0); len(lines) != 0 {
			t.Errorf("before it ran: %v", lines)
		}
		node, hold := w.held(t, "q")
		w.Store().Clock = "1700000000.123456"
		w.append(t, node, hold, "one", "", "three 3 words", "bad \xff byte")
		w.append(t, node, hold)
		lines := w.log(t, id, 0)
		if got := fmt.Sprintf("%q", numbered(t, lines, 1)); got != `["one" "" "three 3 words" "bad `+"\ufffd"+` byte"]` {
			t.Errorf("%s", got)
		}
		if !lines[0].Time.Equal(time.UnixMicro(1700000000123456)) {
			t.Errorf("written at %s", lines[0].Time)
		}
		if after := numbered(t, w.log(t, id, 2), 3); len(after) != 2 {
			t.Errorf("after 2: %v", after)
		}
		if after := w.log(t, id, 4); len(after) != 0 {
			t.Errorf("after the last: %v", after)
		}

		// What it wrote just before its end comes after its end; its next run goes on counting.
		if errs, err := node.Release(w.ctx, "q", []listen.Claim{hold}); err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		if errs := node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: hold, Lines: []string{"stale"}}}); !errors.Is(errs[0], queue.ErrLost) {
			t.Errorf("of a task that was given back: %v", errs)
		}
		node, hold = w.held(t, "q")
		w.append(t, node, hold, "again")
		w.settle(t, node, "q", listen.Settlement{Claim: hold})
		w.append(t, node, hold, "last words")
		if got := numbered(t, w.log(t, id, 4), 5); fmt.Sprint(got) != "[again last words]" {
			t.Errorf("of the second run: %v", got)
		}
		if err := w.Queue("q").Delete(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if errs := node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: hold, Lines: []string{"late"}}}); !errors.Is(errs[0], queue.ErrNoTask) {
			t.Errorf("of a deleted task: %v", errs)
		}
		if n := must[int64](t)(w.rdb.Exists(w.ctx, w.Store().Keys.Log(id)).Result()); n != 0 {
			t.Error("the log outlives the task")
		}
	})
}

func TestLogKeepsTheLastLines(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node, hold := w.held(t, "q")
		written := 0
		write := func(n int) {
			lines := make([]string, n)
			for i := range lines {
				written++
				lines[i] = fmt.Sprint("line ", written)
			}
			w.append(t, node, hold, lines...)
		}
		for _, n := range []int{700, 700, 1} {
			write(n)
		}
		texts := numbered(t, w.log(t, id, 0), 402)
		if len(texts) != store.LogLines || texts[0] != "line 402" || texts[999] != "line 1401" {
			t.Errorf("%d lines from %q to %q", len(texts), texts[0], texts[len(texts)-1])
		}
		write(2600) // at once: lines that are never stored have numbers as well
		texts = numbered(t, w.log(t, id, 0), 3002)
		if len(texts) != store.LogLines || texts[0] != "line 3002" || texts[999] != "line 4001" {
			t.Errorf("%d lines from %q to %q", len(texts), texts[0], texts[len(texts)-1])
		}
	})
}

func TestLogKeepsTheLastBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node, hold := w.held(t, "q")
		size := func() (bytes int) {
			for _, entry := range must[[]string](t)(w.rdb.LRange(w.ctx, w.Store().Keys.Log(id), 0, -1).Result()) {
				bytes += len(entry)
			}
			return bytes
		}
		for i := range 30 {
			w.append(t, node, hold, strings.Repeat(fmt.Sprint(i%10), 5000))
		}
		lines := w.log(t, id, 0)
		if n := size(); n > store.LogBytes || n < store.LogBytes-6000 {
			t.Errorf("keeps %d bytes of at most %d", n, store.LogBytes)
		}
		if last := lines[len(lines)-1]; last.Number != 30 || !strings.HasPrefix(last.Text, "999") {
			t.Errorf("the last is %d %.10q", last.Number, last.Text)
		}
		// One line alone is longer than all that may be kept.
		w.append(t, node, hold, strings.Repeat("é", store.LogBytes), "end")
		lines = w.log(t, id, 30)
		if n := size(); n > store.LogBytes || len(lines) != 2 || lines[1].Text != "end" {
			t.Fatalf("keeps %d bytes, %d lines", n, len(lines))
		}
		if text := lines[0].Text; !utf8.ValidString(text) || !strings.HasPrefix(text, "éé") || len(text) < 4<<10 {
			t.Errorf("the long line has %d bytes and begins with %.10q", len(text), text)
		}
	})
}

func TestLogOfMany(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		node := w.node(t, "q")
		var batches []listen.LogBatch
		for i := range 5 {
			w.enqueue(t, "q", "", queue.Options{})
			got := w.reserve(t, node, "q", true)
			batches = append(batches, listen.LogBatch{Claim: listen.Claim{ID: got.ID, Run: got.Run}, Lines: []string{fmt.Sprint(i)}})
		}
		batches[1].Run++
		batches[3].ID = "none"
		for i, err := range node.AppendLogs(w.ctx, batches) {
			if want := map[int]error{1: queue.ErrLost, 3: queue.ErrNoTask}[i]; !errors.Is(err, want) {
				t.Errorf("batch %d: %v, want %v", i, err, want)
			}
		}
		for _, i := range []int{0, 2, 4} {
			if texts := numbered(t, w.log(t, batches[i].ID, 0), 1); len(texts) != 1 || texts[0] != fmt.Sprint(i) {
				t.Errorf("log of %d: %v", i, texts)
			}
		}
	})
}

func TestLogThatSomebodyDamaged(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		node, hold := w.held(t, "q")
		w.rdb.RPush(w.ctx, w.Store().Keys.Log(id), "no number here", "", "7")
		w.append(t, node, hold, "next")
		lines := w.log(t, id, 0)
		if len(lines) == 0 || lines[len(lines)-1].Text != "next" {
			t.Errorf("%+v", lines)
		}
		if _, err := manage.New(w.Client).Log(w.ctx, "no id", 0); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("no id: %v", err)
		}
	})
}

// Logs of deleted tasks make room also if those of many older tasks are kept.
func TestDeletedLogsMakeRoomBesideOlderOnes(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.quotas(t, manage.Quotas{"log_bytes": "50000"})
		node := w.node(t, "q")
		write := func(size int) (id string, err error) {
			t.Helper()
			id = w.enqueue(t, "q", "", queue.Options{})
			task := w.reserve(t, node, "q", true)
			claim := task.Claim()
			err = node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: claim, Lines: []string{strings.Repeat("x", size)}}})[0]
			w.settle(t, node, "q", listen.Settlement{Claim: claim})
			return id, err
		}
		for range 100 {
			must[string](t)(write(10))
		}
		w.at(10)
		var deleted []string
		for range 4 {
			deleted = append(deleted, must[string](t)(write(9000)))
		}
		w.at(20)
		if _, err := write(9000); !errors.Is(err, manage.ErrQuota) {
			t.Fatalf("%v, want that there is no room", err)
		}
		for _, id := range deleted {
			if err := w.Queue("q").Delete(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		_, err := write(9000)
		quota, refused := errors.AsType[*manage.QuotaError](err)
		if refused && quota.More < 9000 {
			t.Errorf("%d bytes more are refused", quota.More)
		}
		for i := 0; err != nil; i++ { // each call looks at 64 of them
			if _, err = write(9000); i > 2 {
				t.Fatal(err)
			}
		}
	})
}
