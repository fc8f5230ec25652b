package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/sdktest"
)

// The whole main of a plugin.
func ExampleHandle() {
	main := func() {
		sdk.Handle(func(_ context.Context, task *sdk.Task) ([]byte, error) {
			return bytes.ToUpper(task.Input), nil
		})
	}
	_ = main // Handle ends the process
}

// The whole main package of a plugin that is built with -buildmode=c-shared, in which main is only for go run.
func ExampleRun() {
	shout := func(_ context.Context, task *sdk.Task) ([]byte, error) {
		return bytes.ToUpper(task.Input), nil
	}
	main := func() { sdk.Handle(shout) }

	//go:wasmexport quern_handle
	handle := func() int32 { return sdk.Run(shout) }

	_, _ = main, handle // of the plugin
}

// A handler is an ordinary function: call it with a Task to test it.
func ExampleHandler() {
	var shout sdk.Handler = func(_ context.Context, task *sdk.Task) ([]byte, error) {
		return bytes.ToUpper(task.Input), nil
	}
	result, err := shout(context.Background(), &sdk.Task{Input: []byte("a quern is a hand mill")})
	fmt.Printf("%s, %v\n", result, err)
	// Output: A QUERN IS A HAND MILL, <nil>
}

// Words that another attempt would not change: the task fails for good.
func ExampleFatal() {
	err := sdk.Fatal(errors.New("the file is not a picture"))

	fatal, ok := errors.AsType[*sdk.FatalError](err)
	fmt.Println(ok, fatal)
	// Output: true the file is not a picture
}

// What is away now may be back soon: the task asks to be tried again.
func ExampleRetry() {
	err := fmt.Errorf("send page: %w", sdk.Retry(errors.New("the printer is out of paper")))

	retry, ok := errors.AsType[*sdk.RetryError](err)
	fmt.Println(ok, retry)
	fmt.Println(err)
	// Output:
	// true the printer is out of paper
	// send page: the printer is out of paper
}

// Who is asked to come again later passes that on.
func ExampleRetryAfter() {
	err := sdk.RetryAfter(errors.New("too many requests"), 30*time.Second)

	retry, ok := errors.AsType[*sdk.RetryError](err)
	fmt.Println(ok, retry, retry.After)
	// Output: true too many requests 30s
}

// What is to happen with the result is another task, which comes into being together with it.
func ExampleEnqueue() {
	handler := func(_ context.Context, task *sdk.Task) ([]byte, error) {
		// With an ID made of its parent's there is one such task, however often this one is run.
		_, err := sdk.Enqueue("mail.out", []byte("your order is on its way"), &sdk.EnqueueOptions{
			ID: task.ID + ".mail", Delay: time.Hour,
		})
		return []byte("sent"), err
	}
	h := sdktest.New(&testing.T{}) // of a test
	h.Queues = []string{"mail.*"}
	r := h.Run(handler, sdktest.Task{ID: "order-7"})
	fmt.Println(r.Enqueued[0].ID, r.Enqueued[0].Queue, r.Enqueued[0].Options.Delay)
	// Output: order-7.mail mail.out 1h0m0s
}

// A line of the log has names and values that programs can look for.
func ExampleLog() {
	handler := func(_ context.Context, task *sdk.Task) ([]byte, error) {
		return nil, sdk.Log(sdk.Warning, "the picture is small", "width", "12", "file", "a.jpg")
	}
	r := sdktest.New(&testing.T{}).Run(handler, sdktest.Task{})
	fmt.Println(r.Log[0])
	// Output: warning: the picture is small {"width":"12","file":"a.jpg"}
}

// What another attempt need not do again is in a bucket.
func ExampleBucket() {
	handler := func(_ context.Context, task *sdk.Task) ([]byte, error) {
		if _, err := sdk.Bucket("seen").Swap(string(task.Input), nil, []byte("yes"), 24*time.Hour); errors.Is(err, sdk.ErrConflict) {
			return []byte("known"), nil
		} else if err != nil {
			return nil, err
		}
		return []byte("new"), nil
	}
	h := sdktest.New(&testing.T{})
	h.Bucket("seen")
	for range 2 {
		fmt.Printf("%s\n", h.Run(handler, sdktest.Task{Input: []byte("a.jpg")}).Result)
	}
	// Output:
	// new
	// known
}

// A handler that goes through much saves how far it is. The test has the third save fail, and runs the task again.
func ExampleSaveCheckpoint() {
	handler := func(_ context.Context, task *sdk.Task) ([]byte, error) {
		saved, _, err := sdk.Checkpoint()
		if err != nil {
			return nil, err
		}
		done := len(saved)
		for i := done; i < len(task.Input); i++ {
			saved = append(saved, bytes.ToUpper(task.Input[i:i+1])...)
			if err := sdk.SaveCheckpoint(saved); err != nil {
				return nil, err
			}
		}
		return fmt.Appendf(nil, "%s, from %d on", saved, done), nil
	}
	h := sdktest.New(&testing.T{})
	saves := 0
	h.Fault = func(string) error {
		if saves++; saves == 3 {
			return sdk.ErrUnavailable
		}
		return nil
	}
	r := h.Run(handler, sdktest.Task{Input: []byte("quern")})
	fmt.Printf("%s: %s\n", r.Outcome, r.Checkpoint)
	fmt.Printf("%s\n", h.Run(handler, sdktest.Task{Input: []byte("quern"), Checkpoint: r.Checkpoint}).Result)
	// Output:
	// failed: QU
	// QUERN, from 2 on
}

// A handler that takes long looks whether its host is about to end.
func ExampleHandler_context() {
	handler := func(ctx context.Context, task *sdk.Task) ([]byte, error) {
		for range 1_000_000 {
			if ctx.Err() != nil {
				return nil, sdk.Retry(errors.New("the host is about to end"))
			}
		}
		return []byte("done"), nil
	}
	h := sdktest.New(&testing.T{})
	h.Cancel()
	fmt.Println(h.Run(handler, sdktest.Task{}))
	// Output: retry: the host is about to end
}

// A long task tells how far it is.
func ExampleProgress() {
	handler := func(_ context.Context, task *sdk.Task) ([]byte, error) {
		pages := bytes.Split(task.Input, []byte("\f"))
		for i, page := range pages {
			sdk.Progress(float64(i)/float64(len(pages)), "page "+strconv.Itoa(i+1))
			pages[i] = bytes.ToUpper(page)
		}
		return bytes.Join(pages, []byte("\f")), nil
	}
	result, err := handler(context.Background(), &sdk.Task{Input: []byte("one\ftwo")})
	fmt.Printf("%q, %v\n", result, err)
	// Output: "ONE\fTWO", <nil>
}
