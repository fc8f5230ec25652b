package queue_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// failWithLetter runs the queue's next task, which fails for good and leaves a letter in dead.
func (w *world) failWithLetter(t testing.TB, name, dead string, reason queue.Reason) string {
	t.Helper()
	node := w.node(t, name)
	batch := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: name, Count: 1, Start: true, FailurePolicy: listen.FailurePolicy{Dead: dead}}})[0]
	if len(batch.Tasks) != 1 {
		t.Fatalf("%+v", batch)
	}
	got := batch.Tasks[0]
	w.settle(t, node, name, listen.Settlement{Claim: listen.Claim{ID: got.ID, Run: got.Run}, Failure: &queue.Failure{Reason: reason, Message: "no"}})
	return got.ID
}

func TestDeadLetters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, parameters := range map[string]string{"text": "grüße", "bytes": "\xff\xd8", "empty": "", "large": strings.Repeat("x", listen.MaxInline+1)} {
			dead := "dead-" + name
			for _, forget := range []bool{false, true} {
				id := w.enqueue(t, name, parameters, queue.Options{})
				w.failWithLetter(t, name, dead, queue.ReasonTrap)
				failed := w.task(t, id)
				letter := w.task(t, failed.DeadID)
				if failed.Status != queue.Failed || letter.Status != queue.Pending || letter.Queue != dead || letter.LiveID != id || string(letter.Parameters) != parameters {
					t.Errorf("%s: %+v, letter %+v", name, failed, letter)
				}
				if forget { // the letter takes over what it refers to
					if err := w.Queue(name).Delete(w.ctx, id); err != nil {
						t.Fatal(err)
					}
				}
				node := w.node(t, dead)
				got := w.reserve(t, node, dead, true)
				text := string(got.Parameters)
				if got.Large {
					text = string(must[[]byte](t)(w.Parameters(w.ctx, got.ID, math.MaxInt64)))
				}
				if got.ID != letter.ID || text != parameters || int(got.Size) != len(parameters) {
					t.Errorf("%s, forgotten %v: %d bytes, size %d", name, forget, len(text), got.Size)
				}
				w.settle(t, node, dead, listen.Settlement{Claim: listen.Claim{ID: got.ID, Run: got.Run}})
				if forget {
					if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(id)).Val(); n != 0 {
						t.Error("the mark brought a deleted task back")
					}
				} else if task := w.task(t, id); task.Handled != letter.ID || task.Status != queue.Failed {
					t.Errorf("%s: %+v", name, task)
				}
				if err := w.Queue(dead).Delete(w.ctx, letter.ID); err != nil {
					t.Fatal(err)
				}
				if n := w.rdb.Exists(w.ctx, w.Store().Keys.Task(letter.ID), w.Store().Keys.Bytes(letter.ID)).Val(); n != 0 {
					t.Error("something of the letter is left")
				}
			}
		}
	})
}

// A letter is where its task was in a chain: a circle that goes through letters ends as well.
func TestLettersKeepTheDepth(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		id := w.enqueue(t, "q", "", queue.Options{Depth: 15, Traceparent: trace})
		w.failWithLetter(t, "q", "dead", queue.ReasonTrap)
		if letter := w.task(t, w.task(t, id).DeadID); letter.Depth != 15 || letter.Traceparent != trace {
			t.Errorf("%+v", letter)
		}
	})
}

func TestWhatHasNoDeadLetter(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "q", "", queue.Options{})
		w.failWithLetter(t, "q", "dead", queue.ReasonCancelled)
		w.enqueue(t, "own", "", queue.Options{})
		w.failWithLetter(t, "own", "own", queue.ReasonTrap)
		w.depth(t, "dead", nil)
		w.depth(t, "own", map[queue.Status]int64{queue.Failed: 1})
	})
}

