// Command command is the smallest command.
package main

import (
	"context"

	"github.com/quern-project/quern/sdk"
)

func main() { sdk.Handle(nothing) }

func nothing(context.Context, *sdk.Task) ([]byte, error) { return nil, nil }
