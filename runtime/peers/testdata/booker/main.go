// Command booker is a handler that inserts a row for each task.
package main

import (
	"context"

	"github.com/quern-project/quern/sdk"
)

func main() { sdk.Handle(book) }

//go:wasmexport quern_handle
func handle() int32 { return sdk.Run(book) }

func book(_ context.Context, task *sdk.Task) ([]byte, error) {
	_, err := sdk.Database("shop").Exec("INSERT INTO booked (text) VALUES ($1)", string(task.Input))
	return nil, err
}
