package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
)

// serverFlags adds what every client command takes that also works by the API of a server.
func serverFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	newText(f, new(string), "URL", "server", "`URL` of the API of `quern serve --admin` or `quern admin`, in the place of --redis: https://HOST:PORT, with ?ca=FILE&cert=FILE&key=FILE as needed")
	newText(f, new(string), "TOKEN", "token", "`TOKEN` for --server; others on this machine can see it here: better set QUERN_TOKEN, or use --token-file")
	f.String("token-file", "", "`FILE` with the token for --server")
}

// direct is a tenant on a connection of its own.
type direct struct {
	*admin.Direct
	rdb redis.UniversalClient
}

func (d direct) Close() error { return errors.Join(d.Direct.Close(), d.rdb.Close()) }

// connect connects a client command to the tenant of its flag.
func connect(cmd *cobra.Command, env environment, config queue.Config) (admin.Tenant, error) {
	var err error
	if config.Tenant, err = tenantOf(cmd); err != nil {
		return nil, err
	}
	config.Headers = func(context.Context) map[string]string { return traceOf(env) }
	if flag := cmd.Flag("server"); flag != nil && (flag.Value.String() != "" || flag.Changed) {
		return connectServer(cmd, config)
	}
	rdb, err := connectRedis(cmd, env)
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
	for _, name := range redisFlags {
		if other := cmd.Flag(name); other.Value.String() != "" || other.Changed {
			return nil, usagef("both %s and %s are set: leave one of them out", origin(flag), origin(other))
		}
	}
	if config.Replicas > 0 {
		return nil, usagef("--replicas with %s: the API does not wait for replicas: use --redis, or leave --replicas out", origin(flag))
	}
	token, err := tokenOf(cmd)
	if err != nil {
		return nil, err
	}
	c, err := client.New(flag.Value.String(), token, config.Tenant)
	if err != nil {
		return nil, usagef("%s: %w", origin(flag), trimInvalid(err))
	}
	c.Trace = config.Headers(cmd.Context())
	c.Withheld = func(t *admin.Task) {
		note(cmd, "the token may not see what producers and handlers wrote of task %s: parameters of %d bytes, a result of %d bytes, headers, message and errors", t.ID, t.ParametersSize, t.ResultSize)
	}
	if u, err := url.Parse(c.Address()); err == nil && u.Scheme == "http" && token != "" && !isLoopback(u.Hostname()) {
		note(cmd, "the token crosses the network to %s unencrypted: use https://", u.Host)
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
		return "", usagef("--token or --token-file is empty: give it a value, or leave it out")
	case path != "" && token != "":
		return "", usagef("both %s and %s are set: leave one of them out", origin(flag), origin(file))
	case path != "":
		flag = file
		token, err = firstOfFile(origin(file), path, "the token")
	}
	if strings.ContainsAny(token, " \r\n\t") {
		err = usagef("%s: the token has a space or a line break in it: give the token alone", origin(flag))
	}
	return token, err
}

// firstOfFile reads what a setting names a file for.
func firstOfFile(from, path, what string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%s: %w: name a file with %s", from, err, what)
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return "", usagef("%s: %s is empty: write %s into it", from, path, what)
	}
	return text, nil
}
