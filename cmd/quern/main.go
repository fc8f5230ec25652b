// The C library's resolver makes system calls that runtime/confine forbids.
//go:debug netdns=go

// Command quern runs and looks after an event-driven plugin host: `quern help` lists what it does.
package main

import (
	"context"
	"io"
	"log" //nolint:depguard // to silence it
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(silence{})
	log.SetOutput(io.Discard) // net/http's: it writes there what a server sends that nobody asked for
	err := run(context.Background(), os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr)
	stderr := startLogSink(os.Stderr, func(int) {}, hclog.NewNullLogger()) // the end waits for nobody who should read
	status := report(err, stderr)
	stderr.close()
	os.Exit(status)
}

// silence drops what go-redis would write to stderr by itself: it is in the errors that it returns.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
