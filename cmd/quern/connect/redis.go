// Package connect finds the Redis of a command: that of its settings, of a running `quern dev`, or the default.
package connect

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
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
func Redis(cmd *cobra.Command, env cli.Environment,
	connect func(url string) (redis.UniversalClient, error),
) (redis.UniversalClient, error) {
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

// devTimeouts bound the check for a live `quern dev`.
const devTimeouts = "?dial_timeout=1s&read_timeout=1s"

// Dev is the content of the file by which clients find a `quern dev`.
type Dev struct {
	Redis string `json:"redis"`
	HTTP  string `json:"http"`
	PID   int    `json:"pid"`
}

// devPath is the file's path: quern/dev.json in $XDG_RUNTIME_DIR, or else in the cache folder.
func devPath(env cli.Environment) (string, error) {
	dir := env.Get("XDG_RUNTIME_DIR")
	var err error
	if !filepath.IsAbs(dir) {
		dir, err = env.CacheDir()
	}
	return filepath.Join(dir, "quern", "dev.json"), err
}

// FindDev finds a running `quern dev`. A killed one leaves its file behind, and another program may use its port
// by now. So its process must be alive, and its Redis must answer.
//
// A live process whose Redis does not answer is an error: tasks that are meant for it must not go to another Redis.
func FindDev(ctx context.Context, env cli.Environment) (dev Dev, ok bool, err error) {
	path, err := devPath(env)
	if err != nil {
		return dev, false, nil // without a folder for the file there is no `quern dev`
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // reading a pipe would never end
		return dev, false, nil
	}
	content, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(content, &dev) != nil || dev.PID <= 0 ||
		errors.Is(syscall.Kill(dev.PID, 0), syscall.ESRCH) {
		return dev, false, nil
	}
	client, err := queue.New(dev.Redis+devTimeouts, queue.Config{})
	if err != nil {
		return dev, false, nil
	}
	defer client.Close()
	_, err = client.Clock(ctx)
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return dev, false, cli.Refusedf("`quern dev` (process %d) does not answer: end it, or name another Redis with --redis", dev.PID)
	}
	return dev, err == nil, nil
}

// WithoutPassword is the URL of a `quern dev` without user and password.
func WithoutPassword(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return queue.Redact(raw)
	}
	u.User = nil
	return u.String()
}

// WriteDev writes the file, readable by this user alone because of the password, and returns its path and a function
// that removes it.
func WriteDev(env cli.Environment, dev Dev) (path string, remove func(), err error) {
	path, err = devPath(env)
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", nil, err
	}
	content, err := json.Marshal(dev)
	if err != nil {
		return "", nil, err
	}
	if err := atomicfile.Write(path, append(content, '\n'), 0o600); err != nil {
		return "", nil, err
	}
	return path, func() {
		var now Dev
		content, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(content, &now) == nil && now == dev {
			_ = os.Remove(path) // else a later `quern dev` replaced it
		}
	}, nil
}
