// Command handler is the smallest handler.
package main

import (
	"context"

	"github.com/quern-project/quern/sdk"
)

func main() { sdk.Handle(nothing) }

//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(nothing) }

func nothing(context.Context, *sdk.Task) ([]byte, error) { return nil, nil }
