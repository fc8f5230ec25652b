// Command quern runs and looks after an event-driven plugin host: `quern help` lists what it does.
package main

import (
	"context"
	"os"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(report(err, os.Stderr))
}
