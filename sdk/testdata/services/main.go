// Command services is a handler that uses each service of the host, and writes what it was answered.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk"
)

func main() { sdk.Handle(use) }

//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(use) }

// size is asked for at the start.
var size, sized = sdk.Config("size")

func use(_ context.Context, task *sdk.Task) ([]byte, error) {
	var b bytes.Buffer
	say := func(what string, answers ...any) { fmt.Fprintln(&b, append([]any{what + ":"}, answers...)...) }

	_, absent := sdk.Config("none")
	say("config", size, sized, absent)
	secret, err := sdk.Secret("api_key")
	_, none := sdk.Secret("lost")
	_, denied := sdk.Secret("other")
	say("secret", string(secret), err, errors.Is(none, sdk.ErrNotFound), denied)

	counts := sdk.Bucket("counts")
	_, none = counts.Get("k")
	say("get nothing", none)
	sum, err := counts.Increment("n", 40)
	say("increment", sum, err)
	sum, err = counts.Increment("n", 2)
	say("increment", sum, err)
	say("set", counts.Set("k", []byte("value"), 0), counts.Set("short", nil, time.Hour))
	_, err = counts.Increment("k", 1)
	say("increment a text", err)
	value, err := counts.Get("k")
	say("get", string(value), err)
	value, err = counts.Get("short")
	say("get nothing in it", len(value), err)
	present, err := counts.Swap("k", []byte("other"), []byte("new"), 0)
	say("swap", string(present), err)
	present, err = counts.Swap("k", []byte("value"), []byte("new"), 0)
	say("swap", string(present), err)
	present, err = counts.Swap("k", nil, []byte("newer"), 0)
	say("swap", string(present), err)
	present, err = counts.Swap("absent", []byte("x"), []byte("y"), 0)
	say("swap", present == nil, err)
	present, err = counts.Swap("absent", nil, []byte("y"), 0)
	say("swap", present == nil, err)
	keys, err := counts.List("", "", 10)
	say("list", keys, err)
	keys, err = counts.List("", "k", 1)
	say("list", keys, err)
	_, err = counts.List("", "", 0)
	say("list none", err)
	was, err := counts.Delete("k")
	say("delete", was, err)
	was, err = counts.Delete("k")
	say("delete", was, err)
	say("quota", sdk.Bucket("small").Set("k", make([]byte, 1000), 0))
	say("read only", sdk.Bucket("seen").Set("k", nil, 0))

	_, ok, err := sdk.Checkpoint()
	say("checkpoint", ok, err)
	say("save", sdk.SaveCheckpoint([]byte("step 1")), sdk.SaveCheckpoint(make([]byte, 1<<20+1)))
	value, ok, err = sdk.Checkpoint()
	say("checkpoint", string(value), ok, err)

	say("log", sdk.Log(sdk.Warning, "two\nlines", "a", "1\t\"x\"", "b", "\xff"), sdk.Log(sdk.Info, "x", "odd"), sdk.Log(9, "x"))
	deadline, ok := task.Deadline()
	say("task", task.PreviousError(), task.Parent(), task.Key(), ok && time.Until(deadline) < time.Hour, task.Cancelled())
	return b.Bytes(), nil
}
