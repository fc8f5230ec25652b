// Command saying is a command that says things, or gives its input back if it has one.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/quern-project/quern/sdk"
)

func main() { sdk.Handle(say) }

func say(ctx context.Context, task *sdk.Task) ([]byte, error) {
	if len(task.Input) > 0 {
		return task.Input, nil
	}
	sdk.Progress(0.5, "half way")
	return fmt.Append(nil,
		sdk.Log(sdk.Warning, "mind\nthe gap", "a", "b"), " ", sdk.Log(sdk.Info, "quern:progress=1"), " ",
		sdk.Log(9, "no level"), " ", sdk.Log(sdk.Info, "long", "a", strings.Repeat("x", 5000)), " ", ctx.Err() == nil,
	), nil
}
