package sdktest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
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

// A run goes on from the checkpoint of an earlier one, which may have failed.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	saves := 0
	h.Fault = func(string) error {
		if saves++; saves == 3 {
			return sdk.ErrUnavailable
		}
		return nil
	}
	r := h.Run(pages, sdktest.Task{})
	if r.Outcome != sdktest.Failed || string(r.Checkpoint) != "12" || !errors.Is(r.Err, sdk.ErrUnavailable) {
		t.Errorf("%+v", r)
	}
	if r := h.Run(pages, sdktest.Task{Checkpoint: r.Checkpoint}); string(r.Result) != "12345" || string(r.Checkpoint) != "12345" || saves != 6 {
		t.Errorf("%+v after %d saves", r, saves)
	}
	if r := h.Run(pages, sdktest.Task{}); string(r.Result) != "12345" || saves != 11 {
		t.Errorf("without a checkpoint: %+v after %d saves", r, saves)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	errNoPaper := errors.New("no paper")
	h := sdktest.New(t)
	for _, tt := range []struct {
		err   error
		want  sdktest.Outcome
		after time.Duration
		text  string
	}{
		{errNoPaper, sdktest.Failed, 0, "failed: no paper"},
		{fmt.Errorf("print: %w", sdk.Retry(errNoPaper)), sdktest.Retry, 0, "retry: print: no paper"},
		{sdk.RetryAfter(errNoPaper, time.Minute), sdktest.Retry, time.Minute, "retry: no paper (retry after 1m0s)"},
		{
			sdk.RetryKeyAfter(errNoPaper, time.Minute), sdktest.Retry, time.Minute,
			"retry: no paper (retry after 1m0s, all tasks with its key)",
		},
		{nil, sdktest.Complete, 0, "complete\nwarning: oh"},
		{sdk.Fatal(errNoPaper), sdktest.Fatal, 0, "fatal: no paper"},
		{errNoPaper, sdktest.Failed, 0, "failed: no paper"},
	} {
		r := h.Run(func(_ context.Context, task *sdk.Task) ([]byte, error) {
			if task.Attempt != 1 || task.PreviousError() != "" {
				t.Errorf("attempt %d after %q", task.Attempt, task.PreviousError())
			}
			if tt.err == nil {
				return nil, sdk.Log(sdk.Warning, "oh")
			}
			return []byte("x"), tt.err
		}, sdktest.Task{})
		if r.Outcome != tt.want || r.RetryAfter != tt.after || r.Result != nil || !errors.Is(r.Err, tt.err) || r.String() != tt.text {
			t.Errorf("%v: %+v, %s", tt.err, r, r)
		}
	}
}

// A failed test shows the result that it got.
func TestResultString(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]string{
		"":                             "complete",
		`{"a":"é"}`:                    `complete: {"a":"é"}`,
		"\xff":                         `complete: "\xff"`,
		strings.Repeat("é", 513) + "x": "complete: " + strings.Repeat("é", 512) + "… (3 more bytes)",
	} {
		if got := (&sdktest.Result{Outcome: sdktest.Complete, Result: []byte(result)}).String(); got != want {
			t.Errorf("%q", got)
		}
	}
}

