// Package typed makes handlers from functions whose input and result are Go values.
package typed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/quern-project/quern/sdk"
)

// JSON returns a handler that decodes the task's input from JSON into an In, calls f, and encodes f's Out as JSON.
// Decoding and encoding follow encoding/json, except that <, > and & are not escaped in the result.
//
// The handler returns an [sdk.Fatal] error if the input cannot be decoded into an In, because another attempt would
// find the same input. An empty input is the zero In: a task has one that was enqueued without parameters, such as a
// join of other tasks. An Out that cannot be encoded is an [sdk.Fatal] error too. The handler returns errors of f
// unchanged.
func JSON[In, Out any](f func(ctx context.Context, task *sdk.Task, in In) (Out, error)) sdk.Handler {
	return func(ctx context.Context, task *sdk.Task) ([]byte, error) {
		var in In
		if len(task.Input) > 0 {
			if err := json.Unmarshal(task.Input, &in); err != nil {
				return nil, sdk.Fatal(fmt.Errorf("read the task's input as JSON: %w", err))
			}
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
