// Command receiver receives webhooks: it checks the signature of each, prints its body, and answers with the status
// that the flag -status sets.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/quern-project/quern/examples/internal/service"
	"github.com/quern-project/quern/examples/webhook/signature"
)

const maxBody = 1 << 20

func main() { service.Main("receiver", run) }

// run receives webhooks until ctx ends. First it prints where it listens.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("receiver", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:8080", "the address to listen on")
	keyFile := flags.String("key", "secrets/blueque/signing_key", "the file that holds the key")
	status := flags.Int("status", http.StatusNoContent, "the status to answer a webhook with whose signature is right")
	retryAfter := flags.String("retry-after", "", "the header Retry-After to answer with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*keyFile)
	if err != nil {
		return err
	}
	key, err := signature.ParseKey(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", *keyFile, err)
	}
	return service.Serve(ctx, *listen, receive(key, *status, *retryAfter, stdout), func(at net.Addr) {
		fmt.Fprintf(stdout, "receiving at http://%s\n", at)
	})
}

// receive returns a handler that prints webhooks and answers them with the status.
func receive(key signature.Key, status int, retryAfter string, out io.Writer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err == nil {
			h := r.Header
			id := h.Get(signature.HeaderID)
			err = key.Check(id, h.Get(signature.HeaderTimestamp), h.Get(signature.HeaderSignature), body, time.Now())
		}
		if err != nil {
			fmt.Fprintf(out, "%s: refused: %v\n", r.Header.Get(signature.HeaderID), err)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(out, "%s: %s\n", r.Header.Get(signature.HeaderID), body)
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	})
}
