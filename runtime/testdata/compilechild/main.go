// Is the compile child of tests that must not wait for one with the race detector in it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/quern-project/quern/runtime/compile"
)

func main() {
	if err := compile.Child(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
