package sdktest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/sdktest"
)

// pages is a handler that goes on where an earlier run has ended.
func pages(_ context.Context, _ *sdk.Task) ([]byte, error) {
	done, _, err := sdk.Checkpoint()
	for page := len(done); page < 5 && err == nil; page++ {
		done = append(done, byte('1'+page))
		err = sdk.SaveCheckpoint(done)
	}
	return done, err
}

func TestDeath(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	deferred := false
	r := h.Run(func(ctx context.Context, task *sdk.Task) ([]byte, error) {
		defer func() { deferred = recover() == nil }()
		return pages(ctx, task)
	}, sdktest.Task{DieAtCheckpoint: 2})
	if r.Outcome != sdktest.Died || r.Status != -1 || r.Err != nil || r.Result != nil || string(r.Checkpoint) != "12" || !deferred {
		t.Errorf("%+v", r)
	}
	if r := h.Run(pages, sdktest.Task{ID: "another", DieAtCheckpoint: 9}); r.Outcome != sdktest.Complete || string(r.Result) != "12345" {
		t.Errorf("another task: %+v", r)
	}
	attempt := 0
	r = h.Run(func(ctx context.Context, task *sdk.Task) ([]byte, error) {
		attempt = task.Attempt
		return pages(ctx, task)
	}, sdktest.Task{DieAtCheckpoint: 1})
	if r.Outcome != sdktest.Died || string(r.Checkpoint) != "123" || attempt != 1 {
		t.Errorf("attempt %d: %+v", attempt, r)
	}
	if r := h.Run(pages, sdktest.Task{}); r.Outcome != sdktest.Complete || string(r.Result) != "12345" || string(r.Checkpoint) != "12345" {
		t.Errorf("%+v", r)
	}
	if r := h.Run(pages, sdktest.Task{DieAtCheckpoint: 1}); string(r.Checkpoint) != "1" {
		t.Errorf("a task that was complete goes on: %+v", r)
	}
}

// After the death of its host no goroutine of the handler gets anything of it, and none hangs.
func TestDeathOfGoroutines(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Bucket("b")
	h.Queues = []string{"q"}
	var after []string
	r := h.Run(func(ctx context.Context, _ *sdk.Task) ([]byte, error) {
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := sdk.Enqueue("q", nil, nil); err != nil {
				t.Error(err)
			}
			_ = sdk.SaveCheckpoint([]byte("x"))
			after = append(after, "worker")
		})
		group.Wait()
		defer func() { after = append(after, "deferred") }()
		_ = sdk.Bucket("b").Set("k", nil, 0)
		after = append(after, "handler")
		return nil, nil
	}, sdktest.Task{DieAtCheckpoint: 1})
	if r.Outcome != sdktest.Died || !slices.Equal(after, []string{"deferred"}) || len(r.Enqueued) > 0 || len(h.Bucket("b").Keys()) > 0 {
		t.Errorf("%+v, %q", r, after)
	}
	// A handler that asks nothing more returns, and is dead nevertheless.
	r = h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
		var group sync.WaitGroup
		group.Go(func() { _ = sdk.SaveCheckpoint([]byte("x")) })
		group.Wait()
		return []byte("done"), nil
	}, sdktest.Task{DieAtCheckpoint: 1})
	if r.Outcome != sdktest.Died || r.Result != nil {
		t.Errorf("%+v", r)
	}
}

