// Package typed makes handlers of functions whose input and result are Go values.
package typed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk"
)

// JSON is the handler that reads the task's input as JSON into an In, and whose result is the JSON of f's Out. They are read and
// written as encoding/json does it, but that <, > and & stay as they are in the result.
//
// An input that is no JSON, or not that of an In, is [sdk.Fatal]: another attempt would find the same. So is an empty one, of a
// task that was enqueued without parameters: enqueue null or {} for an In that needs nothing. So is an Out that cannot be written.
// What f returns as an error is the handler's.
func JSON[In, Out any](f func(ctx context.Context, task *sdk.Task, in In) (Out, error)) sdk.Handler {
	return func(ctx context.Context, task *sdk.Task) ([]byte, error) {
		if len(task.Input) == 0 {
			return nil, sdk.Fatal(errors.New("read the task's input as JSON: there are no parameters"))
		}
		var in In
		if err := json.Unmarshal(task.Input, &in); err != nil {
			return nil, sdk.Fatal(fmt.Errorf("read the task's input as JSON: %w", err))
		}
		out, err := f(ctx, task, in)
		if err != nil {
			return nil, err
		}
		var result bytes.Buffer
		encoder := json.NewEncoder(&result)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(out); err != nil {
			return nil, sdk.Fatal(fmt.Errorf("write the task's result as JSON: %w", err))
		}
		return bytes.TrimSuffix(result.Bytes(), []byte("\n")), nil
	}
}
