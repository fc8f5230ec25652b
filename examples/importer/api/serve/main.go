// Command serve runs the web service of package api, for trying the importer by hand. It prints each request.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/quern-project/quern/examples/importer/api"
	"github.com/quern-project/quern/examples/internal/service"
)

const (
	records  = 1000
	pageSize = 20
)

func main() {
	service.Main("serve", func(ctx context.Context, _ []string, stdout, _ io.Writer) error {
		return run(ctx, "127.0.0.1:8080", stdout)
	})
}

// run serves until ctx ends. First it prints where it listens.
func run(ctx context.Context, address string, stdout io.Writer) error {
	pages := api.New(api.Records(records), pageSize)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(stdout, r.Method, r.URL)
		pages.ServeHTTP(w, r)
	})
	return service.Serve(ctx, address, handler, func(at net.Addr) {
		fmt.Fprintf(stdout, "%d records at http://%s/records\n", records, at)
	})
}