// The host dies once, whichever goroutine saves its last checkpoint.
func TestDeathAmongGoroutines(t *testing.T) {
	t.Parallel()
	r := sdktest.New(t).Run(func(context.Context, *sdk.Task) ([]byte, error) {
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				for range 3 {
					if err := sdk.SaveCheckpoint([]byte{byte(i)}); err != nil {
						t.Error(err)
					}
				}
				t.Error("a goroutine has outlived its host")
			})
		}
		group.Wait()
		return []byte("done"), nil
	}, sdktest.Task{DieAtCheckpoint: 3})
	if r.Outcome != sdktest.Died || r.Result != nil || len(r.Checkpoint) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	errNoPaper := errors.New("no paper")
	h := sdktest.New(t)
	var seen []string
	for _, tt := range []struct {
		err   error
		want  sdktest.Outcome
		after time.Duration
		text  string
	}{
		{errNoPaper, sdktest.Failed, 0, "failed: no paper"},
		{fmt.Errorf("print: %w", sdk.Retry(errNoPaper)), sdktest.Retry, 0, "retry: print: no paper"},
		{sdk.RetryAfter(errNoPaper, time.Minute), sdktest.Retry, time.Minute, "retry: no paper (retry after 1m0s)"},
		{nil, sdktest.Complete, 0, "complete\nwarning: oh"},
		{sdk.Fatal(errNoPaper), sdktest.Fatal, 0, "fatal: no paper"},
		{errNoPaper, sdktest.Failed, 0, "failed: no paper"},
	} {
		r := h.Run(func(_ context.Context, task *sdk.Task) ([]byte, error) {
			seen = append(seen, fmt.Sprint(task.Attempt, task.PreviousError()))
			if tt.err == nil {
				return nil, sdk.Log(sdk.Warning, "oh")
			}
			return []byte("x"), tt.err
		}, sdktest.Task{})
		if r.Outcome != tt.want || r.RetryAfter != tt.after || r.Result != nil || !errors.Is(r.Err, tt.err) || r.String() != tt.text {
			t.Errorf("%v: %+v, %s", tt.err, r, r)
		}
	}
	again := "exit status 75 (try again later): "
	if want := []string{"1", "2exit status 1: no paper", "2" + again + "print: no paper", "2" + again + "no paper", "1", "1"}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
	if text := fmt.Sprint(sdktest.Panicked, sdktest.Died, sdktest.Outcome(6), sdktest.Outcome(-1)); text != "panicked died Outcome(6) Outcome(-1)" {
		t.Error(text)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	r := sdktest.New(t).Run(func(context.Context, *sdk.Task) ([]byte, error) { panic("out of ink") }, sdktest.Task{})
	if r.Outcome != sdktest.Panicked || r.Status != 2 || r.Err == nil || r.Err.Error() != "panic: out of ink" {
		t.Errorf("%+v", r)
	}
	if log := strings.Join(r.Log, "\n"); !strings.HasPrefix(log, "panic: out of ink\n\ngoroutine ") || !strings.Contains(log, "sdktest_test.go:") {
		t.Errorf("log %q", log)
	}
}

// asked is a test's t that notes how it was ended, which ends its goroutine.
type asked struct {
	testing.TB
	fatal string
}

func (a *asked) Helper() {}

func (a *asked) Fatal(args ...any) {
	a.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}

func (a *asked) Fatalf(format string, args ...any) { a.Fatal(fmt.Sprintf(format, args...)) }

// misuse is what a test is told that uses a Harness as it should not.
func misuse(use func(h *sdktest.Harness)) string {
	a := &asked{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		use(sdktest.New(a))
	}()
	<-done
	return a.fatal
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	for want, use := range map[string]func(h *sdktest.Harness){
		"sdktest: the handler has ended its goroutine": func(h *sdktest.Harness) {
			h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
				runtime.Goexit()
				return nil, nil
			}, sdktest.Task{})
		},
		`sdktest: bucket "": use 1 to 256`:                    func(h *sdktest.Harness) { h.Bucket("") },
		`sdktest: bucket b: key "\n" with 1 bytes: use a key`: func(h *sdktest.Harness) { h.Bucket("b").Set("\n", "x") },
	} {
		if got := misuse(use); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if r := sdktest.New(t).Run(pages, sdktest.Task{}); r.Outcome != sdktest.Complete {
		t.Errorf("the next one: %+v", r)
	}
}