// A task whose dead letter cannot be written keeps everything and says why, as does who made it fail; when the key is
// mended and it is tried again, it gets its letter.
func TestDeadLetterThatCannotBeWritten(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		damaged := w.Store().Keys.Priorities("dead")
		w.rdb.Set(w.ctx, damaged, "x", 0)
		w.at(0)
		reserve := func(queue string) (*listen.Node, listen.ReserveReply) {
			node := w.node(t, queue)
			return node, node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: queue, Count: 1, Start: true, FailurePolicy: listen.FailurePolicy{Dead: "dead", MaxCrashes: 1}}})[0]
		}
		settle := func(name string) error {
			node, batch := reserve(name)
			errs, err := node.Settle(w.ctx, name, []listen.Settlement{{Claim: batch.Tasks[0].Claim(), Failure: &queue.Failure{Message: "no"}}})
			return errors.Join(append(errs, err)...)
		}
		for name, fail := range map[string]func(id string) string{
			"settle": func(string) string {
				err := settle("settle")
				if !errors.Is(err, queue.ErrNoLetter) {
					t.Errorf("%v is not %v", err, queue.ErrNoLetter)
				}
				return fmt.Sprint(err)
			},
			"reclaim": func(string) string {
				node, _ := reserve("reclaim")
				w.die(t, node)
				return must[listen.Reclaimed](t)(listen.NewFleet(w.Client).Reclaim(w.ctx, node.ID(), 0)).DeadError
			},
			"expire": func(string) string {
				w.at(20)
				defer w.at(0)
				return must[listen.Block](t)(listen.NewFleet(w.Client).Expire(w.ctx, "expire", 0, "dead")).DeadError
			},
			"reserve": func(string) string {
				w.at(20)
				defer w.at(0)
				_, batch := reserve("reserve")
				return batch.DeadError
			},
		} {
			w.at(0)
			options := queue.Options{}
			if name == "expire" || name == "reserve" {
				options.Retry.MaxAge = 10 * time.Second
			}
			id := w.enqueue(t, name, "x", options)
			said := fail(id)
			task := w.task(t, id)
			for _, text := range []string{said, task.DeadError} {
				if !strings.Contains(text, damaged) || !strings.Contains(text, "expected a set") {
					t.Errorf("%s: %q does not name the key and the type", name, text)
				}
			}
			if task.Status != queue.Failed || task.DeadID != "" || string(task.Parameters) != "x" {
				t.Errorf("%s: %+v", name, task)
			}
		}
		w.rdb.Del(w.ctx, damaged)
		id := must[[]*queue.Task](t)(manage.New(w.Client).Queue("settle").List(w.ctx, manage.ListOptions{Status: queue.Failed}))[0].ID
		if err := w.Queue("settle").Retry(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := settle("settle"); err != nil {
			t.Error(err)
		}
		if task := w.task(t, id); task.DeadError != "" || task.DeadID == "" {
			t.Errorf("after the retry: %+v", task)
		}
	})
}

// A letter that fails has one of the first task, and a task that is retried by hand and fails again too.
func TestDeadOfDead(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		live := w.enqueue(t, "q", "\xff", queue.Options{})
		w.failWithLetter(t, "q", "dead", queue.ReasonTrap)
		first := w.failWithLetter(t, "dead", "deader", queue.ReasonTrap)
		second := w.task(t, w.task(t, first).DeadID)
		if second.LiveID != live || string(second.Parameters) != "\xff" || second.Queue != "deader" || w.task(t, live).DeadID != second.ID {
			t.Errorf("%+v", second)
		}
		if err := w.Queue("q").Delete(w.ctx, live); err != nil {
			t.Fatal(err)
		}
		if task := w.task(t, second.ID); string(task.Parameters) != "\xff" {
			t.Errorf("%+v", task)
		}
		for i := range 2 { // each failure has a letter of its own, once
			id := "again"
			if _, err := w.Queue("again").Enqueue(w.ctx, []byte(fmt.Sprint(i)), queue.Options{ID: id}); err != nil && !errors.Is(err, queue.ErrExists) {
				t.Fatal(err)
			}
			w.rdb.HSet(w.ctx, w.Store().Keys.Task(id), "dead", "morgue")
			w.failWithLetter(t, "again", "morgue", queue.ReasonTrap)
			if err := w.Queue("again").Retry(w.ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		w.depth(t, "morgue", map[queue.Status]int64{queue.Pending: 2})
	})
}

