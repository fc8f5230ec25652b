package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	defaultRedis = "redis://127.0.0.1:6379/0"
	// tenantRule says what a tenant may be.
	tenantRule = "use 1 to 32 of a-z 0-9 and - for each, or such a word in braces"
)

// redisURL returns the setting, "" if there is none.
func redisURL(cmd *cobra.Command) (string, error) {
	url := cmd.Flag("redis").Value.String()
	path, _ := cmd.Flags().GetString("redis-file")
	if path == "" {
		return url, nil
	}
	from := origin(cmd.Flag("redis-file"))
	if url != "" {
		return "", usagef("both %s and %s are set: leave one of them out", origin(cmd.Flag("redis")), from)
	}
	return urlOfFile(from, path)
}

// urlOfFile reads the URL of Redis from the file that a setting names.
func urlOfFile(from, path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%s: %w: name a file with the URL of Redis", from, err)
	}
	url := strings.TrimSpace(string(content))
	if url == "" {
		return "", usagef("%s: %s is empty: write the URL of Redis into it", from, path)
	}
	return url, nil
}

// wrongRedis adds the origin of the URL to the error of an invalid one.
func wrongRedis(cmd *cobra.Command, err error) error {
	for _, name := range []string{"redis-file", "redis"} {
		if flag := cmd.Flag(name); flag.Value.String() != "" {
			return usagef("%s: %w", origin(flag), trimInvalid(err))
		}
	}
	return wrongUsage(err)
}

// clientFlags adds what every client command takes.
func clientFlags(cmd *cobra.Command) {
	cmd.PersistentFlags().String("tenant", queue.DefaultTenant, "whose queues and tasks: the key prefix in Redis")
}

// target finds a client command's Redis and tenant. The Redis is that of the setting, or of a `quern dev` that answers,
// or the default.
func target(cmd *cobra.Command, env environment) (url, tenant string, err error) {
	if url, err = redisURL(cmd); err != nil {
		return "", "", err
	}
	flag := cmd.Flag("tenant")
	if tenant = flag.Value.String(); queue.ValidTenant(tenant) != nil {
		return "", "", usagef("%s %q: %s", origin(flag), tenant, tenantRule)
	}
	if url == "" {
		url = defaultRedis
		dev, ok, err := findDev(cmd.Context(), env)
		if err != nil {
			return "", "", err
		}
		if ok {
			url = dev.Redis
			fmt.Fprintf(cmd.ErrOrStderr(), "quern: using `quern dev` at %s\n", queue.Redact(url))
		}
	}
	return url, tenant, nil
}

// connect makes the client of a client command, for the tenant of its flag.
func connect(cmd *cobra.Command, env environment, config queue.Config) (*queue.Client, error) {
	url, tenant, err := target(cmd, env)
	if err != nil {
		return nil, err
	}
	config.Tenant = tenant
	client, err := queue.New(url, config)
	if err != nil {
		return nil, wrongRedis(cmd, err)
	}
	return client, nil
}

// withClient wraps a command that needs a client. output is nil for a command without -o.
func withClient(env environment, output *choice, run func(cmd *cobra.Command, client *queue.Client, args []string, json bool) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := connect(cmd, env, queue.Config{})
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args, output != nil && output.json())
	}
}
