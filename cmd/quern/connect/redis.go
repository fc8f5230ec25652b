// Package connect finds the Redis of a command: that of its settings, of a running `quern dev`, or the default.
package connect

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// ReadSetting reads the value in the file that a setting names.
func ReadSetting(from, path, what string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", cli.Usagef("%s: %w: name a file with %s", from, err, what)
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return "", cli.Usagef("%s: %s is empty: write %s into it", from, path, what)
	}
	return text, nil
}

// DefaultURL is the Redis of commands without a setting.
const DefaultURL = "redis://127.0.0.1:6379/0"

// URL returns the URL of --redis or --redis-file, "" if neither is set.
func URL(cmd *cobra.Command) (string, error) {
	url := cmd.Flag("redis").Value.String()
	if url == "" && cmd.Flag("redis").Changed { // by a script whose variable is not set
		return "", cli.Usagef("--redis is empty: give the URL of Redis, or leave it out")
	}
	path, _ := cmd.Flags().GetString("redis-file")
	if path == "" {
		return url, nil
	}
	from := cli.Origin(cmd.Flag("redis-file"))
	if url != "" {
		return "", cli.Usagef("both %s and %s are set: leave one of them out", cli.Origin(cmd.Flag("redis")), from)
	}
	return ReadURL(from, path)
}

// ReadURL reads the URL of Redis from the file that a setting names.
func ReadURL(from, path string) (string, error) { return ReadSetting(from, path, "the URL of Redis") }

// WrongURL adds the origin of the URL to the error of an invalid one.
func WrongURL(cmd *cobra.Command, err error) error {
	for _, name := range []string{"redis-file", "redis"} {
		if flag := cmd.Flag(name); flag.Value.String() != "" {
			return cli.Usagef("%s: %w", cli.Origin(flag), cli.TrimInvalid(err))
		}
	}
	return cli.WrongUsage(err)
}

// Flags adds the flags of every client command.
func Flags(cmd *cobra.Command) {
	cmd.Annotations = map[string]string{cli.UsesRedis: "yes"}
	cmd.PersistentFlags().String("tenant", queue.DefaultTenant, "whose queues and tasks: the key prefix in Redis")
}

// Tenant is a client command's tenant.
func Tenant(cmd *cobra.Command) (string, error) {
	flag := cmd.Flag("tenant")
	tenant := flag.Value.String()
	if queue.ValidTenant(tenant) != nil {
		return "", cli.Usagef("%s %q: %s", cli.Origin(flag), tenant, cli.TenantRule)
	}
	return tenant, nil
}

// Redis connects to the Redis of the settings, else to that of a running `quern dev`, else to the default, by
// queue.Connect or queue.ConnectBounded.
func Redis(cmd *cobra.Command, env cli.Environment, connect func(url string) (redis.UniversalClient, error)) (redis.UniversalClient, error) {
	url, err := FindURL(cmd, env)
	if err != nil {
		return nil, err
	}
	rdb, err := connect(url)
	if err != nil {
		return nil, WrongURL(cmd, err)
	}
	return rdb, nil
}

// FindURL is the URL to which Redis connects.
func FindURL(cmd *cobra.Command, env cli.Environment) (string, error) {
	url, err := URL(cmd)
	if err != nil || url != "" {
		return url, err
	}
	dev, ok, err := FindDev(cmd.Context(), env)
	if !ok || err != nil {
		return DefaultURL, err
	}
	cli.Note(cmd, "using `quern dev` at %s", WithoutPassword(dev.Redis))
	return dev.Redis, nil
}

const (
	// OutageTimeout ends a wait if Redis is away for longer. It is long enough for a restart.
	OutageTimeout = 30 * time.Second
	// OutagePause is how long to wait before Redis is tried again.
	OutagePause = 200 * time.Millisecond
)

// ThroughOutage repeats a write while Redis is away, for at most outage. It also reports whether Redis was away.
func ThroughOutage(ctx context.Context, outage time.Duration, write func() error) (away bool, err error) {
	var since time.Time
	for err = write(); queue.IsUnavailable(err); err = write() {
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) >= outage {
			break
		}
		if !periodic.Sleep(ctx, OutagePause) {
			return true, ctx.Err()
		}
	}
	return !since.IsZero(), err
}
