// Command serve is the web service of package api, for trying the importer by hand: it prints what it is asked for.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/quern-project/quern/examples/importer/api"
)

const (
	records  = 1000
	pageSize = 20
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, "127.0.0.1:8080", os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It prints where it listens first.
func run(ctx context.Context, address string, stdout io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d records at http://%s/records\n", records, listener.Addr())
	pages := api.New(api.Records(records), pageSize)
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(stdout, r.Method, r.URL)
			pages.ServeHTTP(w, r)
		}),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
