package tenant

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
)

// clientFlags adds what commands take that work over Redis and by the API of a server.
func clientFlags(commands ...*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		connect.Flags(cmd)
		serverFlags(cmd.PersistentFlags())
	}
	return commands
}

func serverFlags(f *pflag.FlagSet) {
	option.Text(f, new(string), "URL", "server", "`URL` of the API of `quern serve --admin` or `quern admin`, in the place of --redis: https://HOST:PORT, with ?ca=FILE&cert=FILE&key=FILE as needed")
	option.Text(f, new(string), "TOKEN", "token", "`TOKEN` for --server; others on this machine can see it here: better set QUERN_TOKEN, or use --token-file")
	f.String("token-file", "", "`FILE` with the token for --server")
}

// direct is a tenant on a connection of its own.
type direct struct {
	*admin.Direct
	rdb redis.UniversalClient
}

func (d direct) Close() error { return errors.Join(d.Direct.Close(), d.rdb.Close()) }

// dial connects a client command to the tenant of its flag.
func dial(cmd *cobra.Command, env cli.Environment) (admin.Tenant, error) {
	tenant, err := connect.Tenant(cmd)
	if err != nil {
		return nil, err
	}
	config := queue.Config{Tenant: tenant, Headers: func(context.Context) map[string]string { return traceOf(env) }}
	if flag := cmd.Flag("replicas"); flag != nil {
		config.Replicas, _ = strconv.Atoi(flag.Value.String())
	}
	if flag := cmd.Flag("server"); flag != nil && (flag.Value.String() != "" || flag.Changed) {
		return connectServer(cmd, config)
	}
	rdb, err := connect.Redis(cmd, env, queue.Connect)
	if err != nil {
		return nil, err
	}
	c, err := queue.NewFromRedis(rdb, config)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	return direct{admin.NewDirect(c, kv.New(rdb, config.Tenant)), rdb}, nil
}

// connectServer connects to the tenant by the API of --server.
func connectServer(cmd *cobra.Command, config queue.Config) (admin.Tenant, error) {
	flag := cmd.Flag("server")
	for _, name := range []string{"redis", "redis-file"} {
		if other := cmd.Flag(name); other.Value.String() != "" || other.Changed {
			return nil, cli.Usagef("both %s and %s are set: leave one of them out", cli.Origin(flag), cli.Origin(other))
		}
	}
	if config.Replicas > 0 {
		return nil, cli.Usagef("--replicas with %s: the API does not wait for replicas: use --redis, or leave --replicas out", cli.Origin(flag))
	}
	token, err := tokenOf(cmd)
	if err != nil {
		return nil, err
	}
	c, err := client.New(flag.Value.String(), token, config.Tenant)
	if err != nil {
		return nil, cli.Usagef("%s: %w", cli.Origin(flag), cli.TrimInvalid(err))
	}
	c.Trace = config.Headers(cmd.Context())
	c.Withheld = func(t *admin.Task) {
		cli.Note(cmd, "the token may not see what producers and handlers wrote of task %s: parameters of %d bytes, a result of %d bytes, headers, message and errors", t.ID, t.ParametersSize, t.ResultSize)
	}
	if u, err := url.Parse(c.Address()); err == nil && u.Scheme == "http" && token != "" && !isLoopback(u.Hostname()) {
		cli.Note(cmd, "the token crosses the network to %s unencrypted: use https://", u.Host)
	}
	return c, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tokenOf is the token of the settings, "" if there is none.
func tokenOf(cmd *cobra.Command) (string, error) {
	flag, file := cmd.Flag("token"), cmd.Flag("token-file")
	token, err := flag.Value.String(), error(nil)
	switch path := file.Value.String(); {
	case flag.Changed && token == "" || file.Changed && path == "":
		return "", cli.Usagef("--token or --token-file is empty: give it a value, or leave it out")
	case path != "" && token != "":
		return "", cli.Usagef("both %s and %s are set: leave one of them out", cli.Origin(flag), cli.Origin(file))
	case path != "":
		flag = file
		token, err = connect.ReadSetting(cli.Origin(file), path, "the token")
	}
	if strings.ContainsAny(token, " \r\n\t") {
		err = cli.Usagef("%s: the token has a space or a line break in it: give the token alone", cli.Origin(flag))
	}
	return token, err
}

// traceOf is the trace in the environment (TRACEPARENT, TRACESTATE), which CI systems and shells set. What a command
// enqueues and publishes belongs to it, unless it has its own. An invalid trace is ignored.
func traceOf(env cli.Environment) map[string]string {
	return queue.InheritTrace(map[string]string{queue.HeaderTraceparent: env.Get("TRACEPARENT"), queue.HeaderTracestate: env.Get("TRACESTATE")}, nil)
}
