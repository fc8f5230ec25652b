// Command thumbnails is a Quern plugin: a photograph is the task's input, its thumbnail the result.
//
// JPEG, PNG, GIF and WebP go in, JPEG comes out, upright, its longer side no longer than SIZE
// pixels. What is not a picture, or is one that arrived damaged, fails for good: another attempt
// would read the same bytes.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/quern-project/quern/sdk"
)

// A thumbnail fits into a square whose side is named by the environment variable SIZE, which the
// plugin's manifest sets.
const (
	sizeVariable = "SIZE"
	defaultSize  = 320
	maxSize      = 4096
)

func main() {
	sdk.Handle(func(_ context.Context, task *sdk.Task) ([]byte, error) {
		size, err := parseSize(os.Getenv(sizeVariable))
		if err != nil {
			return nil, err
		}
		return thumbnail(task.Input, size)
	})
}

// parseSize reads the manifest's word on the size. A wrong one is an ordinary failure, not a
// fatal one: the task is good, and will succeed once the manifest is mended.
func parseSize(s string) (int, error) {
	if s == "" {
		return defaultSize, nil
	}
	size, err := strconv.Atoi(s)
	if err != nil || size < 1 || size > maxSize {
		return 0, fmt.Errorf("environment variable %s is %q: the manifest must set it to a whole number of pixels, 1 to %d",
			sizeVariable, s, maxSize)
	}
	return size, nil
}
