package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
)

// healthTimeout bounds the wait for a host's answer.
const healthTimeout = 5 * time.Second

// newHealth checks a host on this machine, for containers that have no other program for that.
func newHealth() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the host at --http whether it lives, or with --ready whether it takes tasks",
		Args:  cli.Arguments(0, 0),
	}
	address := cmd.Flags().String("http", "127.0.0.1:9464", "`ADDRESS` that the host has by its own --http")
	ready := cmd.Flags().Bool("ready", false, "ask whether it takes tasks, which it does not while Redis is away")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		host, port, err := net.SplitHostPort(*address)
		if err != nil {
			return cli.Usagef("--http %q: %w: use an address such as 127.0.0.1:9464", *address, err)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1" // the host listens on all interfaces; an image may have no names
		}
		page := "/healthz"
		if *ready {
			page = "/readyz"
		}
		client := &http.Client{Timeout: healthTimeout, Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
		request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, "http://"+net.JoinHostPort(host, port)+page, http.NoBody)
		if err != nil {
			return cli.Usagef("--http %q: %w", *address, err)
		}
		answer, err := client.Do(request)
		if err != nil {
			if request, ok := errors.AsType[*url.Error](err); ok {
				err = request.Err
			}
			return cli.Refusedf("no host answers at %s: %w: start one, or give its --http", *address, err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		if err != nil || answer.StatusCode != http.StatusOK {
			return cli.Refusedf("the host at %s answers %s: %s", *address, answer.Status, strings.TrimSpace(string(text)))
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), string(text))
		return err
	}
	return cmd
}