// TestCancel: a handler sees that its host is about to end however it looks.
func TestCancel(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	for name, wait := range map[string]func(ctx context.Context, task *sdk.Task){
		"task": func(_ context.Context, task *sdk.Task) {
			for !task.Cancelled() {
			}
		},
		"err": func(ctx context.Context, _ *sdk.Task) {
			for ctx.Err() == nil {
			}
		},
		"done": func(ctx context.Context, _ *sdk.Task) { <-ctx.Done() },
		"child": func(ctx context.Context, _ *sdk.Task) {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			<-child.Done()
		},
	} {
		r := h.Run(func(ctx context.Context, task *sdk.Task) ([]byte, error) {
			if ctx.Err() != nil || task.Cancelled() {
				t.Errorf("%s: ended before it began", name)
			}
			h.Cancel()
			wait(ctx, task)
			return nil, sdk.Retry(ctx.Err())
		}, sdktest.Task{})
		if r.Outcome != sdktest.Retry || !errors.Is(r.Err, context.Canceled) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	h.Cancel()
	var kept context.Context
	r := h.Run(func(ctx context.Context, _ *sdk.Task) ([]byte, error) {
		kept = ctx
		return nil, ctx.Err()
	}, sdktest.Task{})
	if !errors.Is(r.Err, context.Canceled) {
		t.Errorf("before: %+v", r)
	}
	if r := h.Run(pages, sdktest.Task{}); r.Outcome != sdktest.Complete {
		t.Errorf("the next run: %+v", r)
	}
	if _, ok := <-kept.Done(); ok || kept.Err() == nil {
		t.Error("a context outlives its handler")
	}
}

// A context ends with its handler, also one that nobody has looked at before.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	var kept context.Context
	sdktest.New(t).Run(func(ctx context.Context, _ *sdk.Task) ([]byte, error) {
		kept = ctx
		return nil, nil
	}, sdktest.Task{})
	<-kept.Done()
	if !errors.Is(kept.Err(), context.Canceled) {
		t.Error(kept.Err())
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := sdktest.New(t).Run(func(ctx context.Context, task *sdk.Task) ([]byte, error) {
			at, ok := task.Deadline()
			same, _ := ctx.Deadline()
			if !ok || !at.Equal(began.Add(time.Hour)) || !same.Equal(at) {
				t.Errorf("%v, %v", at, same)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, sdktest.Task{Timeout: time.Hour})
		if !errors.Is(r.Err, context.DeadlineExceeded) || time.Since(began) != time.Hour {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
	})
}

// A time that is over already is refused, and nothing is written.
func TestErrTimeToLive(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	b := h.Bucket("b").Set("k", "1")
	h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
		for _, ttl := range []time.Duration{-1, -time.Hour, time.Until(time.Now().Add(-time.Minute))} {
			if err := sdk.Bucket("b").Set("k", nil, ttl); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("set for %v: %v", ttl, err)
			}
			if _, err := sdk.Bucket("b").Swap("k", []byte("1"), nil, ttl); !errors.Is(err, sdk.ErrInvalid) {
				t.Errorf("swap for %v: %v", ttl, err)
			}
		}
		return nil, nil
	}, sdktest.Task{})
	if value, _ := b.Get("k"); value != "1" {
		t.Errorf("%q", value)
	}
}

func TestTimeToLive(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	b := h.Bucket("b").Quota(20).Set("for ever", "1")
	set := func(context.Context, *sdk.Task) ([]byte, error) {
		return nil, errors.Join(sdk.Bucket("b").Set("short", []byte("1"), time.Minute), sdk.Bucket("b").Set("s", nil, 1))
	}
	if r := h.Run(set, sdktest.Task{}); r.Outcome != sdktest.Complete || !slices.Equal(b.Keys(), []string{"for ever", "s", "short"}) {
		t.Fatalf("%s, %q", r, b.Keys())
	}
	h.Advance(time.Millisecond)
	if keys := b.Keys(); !slices.Equal(keys, []string{"for ever", "short"}) {
		t.Errorf("%q", keys)
	}
	increment := func(context.Context, *sdk.Task) ([]byte, error) { // which keeps the time
		sum, err := sdk.Bucket("b").Increment("short", 1)
		return fmt.Append(nil, sum), err
	}
	if r := h.Run(increment, sdktest.Task{}); string(r.Result) != "2" {
		t.Errorf("%+v", r)
	}
	h.Advance(time.Minute)
	if value, ok := b.Get("short"); ok {
		t.Errorf("%q", value)
	}
	if r := h.Run(set, sdktest.Task{}); r.Outcome != sdktest.Complete { // there is room again
		t.Error(r)
	}
}

