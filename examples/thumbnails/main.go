// Handler thumbnails is a Quern plugin that makes thumbnails. A task's input is a photograph, its result the thumbnail.
//
// It takes JPEG, PNG, GIF and WebP. The thumbnail is an upright JPEG whose longer side has at most
// size pixels. Input that is not a picture, or is a damaged one, fails for good: another attempt
// would read the same bytes.
package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/quern-project/quern/sdk"
)

// A thumbnail fits into a square. The side of the square, in pixels, is the value size in the section config of the
// plugin's manifest.
const (
	sizeName    = "size"
	defaultSize = 320
	maxSize     = 4096
)

// Handle is the function that Quern calls for each task, by the name quern_handle.
//
//go:wasmexport quern_handle
func Handle() int32 { return sdk.Run(handle) }

// main is for go run, where the size is always the default one.
func main() { sdk.Handle(handle) }

func handle(_ context.Context, task *sdk.Task) ([]byte, error) {
	size := defaultSize
	if value, ok := sdk.Config(sizeName); ok {
		var err error
		if size, err = parseSize(value); err != nil {
			return nil, err
		}
	}
	return thumbnail(task.Input, size, sdk.Progress)
}

// parseSize reads the size that the manifest sets. A wrong size is an ordinary failure, not a
// fatal one: the task is good, and will succeed once the manifest is corrected.
func parseSize(s string) (int, error) {
	size, err := strconv.Atoi(s)
	if err != nil || size < 1 || size > maxSize {
		return 0, fmt.Errorf("config: %s is %q: the manifest must set it to a whole number of pixels, 1 to %d", sizeName, s,
			maxSize)
	}
	return size, nil
}
