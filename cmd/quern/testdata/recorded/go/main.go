// Plugin recorded uses all that a host records, and then fails in the way that its parameters ask for.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
)

// key and mended are other than these in changed modules: the linker sets them.
var key, mended = "times", ""

func main() { sdk.Handle(handle) }

//go:wasmexport quern_handle
func run() int32 { return sdk.Run(handle) }

func handle(ctx context.Context, task *sdk.Task) ([]byte, error) {
	began := time.Now()
	bucket := sdk.Bucket("seen")
	times, err := bucket.Increment(key, 1)
	if err != nil {
		return nil, err
	}
	secret, err := sdk.Secret("api_key")
	if err != nil {
		return nil, err
	}
	answer, err := fetch.Do(ctx, fetch.Request{
		Method: "GET", URL: os.Getenv("SERVER") + "/rate", Header: map[string][]string{"Authorization": {string(secret)}},
	})
	if err != nil {
		return nil, err
	}
	if err := bucket.Set("rate", answer.Body, 0); err != nil {
		return nil, err
	}
	counts := make(map[string]int) // iterates in a random order
	for i := range 20 {
		counts[fmt.Sprint(i)] = rand.IntN(1000)
	}
	order := ""
	for name, count := range counts {
		order += fmt.Sprintf(" %s=%d", name, count)
	}
	_ = sdk.Log(sdk.Info, fmt.Sprintf("times %d, rate %s, %s, order%s", times, answer.Body, began, order))
	switch string(task.Input) {
	case "trap":
		if mended != "" {
			return []byte(mended), nil
		}
		return nil, divide(int(times), 0, began)
	case "loop":
		for time.Since(began) >= 0 { //nolint:revive // until its host stops it
		}
	case "complete":
		return []byte(order), nil
	}
	return nil, errors.New("nothing at" + order)
}

// divide fails.
func divide(a, b int, began time.Time) error {
	var list []int
	return fmt.Errorf("%d at %s", list[a/max(b, 1)], began)
}