// A denial names what to add to the test.
func TestDenied(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Bucket("old").ReadOnly()
	for want, call := range map[string]func() error{
		`kv get calls/a: denied: the test gives no bucket "calls": add h.Bucket("calls")`: func() error {
			_, err := sdk.Bucket("calls").Get("a")
			return err
		},
		`kv set old/a: denied: the test gives the bucket "old" by ReadOnly`: func() error { return sdk.Bucket("old").Set("a", nil, 0) },
		`secret key: denied: the test gives no secret "key": add h.Secrets["key"] = "…"`: func() error {
			_, err := sdk.Secret("key")
			return err
		},
		`enqueue to mail: denied: the test does not let it enqueue to "mail": add h.Queues = []string{"mail"}`: func() error {
			_, err := sdk.Enqueue("mail", nil, nil)
			return err
		},
		`publish to news: denied: the test does not let it publish to "news": add h.Topics = []string{"news"}`: func() error {
			_, err := sdk.Publish("news", nil, nil)
			return err
		},
		`GET https://a.example: denied: the test answers no requests: set h.HTTP, for example to sdktest.Serve(handler)`: func() error {
			_, err := fetch.Get(context.Background(), "https://a.example")
			return err
		},
	} {
		r := h.Run(func(context.Context, *sdk.Task) ([]byte, error) { return nil, call() }, sdktest.Task{})
		if !errors.Is(r.Err, sdk.ErrDenied) || r.Err.Error() != want {
			t.Errorf("%v, want %s", r.Err, want)
		}
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	r := sdktest.New(t).Run(func(context.Context, *sdk.Task) ([]byte, error) { panic("out of ink") }, sdktest.Task{})
	if r.Outcome != sdktest.Panicked || r.Status != 2 || r.Err == nil || !strings.HasPrefix(r.Err.Error(), "panic: out of ink [") {
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

// misuse returns what a test is told that uses a Harness in a wrong way.
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
	if got := misuse(func(h *sdktest.Harness) { h.Bucket("") }); !strings.HasPrefix(got, `sdktest: bucket "": use 1 to 256`) {
		t.Error(got)
	}
	// A handler that ends the test by t.FailNow, which is runtime.Goexit, leaves nothing behind.
	misuse(func(h *sdktest.Harness) {
		h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
			runtime.Goexit()
			return nil, nil
		}, sdktest.Task{})
	})
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
	b := h.Bucket("b").Set("for ever", "1")
	h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
		b := sdk.Bucket("b")
		_, err := b.Swap("swapped", nil, nil, time.Hour)
		err = errors.Join(err, b.Set("short", []byte("1"), time.Minute), b.Set("shortest", nil, 1))
		if _, err2 := b.Increment("short", 1); errors.Join(err, err2) != nil { // which keeps the time
			t.Error(err, err2)
		}
		return nil, nil
	}, sdktest.Task{})
	for key, want := range map[string]time.Duration{"for ever": 0, "short": time.Minute, "shortest": time.Millisecond, "swapped": time.Hour, "none": 0} {
		if got := b.TTL(key); got != want {
			t.Errorf("%s lives %v, want %v", key, got, want)
		}
	}
	if keys := b.Keys(); len(keys) != 4 {
		t.Errorf("%q", keys)
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

// TestEnqueue: what the handler enqueues is there for the test, with its options and an ID.
func TestEnqueue(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Queues = []string{"mail.*"}
	high := 90
	options := &sdk.EnqueueOptions{
		ID: "mine", Key: "k", Labels: map[string]string{"a": "b"}, Priority: &high, Delay: time.Second, MaxAttempts: 3, Timeout: time.Minute,
		Unique: &sdk.Unique{Key: "u", For: time.Hour},
	}
	r := h.Run(func(context.Context, *sdk.Task) ([]byte, error) {
		body := []byte("body")
		for _, o := range []*sdk.EnqueueOptions{options, nil, {}} {
			if _, err := sdk.Enqueue("mail.out", body, o); err != nil {
				t.Error(err)
			}
		}
		clear(body)
		if _, err := sdk.Enqueue("mail", nil, nil); !errors.Is(err, sdk.ErrDenied) {
			t.Error(err)
		}
		return nil, nil
	}, sdktest.Task{})
	if len(r.Enqueued) != 3 {
		t.Fatalf("%+v", r)
	}
	first := r.Enqueued[0]
	if first.ID != "mine" || first.Queue != "mail.out" || string(first.Parameters) != "body" || !reflect.DeepEqual(first.Options, *options) {
		t.Errorf("%+v", first)
	}
	if second, third := r.Enqueued[1], r.Enqueued[2]; second.ID != "child-2" || third.ID != "child-3" {
		t.Errorf("%+v, %+v", second, third)
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
