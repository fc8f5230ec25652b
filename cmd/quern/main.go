// The C library's resolver makes system calls that runtime/confine forbids.
//go:debug netdns=go

// Command quern runs and manages an event-driven plugin host: `quern help` lists its commands.
package main

import (
	"context"
	"io"
	"log" //nolint:depguard // to silence it
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9/logging"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/hostlog"
)

func main() {
	logging.Disable()         // go-redis also returns as errors what it logs
	log.SetOutput(io.Discard) // net/http logs unsolicited responses there
	err := run(context.Background(), os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr)
	// The sink keeps a blocked reader of stderr from blocking the exit.
	stderr := hostlog.StartSink(os.Stderr, func(int) {}, hclog.NewNullLogger())
	status := cli.Report(err, stderr)
	stderr.Close()
	os.Exit(status)
}