// Whatever becomes of the tasks before it, a letter has the parameters of the first one.
func TestLettersKeepTheParameters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, c := range map[string]struct{ steps, letters string }{
			"middle deleted":           {"fail a b, fail b c, delete b", "c"},
			"first deleted":            {"fail a b, fail b c, delete a", "c"},
			"middle, then first":       {"fail a b, fail b c, delete b, delete a", "c"},
			"first, then middle":       {"fail a b, fail b c, delete a, delete b", "c"},
			"both purged":              {"fail a b, fail b c, purge b, purge a", "c"},
			"first gone before middle": {"fail a b, delete a, fail b c", "c"},
			"and then middle":          {"fail a b, delete a, fail b c, delete b", "c"},
			"middle retried":           {"fail a b, fail b c, retry b, delete a", "b c"},
			"retried":                  {"fail a b, retry a", "b"},
			"retried and purged":       {"fail a b, retry a, complete a, purge a", "b"},
			"retried, letter fails":    {"fail a b, retry a, complete a, purge a, fail b c, purge b", "c"},
			"retried, fails again":     {"fail a b, retry a, fail a b, purge a", "b b"},
			"retried between letters":  {"fail a b, retry a, fail b c, fail a b, purge a, purge b", "b c"},
			"ID used again":            {"fail a b, purge a, again a, fail b c", "c"},
		} {
			for kind, parameters := range map[string]string{"text": "grüße", "bytes": "\xff\xd8"} {
				target := func(word string) string { return strings.ReplaceAll(name, " ", "-") + kind + word }
				ids := map[string]string{"a": w.enqueue(t, target("a"), parameters, queue.Options{})} // the last that ended
				for step := range strings.SplitSeq(c.steps, ", ") {
					var err error
					words := strings.Fields(step)
					q := w.Queue(target(words[1]))
					switch id := ids[words[1]]; words[0] {
					case "fail":
						ids[words[1]] = w.failWithLetter(t, q.Name(), target(words[2]), queue.ReasonTrap)
					case "complete":
						node, hold := w.held(t, q.Name())
						w.settle(t, node, q.Name(), listen.Settlement{Claim: hold})
					case "delete":
						err = q.Delete(w.ctx, id)
					case "purge":
						_, err = manage.QueueOf(q).Purge(w.ctx, listen.PurgeOptions{Everything: true})
					case "retry":
						err = q.Retry(w.ctx, id)
					case "again":
						w.enqueue(t, q.Name(), "another", queue.Options{ID: id})
					}
					if err != nil {
						t.Fatalf("%s: %s: %v", name, step, err)
					}
				}
				for _, word := range strings.Fields(c.letters) {
					got := w.reserve(t, w.node(t, target(word)), target(word), true)
					if read := w.task(t, got.ID).Parameters; string(got.Parameters) != parameters || string(read) != parameters {
						t.Errorf("%s: the letter in %s is reserved with %q, read with %q", name, word, got.Parameters, read)
					}
				}
			}
		}
	})
}

// Queues that name each other do not go on for ever.
func TestLettersOfLettersEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.enqueue(t, "a", "x", queue.Options{})
		for range 3 {
			w.failWithLetter(t, "a", "b", queue.ReasonTrap)
			w.failWithLetter(t, "b", "a", queue.ReasonTrap)
		}
		w.depth(t, "a", map[queue.Status]int64{queue.Failed: 3}) // the task and five letters
		w.depth(t, "b", map[queue.Status]int64{queue.Failed: 3})
	})
}

// What expires while it waits fails for good too.
func TestLettersOfWhatExpired(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, find := range map[string]func(maxAge time.Duration) error{
			"expire": func(maxAge time.Duration) error {
				_, err := expire(w.ctx, w.Queue("expire"), maxAge, "expire-dead")
				return err
			},
			"reserve": func(maxAge time.Duration) error {
				return w.node(t, "reserve").Reserve(w.ctx, []listen.ReserveRequest{{
					Queue: "reserve", Count: 9, Start: true, MaxAge: maxAge, FailurePolicy: listen.FailurePolicy{Dead: "reserve-dead"},
				}})[0].Err
			},
		} {
			w.at(0)
			own := w.enqueue(t, name, "x", queue.Options{Deadline: time.Unix(1700000005, 0)})
			manifests := w.enqueue(t, name, "x", queue.Options{})
			w.at(11)
			if err := find(10 * time.Second); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{own, manifests} {
				task := w.task(t, id)
				if task.Reason != queue.ReasonExpired || task.DeadID == "" {
					t.Errorf("%s: %+v", name, task)
				} else if letter := w.task(t, task.DeadID); letter.LiveID != id || string(letter.Parameters) != "x" {
					t.Errorf("%s: letter %+v", name, letter)
				}
			}
			w.depth(t, name+"-dead", map[queue.Status]int64{queue.Pending: 2})
		}
	})
}

