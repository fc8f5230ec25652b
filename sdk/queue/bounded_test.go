package queue_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// setupBounded is a world with a client whose connections are bounded.
func setupBounded(t *testing.T, parameters string) (*world, *queue.Client) {
	t.Helper()
	w := setup(t)
	rdb := must[redis.UniversalClient](t)(queue.ConnectBounded(queuetest.SharedURL() + parameters))
	t.Cleanup(func() { _ = rdb.Close() })
	c := must[*queue.Client](t)(queue.NewFromRedis(rdb, *w.Config()))
	t.Cleanup(func() { _ = c.Close() })
	return w, c
}

// A reply that is larger than anything of Quern's is refused before it takes memory, by an error that names the key; the connection
// after it works.
func TestBoundedReplies(t *testing.T) {
	for name, parameters := range map[string]string{"RESP3": "", "RESP2": "?protocol=2"} {
		t.Run(name, func(t *testing.T) {
			w, c := setupBounded(t, parameters)
			large := strings.Repeat("x", store.MaxValue+1)
			fill := "local names = {} for i = 1, 1000 do names[i] = i end for i = 1, 1100 do redis.call('RPUSH', KEYS[1], unpack(names)) end return 1"
			err := errors.Join(
				w.rdb.Eval(w.ctx, fill, []string{c.Store().Keys.Jobs()}).Err(),
				w.rdb.Set(w.ctx, c.Store().Keys.Generation(), large, 0).Err(), w.rdb.HSet(w.ctx, c.Store().Keys.Schedule("connection"), "task", large).Err(),
				w.rdb.HSet(w.ctx, c.Store().Keys.Topics(), func() (texts []string) {
					for i := range store.MaxReply/store.MaxValue + 1 {
						texts = append(texts, fmt.Sprint(i), strings.Repeat("x", store.MaxValue))
					}
					return texts
				}()).Err(),
				w.rdb.Set(w.ctx, c.Store().Keys.Sample(), strings.Repeat("x", store.MaxPush), 0).Err(),
			)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for key, call := range map[string]func() error{
				c.Store().Keys.Generation():           func() error { return c.Store().RDB.Get(w.ctx, c.Store().Keys.Generation()).Err() },
				c.Store().Keys.Schedule("connection"): func() error { return second(c.Schedule(w.ctx, "connection")) },
				c.Store().Keys.Jobs():                 func() error { return c.Store().RDB.LRange(w.ctx, c.Store().Keys.Jobs(), 0, -1).Err() },
				c.Store().Keys.Topics():               func() error { return c.Store().RDB.HGetAll(w.ctx, c.Store().Keys.Topics()).Err() },
				c.Store().Keys.Pending("q"): func() error { // one of a pipeline, and in a script
					cmds := c.Store().EvalAll(w.ctx, []store.Call{
						{Script: store.Script{Script: redis.NewScript("return 1")}, Keys: []string{"other"}},
						{Script: store.Script{Script: redis.NewScript(fmt.Sprintf("return redis.call('GET', '%s')", c.Store().Keys.Generation()))}, Keys: []string{c.Store().Keys.Pending("q")}},
					})
					return cmds[1].Err()
				},
			} {
				err := call()
				if !errors.Is(err, queue.ErrTooLarge) || !strings.Contains(err.Error(), " of key "+key+" has ") || queue.IsUnavailable(err) {
					t.Errorf("%s: %v", key, err)
				}
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 40<<20 { // of 80 MB and a million texts
				t.Errorf("refusing took %d MiB", took>>20)
			}
			if text := must[string](t)(c.Store().RDB.Get(w.ctx, c.Store().Keys.Sample()).Result()); len(text) != store.MaxPush {
				t.Errorf("%d bytes", len(text))
			}
			for range 6 { // which do not add up
				for _, cmd := range must[[]*redis.StringCmd](t)(store.Pipelined(w.ctx, c.Store(), make([]int, 200), func(p redis.Pipeliner, _ int) *redis.StringCmd {
					return p.Get(w.ctx, c.Store().Keys.Sample())
				})) {
					if len(cmd.Val()) != store.MaxPush {
						t.Fatal(cmd.Err())
					}
				}
			}
			if _, err := store.Pipelined(w.ctx, c.Store(), make([]int, 600), func(p redis.Pipeliner, _ int) *redis.SliceCmd {
				return p.MGet(w.ctx, c.Store().Keys.Sample(), c.Store().Keys.Sample())
			}); !errors.Is(err, queue.ErrTooLarge) {
				t.Errorf("75 MB in one pipeline: %v", err)
			}
		})
	}
}

// Payloads of tasks may be larger than other replies, as far as the caller expects.
func TestBoundedPayloads(t *testing.T) {
	w, c := setupBounded(t, "")
	for name, payload := range map[string][]byte{"Text": []byte(strings.Repeat("x", store.MaxValue+1)), "Bytes": []byte(strings.Repeat("\xff", store.MaxValue+1))} {
		id := w.enqueue(t, "q", string(payload), queue.Options{})
		if got := must[[]byte](t)(c.Parameters(w.ctx, id, math.MaxInt64)); string(got) != string(payload) {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		if got := must[*queue.Task](t)(c.Task(w.ctx, id)); string(got.Parameters) != string(payload) {
			t.Errorf("%s: %d bytes", name, len(got.Parameters))
		}
		if _, err := c.Parameters(w.ctx, id, store.MaxValue); !errors.Is(err, queue.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must[queue.Published](t)(w.Publish(w.ctx, "orders", []byte(strings.Repeat("x", store.MaxValue+1)), queue.PublishOptions{ID: "p"}))
	if p := must[*queue.Publication](t)(c.Publication(w.ctx, "p")); len(p.Payload) != store.MaxValue+1 {
		t.Errorf("%d bytes", len(p.Payload))
	}
}

// Messages that are not empty, and larger than one of anybody's could be, end the subscription for a moment; the watch goes on.
func TestBoundedMessages(t *testing.T) {
	for name, parameters := range map[string]string{"RESP3": "", "RESP2": "?protocol=2"} {
		t.Run(name, func(t *testing.T) {
			w, c := setupBounded(t, parameters)
			watch := listen.NewWatch(c)
			t.Cleanup(func() { _ = watch.Close() })
			if err := watch.Add(w.ctx, "q"); err != nil {
				t.Fatal(err)
			}
			woken := make(chan string, 1000)
			go watch.Run(w.ctx, func(queue string) { woken <- queue })
			<-woken
			if err := w.rdb.Publish(w.ctx, c.Store().Keys.Channel("q"), strings.Repeat("x", store.MaxPush+1)).Err(); err != nil {
				t.Fatal(err)
			}
			<-woken // it is subscribed again
			w.enqueue(t, "q", "", queue.Options{})
			<-woken
		})
	}
}

// However the bytes are cut, a connection counts the same replies.
func FuzzScanner(f *testing.F) {
	f.Add("*2\r\n$3\r\nabc\r\n:1\r\n+OK\r\n", uint8(1))
	f.Add(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n%1\r\n+a\r\n*0\r\n$-1\r\n_\r\n", uint8(3))
	f.Add("*1\r\n*1\r\n*1\r\n$5\r\nab", uint8(2))
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		count := func(step int) (replies int, values int64, err error) {
			var s store.Scanner
			for from := 0; from < len(text) && err == nil; from += step {
				err = s.Scan([]byte(text[from:min(len(text), from+step)]), func(size, n int64) error {
					values += n
					if size < 0 || n < 0 {
						t.Errorf("%d bytes, %d values", size, n)
					}
					return nil
				}, func() { replies++ })
			}
			return replies, values, err
		}
		wantReplies, wantValues, wantErr := count(max(1, len(text)))
		replies, values, err := count(1 + int(step))
		if replies != wantReplies || values != wantValues || (err == nil) != (wantErr == nil) {
			t.Errorf("%d %d %v, want %d %d %v", replies, values, err, wantReplies, wantValues, wantErr)
		}
	})
}

// The size of a payload is that of what is read, whatever somebody wrote beside it by hand: a caller gets no more than it asks for.
func TestSizesAreThoseOfWhatIsRead(t *testing.T) {
	w, c := setupBounded(t, "")
	const size, most = 15 << 20, 100
	text := strings.Repeat("y", size)
	for id, text := range map[string]string{"plain": text, "marked": store.BytesMarker + text[len(store.BytesMarker):]} {
		err := errors.Join(
			w.rdb.HSet(w.ctx, c.Store().Keys.Task(id), "status", "complete", "queue", "q", "parameters", text, "result", text).Err(),
			w.rdb.HSet(w.ctx, c.Store().Keys.Bytes(id), "parameters", "z", "result", "z").Err(),
		)
		if err != nil {
			t.Fatal(err)
		}
		parameters, result, err := manage.New(c).PayloadSizes(w.ctx, id)
		if err != nil || parameters != size || result != size || must[int64](t)(listen.NewFleet(c).ResultSize(w.ctx, id)) != size {
			t.Errorf("%s: sizes %d and %d, %v", id, parameters, result, err)
		}
		for name, client := range map[string]*queue.Client{"bounded": c, "other": w.Client} {
			if value, err := client.Result(w.ctx, id, most); !errors.Is(err, queue.ErrInvalid) || value != nil {
				t.Errorf("%s, %s: a result of %d bytes, %v", id, name, len(value), err)
			}
			if value, err := client.Parameters(w.ctx, id, 0); !errors.Is(err, queue.ErrTooLarge) || value != nil {
				t.Errorf("%s, %s: parameters of %d bytes, %v", id, name, len(value), err)
			}
			if task := must[*queue.Task](t)(client.Task(w.ctx, id)); string(task.Parameters) != text || string(task.Result) != text {
				t.Errorf("%s, %s: %d and %d bytes", id, name, len(task.Parameters), len(task.Result))
			}
		}
	}
	// Bytes that no text stands for are nothing.
	w.rdb.HSet(w.ctx, c.Store().Keys.Bytes("none"), "result", text)
	if size, err := listen.NewFleet(c).ResultSize(w.ctx, "none"); err != nil || size != 0 {
		t.Errorf("%d bytes, %v", size, err)
	}
	must[queue.Published](t)(w.Publish(w.ctx, "orders", []byte("payload"), queue.PublishOptions{ID: "p"}))
	if _, err := w.PublicationWithin(w.ctx, "p", 6); !errors.Is(err, queue.ErrTooLarge) {
		t.Error(err)
	}
	if p := must[*queue.Publication](t)(w.PublicationWithin(w.ctx, "p", 7)); string(p.Payload) != "payload" {
		t.Errorf("%q", p.Payload)
	}
}