// TestFault: each function fails as the test says, and has done nothing.
func TestFault(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Secrets["s"] = "x"
	h.Queues = []string{"*"}
	h.HTTP = func(fetch.Request) (*fetch.Response, error) {
		t.Error("it was sent")
		return nil, nil
	}
	b := h.Bucket("b").Set("k", "1")
	var functions []string
	h.Fault = func(function string) error {
		functions = append(functions, function)
		return sdk.ErrUnavailable
	}
	r := h.Run(func(ctx context.Context, _ *sdk.Task) ([]byte, error) {
		b := sdk.Bucket("b")
		_, get := b.Get("k")
		_, del := b.Delete("k")
		_, increment := b.Increment("k", 1)
		_, swap := b.Swap("k", []byte("1"), nil, 0)
		_, list := b.List("", "", 1)
		_, secret := sdk.Secret("s")
		_, enqueue := sdk.Enqueue("q", nil, nil)
		_, http := fetch.Get(ctx, "http://a.example/")
		for i, err := range []error{get, b.Set("k", nil, 0), del, increment, swap, list, secret, sdk.SaveCheckpoint(nil), enqueue, http} {
			if !errors.Is(err, sdk.ErrUnavailable) {
				t.Errorf("%d: %v", i, err)
			}
		}
		return nil, nil
	}, sdktest.Task{})
	if value, _ := b.Get("k"); value != "1" || r.Checkpoint != nil || len(r.Enqueued) > 0 {
		t.Errorf("%q, %+v", value, r)
	}
	want := []string{"kv_get", "kv_delete", "kv_increment", "kv_swap", "kv_list", "secret_get", "enqueue", "http", "kv_set", "checkpoint_save"}
	if !slices.Equal(functions, want) {
		t.Errorf("%q, want %q", functions, want)
	}
}

// TestEnqueue: tasks come into being with the completion of the one that enqueues them, or at once.
func TestEnqueue(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Queues = []string{"mail.*"}
	high := 90
	options := &sdk.EnqueueOptions{
		ID: "mine", Key: "k", Labels: map[string]string{"a": "b"}, Priority: &high, Delay: 1, MaxAttempts: 3, Timeout: time.Minute,
		Unique: &sdk.Unique{Key: "u", For: time.Hour},
	}
	enqueue := func(_ context.Context, task *sdk.Task) ([]byte, error) {
		body := []byte("body")
		for _, o := range []*sdk.EnqueueOptions{options, options, nil} {
			if _, err := sdk.Enqueue("mail.out", body, o); err != nil {
				return nil, err
			}
		}
		clear(body)
		if len(task.Input) > 0 {
			return nil, errors.New(string(task.Input))
		}
		return nil, nil
	}
	if r := h.Run(enqueue, sdktest.Task{Input: []byte("oh")}); r.Outcome != sdktest.Failed || len(r.Enqueued) > 0 {
		t.Errorf("%+v", r)
	}
	r := h.Run(enqueue, sdktest.Task{})
	if len(r.Enqueued) != 2 {
		t.Fatalf("%+v", r)
	}
	first, second := r.Enqueued[0], r.Enqueued[1]
	if first.ID != "mine" || first.Queue != "mail.out" || string(first.Parameters) != "body" || *first.Options.Priority != 90 ||
		first.Options.Delay != time.Millisecond || first.Options.Labels["a"] != "b" || *first.Options.Unique != *options.Unique {
		t.Errorf("%+v", first)
	}
	if second.ID == "" || second.ID != second.Options.ID || second.ID == "mine" {
		t.Errorf("%+v", second)
	}
	h.EnqueueAtOnce = true
	if r := h.Run(enqueue, sdktest.Task{Input: []byte("oh")}); r.Outcome != sdktest.Failed || len(r.Enqueued) != 1 { // there is a task "mine"
		t.Errorf("%+v", r)
	}
}

