//go:build !wasip1

package sdk

import "os"

// runHandler is what Handle does, for there is no host.
func runHandler(handler Handler) int32 {
	return int32(run(handler, os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

func misplaced() bool { return false }