// A retry of the failed task deletes the dead letters that stand for it, in all queues that they went through; one that runs, and one
// that was handled, stay.
func TestRetryClearsLetters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		counts := func(queue string, wantWaiting, wantFailed int64) {
			t.Helper()
			waiting, failed, err := manage.New(w.Client).Queue(queue).DeadLetters(w.ctx)
			if err != nil || waiting != wantWaiting || failed != wantFailed {
				t.Errorf("%s: %d letters wait, %d tasks failed with one, %v; expected %d, %d", queue, waiting, failed, err, wantWaiting, wantFailed)
			}
		}
		retry := func(name, id string) {
			t.Helper()
			if task, err := w.Client.Retry(w.ctx, name); err != nil || task.ID != id {
				t.Fatalf("%+v, %v", task, err)
			}
		}
		id := w.enqueue(t, "q", "", queue.Options{})
		w.failWithLetter(t, "q", "dead", queue.ReasonTrap)
		w.failWithLetter(t, "dead", "dead2", queue.ReasonTrap)
		w.failWithLetter(t, "dead2", "dead3", queue.ReasonTrap)
		counts("q", 0, 1)
		counts("dead", 0, 1)
		counts("dead3", 1, 0)
		letter := w.task(t, id).DeadID // the last one
		retry(letter, id)
		for _, queue := range []string{"dead", "dead2", "dead3"} {
			w.depth(t, queue, nil)
		}
		counts("q", 0, 0)

		w.failWithLetter(t, "q", "dead", queue.ReasonTrap)
		running := w.node(t, "dead")
		held := w.reserve(t, running, "dead", true)
		retry(id, id)
		w.settle(t, running, "dead", listen.Settlement{Claim: held.Claim()})
		w.depth(t, "dead", map[queue.Status]int64{queue.Complete: 1})
		if task := w.task(t, id); task.Status != queue.Pending || task.Handled != "" {
			t.Errorf("%+v", task)
		}

		// Nobody can retry a task that is gone: then the letter itself is retried.
		w.failWithLetter(t, "q", "last", queue.ReasonTrap)
		if err := w.Queue("q").Delete(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		letter = w.failWithLetter(t, "last", "last", queue.ReasonTrap)
		retry(letter, letter)
	})
}

// A handler that begins to work on a letter while the task is retried is not told to stop, whenever that is.
func TestRetryLeavesALetterThatBeginsToRun(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		other := w.anew(t)
		late := &meanwhile{left: -1}
		w.hook(t, spy(late.count))
		for nth := range 20 { // before each command of a retry
			name := fmt.Sprint("q", nth)
			id := w.enqueue(t, name, "", queue.Options{ID: name})
			w.failWithLetter(t, name, name+"-dead", queue.ReasonTrap)
			letter := w.task(t, id).DeadID
			node := w.node(t, name+"-dead")
			same := listen.NodeAs(other, node.ID(), os.Getpid())
			late.left, late.act = nth, func() { same.Reserve(w.ctx, []listen.ReserveRequest{{Queue: name + "-dead", Count: 1, Start: true}}) }
			if _, err := w.Client.Retry(w.ctx, id); err != nil {
				t.Fatal(err)
			}
			if late.left >= 0 {
				late.left = -1
				if nth < 5 {
					t.Errorf("a retry took %d commands", nth)
				}
				return
			}
			if task, err := w.Task(w.ctx, letter); err == nil && (task.Status != queue.Started || task.CancelAsked) {
				t.Errorf("the letter, begun before command %d: %+v", nth, task)
			} else if err != nil && !errors.Is(err, queue.ErrNoTask) {
				t.Error(err)
			}
		}
	})
}

// A letter that waits for another attempt counts, and goes like one that is pending.
func TestScheduledLetters(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		w.failWithLetter(t, "q", "dead", queue.ReasonTrap)
		node, hold := w.held(t, "dead")
		w.settle(t, node, "dead", listen.Settlement{Claim: hold, Requeue: listen.RequeueRetry, Delay: time.Hour, Failure: &queue.Failure{Message: "no"}})
		if waiting, _, err := manage.New(w.Client).Queue("dead").DeadLetters(w.ctx); err != nil || waiting != 1 {
			t.Errorf("%d letters wait, %v; expected the scheduled one", waiting, err)
		}
		if _, err := w.Client.Retry(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		w.depth(t, "dead", nil)
	})
}

// A letter in a damaged queue keeps neither the task nor its other letters from their way, and is named.
func TestRetryPastALetterThatStays(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		id := w.enqueue(t, "q", "", queue.Options{})
		w.failWithLetter(t, "q", "dead", queue.ReasonTrap)
		w.failWithLetter(t, "dead", "dead2", queue.ReasonTrap)
		damaged := w.Store().Keys.Complete("dead")
		w.rdb.Set(w.ctx, damaged, "x", 0)
		task, err := w.Client.Retry(w.ctx, id)
		if !errors.Is(err, queue.ErrLetterStays) || !strings.Contains(fmt.Sprint(err), damaged) || task == nil || w.task(t, id).Status != queue.Pending {
			t.Errorf("%+v, %v", task, err)
		}
		w.depth(t, "dead2", nil)
	})
}
