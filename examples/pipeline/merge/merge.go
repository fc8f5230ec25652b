// Handler merge is the end of the pipeline: it adds up the counts that count has stored for a document's parts.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/typed"
)

const parts = sdk.Bucket("parts")

// order is the task's input.
type order struct {
	Document string `json:"document"` // the ID of the split task
	Run      string `json:"run"`      // the name of the run of split that made the parts
	Parts    int    `json:"parts"`
}

// report is the task's result.
type report struct {
	Document string `json:"document"`
	Parts    int    `json:"parts"`
	Lines    int    `json:"lines"`
	Words    int    `json:"words"`
	Bytes    int    `json:"bytes"`
}

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(typed.JSON(merge)) }

func main() { sdk.Handle(typed.JSON(merge)) }

// merge reads the counts and does not delete them, so that a second attempt finds them, too. They expire by themselves.
func merge(_ context.Context, _ *sdk.Task, o order) (report, error) {
	if o.Document == "" || o.Run == "" || o.Parts < 1 {
		return report{}, sdk.Fatal(errors.New("the task was not enqueued by count: only count may enqueue tasks for merge"))
	}
	sum := report{Document: o.Document, Parts: o.Parts}
	for part := 1; part <= o.Parts; part++ {
		value, err := parts.Get(fmt.Sprintf("%s %s %d", o.Document, o.Run, part))
		if err != nil {
			err = fmt.Errorf("read part %d: %w", part, err)
			if errors.Is(err, sdk.ErrUnavailable) {
				err = sdk.Retry(err) // retry without using up an attempt
			}
			return report{}, err
		}
		var lines, words, size int
		if _, err := fmt.Sscanf(string(value), "%d %d %d", &lines, &words, &size); err != nil {
			return report{}, sdk.Fatal(fmt.Errorf("part %d is %q: %w", part, value, err))
		}
		sum.Lines += lines
		sum.Words += words
		sum.Bytes += size
	}
	return sum, nil
}
