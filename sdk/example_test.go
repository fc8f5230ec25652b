package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quern-project/quern/sdk"
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
