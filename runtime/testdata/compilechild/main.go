// Is the compile child of tests that must not wait for one with the race detector in it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/quern-project/quern/runtime"
)

func main() {
	if err := runtime.CompileChild(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
