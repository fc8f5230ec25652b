// Handler split is the beginning of the pipeline: it takes a text apart and enqueues a task for each part.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/quern-project/quern/sdk"
)

const (
	countQueue = "count"
	// maxParts is the maximum number of tasks that one task can enqueue. MOST_PARTS in count, which makes room for that
	// many keys, must be the same number.
	maxParts = 256
	// spaces is the white space of ASCII.
	spaces = " \t\n\v\f\r"
)

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(split) }

func main() { sdk.Handle(split) }

// split enqueues a task for each part of the document. The other handlers identify the document by this task's ID. The
// new tasks are created together when this task is complete: a run that fails, or whose host dies, enqueues nothing. So
// all parts that are counted come from one run.
func split(_ context.Context, task *sdk.Task) ([]byte, error) {
	size, err := partSize()
	if err != nil {
		return nil, err
	}
	parts := cut(task.Input, size)
	if len(parts) > maxParts {
		return nil, sdk.Fatal(fmt.Errorf("the document has %d parts of %d bytes, at most %d may be: set config: part in the manifest higher",
			len(parts), size, maxParts))
	}
	// The name of the run distinguishes its counts from counts that an earlier document of the same ID has left.
	run := strconv.FormatUint(rand.Uint64(), 36)
	for i, part := range parts {
		body := append(fmt.Appendf(nil, "%d %d %s\n", i+1, len(parts), run), part...)
		options := sdk.EnqueueOptions{ID: fmt.Sprintf("%s.%d", task.ID, i+1), Key: task.ID}
		if _, err := sdk.Enqueue(countQueue, body, &options); err != nil {
			err = fmt.Errorf("enqueue part %d: %w", i+1, err)
			if errors.Is(err, sdk.ErrUnavailable) {
				err = sdk.Retry(err) // retry without using up an attempt
			}
			return nil, err
		}
	}
	return fmt.Appendf(nil, "%d parts, to be reported by task %s.report\n", len(parts), task.ID), nil
}

func partSize() (int, error) {
	text, _ := sdk.Config("part")
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 {
		return 0, fmt.Errorf("config: part is %q: the manifest must set it to a number of bytes, 1 or more", text)
	}
	return size, nil
}

// cut cuts a text after white space, so that no word is in two parts. A part is longer than size only if it is one
// word. An empty text becomes one empty part.
func cut(text []byte, size int) (parts [][]byte) {
	for len(text) > size {
		end := bytes.LastIndexAny(text[:size], spaces) + 1
		if end == 0 {
			end = bytes.IndexAny(text, spaces) + 1
		}
		if end == 0 {
			break
		}
		parts = append(parts, text[:end])
		text = text[end:]
	}
	return append(parts, text)
}
