//go:build !wasip1

package sdk

import (
	"io"
	"os"
)

// The functions below access the process through package os. Guests do not use package os: see process_wasip1.go.

func stdin() io.Reader  { return os.Stdin }
func stdout() io.Writer { return os.Stdout }
func stderr() io.Writer { return os.Stderr }

func getenv(name string) string { return os.Getenv(name) }

func exit(status int) { os.Exit(status) }