// TestEnqueueUnique: there is one of what is to be unique, until its time has passed.
func TestEnqueueUnique(t *testing.T) {
	t.Parallel()
	for _, atOnce := range []bool{false, true} {
		h := sdktest.New(t)
		h.Queues, h.EnqueueAtOnce = []string{"*"}, atOnce
		enqueued := func(fails error) []string {
			r := h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
				for i, body := range []string{"a", "a", "b"} {
					for _, queue := range []string{"q", "r"} {
						first, err := sdk.Enqueue(queue, []byte(body), &sdk.EnqueueOptions{Unique: &sdk.Unique{}})
						second, err2 := sdk.Enqueue(queue, []byte(body), &sdk.EnqueueOptions{ID: fmt.Sprint(queue, i), Unique: &sdk.Unique{For: time.Hour}})
						third, err3 := sdk.Enqueue(queue, []byte(body), &sdk.EnqueueOptions{Unique: &sdk.Unique{Key: "a", For: 1500 * time.Millisecond}})
						if err := errors.Join(err, err2, err3); err != nil || (first == second) != atOnce || third == second {
							t.Errorf("%q %q %q, %v", first, second, third, err)
						}
					}
				}
				return nil, fails
			}, sdktest.Task{})
			var got []string
			for _, child := range r.Enqueued {
				got = append(got, child.Queue+string(child.Parameters)+child.Options.Unique.Key)
			}
			return got
		}
		all := []string{"qa", "qaa", "ra", "raa", "qb", "rb"}
		if got := enqueued(errors.New("oh")); atOnce != slices.Equal(got, all) || !atOnce && len(got) > 0 {
			t.Errorf("a task that fails: %q", got)
		}
		if got := enqueued(nil); atOnce != (len(got) == 0) || !atOnce && !slices.Equal(got, all) {
			t.Errorf("%q", got)
		}
		h.Advance(1999 * time.Millisecond)
		if got := enqueued(nil); len(got) > 0 {
			t.Errorf("too early: %q", got)
		}
		h.Advance(time.Millisecond)
		if got := enqueued(nil); !slices.Equal(got, []string{"qaa", "raa"}) {
			t.Errorf("%q", got)
		}
		h.Advance(90 * 24 * time.Hour)
		if got := enqueued(nil); !slices.Equal(got, all) {
			t.Errorf("%q", got)
		}
	}
}

// The handler may change its input, and keep what it was given.
func TestCopies(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Bucket("b").Set("k", "value")
	input := []byte("input")
	var result []byte
	r := h.Run(func(_ context.Context, task *sdk.Task) ([]byte, error) {
		clear(task.Input)
		value, err := sdk.Bucket("b").Get("k")
		clear(value)
		err = errors.Join(err, sdk.SaveCheckpoint([]byte("kept")))
		checkpoint, _, _ := sdk.Checkpoint()
		clear(checkpoint)
		result = []byte("result")
		return result, err
	}, sdktest.Task{Input: input})
	clear(result)
	value, _ := h.Bucket("b").Get("k")
	if !bytes.Equal(input, []byte("input")) || value != "value" || string(r.Checkpoint) != "kept" || string(r.Result) != "result" {
		t.Errorf("%q, %q, %+v", input, value, r)
	}
}

// Parallel tests have each their own host.
func TestParallel(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			h := sdktest.New(t)
			name := fmt.Sprint(i)
			h.Config["name"] = name
			r := h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
				runtime.Gosched()
				value, _ := sdk.Config("name")
				return []byte(value), nil
			}, sdktest.Task{})
			if string(r.Result) != name {
				t.Errorf("%s: %s", name, r.Result)
			}
		})
	}
}

func TestServeErrors(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	get := func(ctx context.Context, _ *sdk.Task) ([]byte, error) {
		_, err := fetch.Get(ctx, "https://a.example/path")
		return nil, err
	}
	if r := h.Run(get, sdktest.Task{}); !errors.Is(r.Err, sdk.ErrDenied) {
		t.Errorf("without HTTP: %v", r.Err)
	}
	errOwn := errors.New("out of order")
	for _, tt := range []struct{ gives, want error }{
		{sdk.ErrTooBig, sdk.ErrTooBig}, {fmt.Errorf("x: %w", sdk.ErrDenied), sdk.ErrDenied}, {errOwn, sdk.ErrUnavailable}, {errOwn, errOwn},
	} {
		h.HTTP = func(fetch.Request) (*fetch.Response, error) { return nil, tt.gives }
		if r := h.Run(get, sdktest.Task{}); !errors.Is(r.Err, tt.want) {
			t.Errorf("%v: %v", tt.gives, r.Err)
		}
	}
	h.HTTP = func(fetch.Request) (*fetch.Response, error) {
		return &fetch.Response{Body: make([]byte, 16<<20+1)}, nil
	}
	if r := h.Run(get, sdktest.Task{}); !errors.Is(r.Err, sdk.ErrTooBig) {
		t.Errorf("too big: %v", r.Err)
	}
}
