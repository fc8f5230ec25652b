package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/host/admin"
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
	if url == "" && cmd.Flag("redis").Changed { // by a script whose variable is not set
		return "", usagef("--redis is empty: give the URL of Redis, or leave it out")
	}
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
func urlOfFile(from, path string) (string, error) { return firstOfFile(from, path, "the URL of Redis") }

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
	cmd.Annotations = map[string]string{usesRedis: "yes"}
	cmd.PersistentFlags().String("tenant", queue.DefaultTenant, "whose queues and tasks: the key prefix in Redis")
}

// tenantOf is a client command's tenant.
func tenantOf(cmd *cobra.Command) (string, error) {
	flag := cmd.Flag("tenant")
	tenant := flag.Value.String()
	if queue.ValidTenant(tenant) != nil {
		return "", usagef("%s %q: %s", origin(flag), tenant, tenantRule)
	}
	return tenant, nil
}

// connectRedis connects to the Redis of the setting, or else to that of a `quern dev` that answers, or to the default.
func connectRedis(cmd *cobra.Command, env environment) (redis.UniversalClient, error) {
	return connectBy(cmd, env, queue.Connect)
}

// connectBy is connectRedis by a function such as queue.ConnectBounded.
func connectBy(cmd *cobra.Command, env environment, connect func(url string) (redis.UniversalClient, error)) (redis.UniversalClient, error) {
	url, err := findRedis(cmd, env)
	if err != nil {
		return nil, err
	}
	rdb, err := connect(url)
	if err != nil {
		return nil, wrongRedis(cmd, err)
	}
	return rdb, nil
}

// findRedis is the URL of that Redis.
func findRedis(cmd *cobra.Command, env environment) (string, error) {
	url, err := redisURL(cmd)
	if err != nil || url != "" {
		return url, err
	}
	dev, ok, err := findDev(cmd.Context(), env)
	if !ok || err != nil {
		return defaultRedis, err
	}
	note(cmd, "using `quern dev` at %s", withoutPassword(dev.Redis))
	return dev.Redis, nil
}

// clientRun is a command that needs a client.
type clientRun = func(cmd *cobra.Command, client admin.Tenant, args []string, json bool) error

// printing completes a command that prints something, as -o says.
func printing(env environment, cmd *cobra.Command, run clientRun) *cobra.Command {
	cmd.RunE = withClient(env, outputFlag(cmd), run)
	return cmd
}

// withClient wraps a command that needs a client. output is nil for a command without -o.
func withClient(env environment, output *format, run clientRun) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := connect(cmd, env, queue.Config{})
		if err != nil {
			return err
		}
		defer client.Close()
		return run(cmd, client, args, output.json())
	}
}

// devTimeouts bound the check whether a `quern dev` still answers.
const devTimeouts = "?dial_timeout=1s&read_timeout=1s"

// devFile is the file by which clients find a `quern dev`.
type devFile struct {
	Redis string `json:"redis"`
	HTTP  string `json:"http"`
	PID   int    `json:"pid"`
}

// devPath is the file's path: quern/dev.json in $XDG_RUNTIME_DIR, or else in the cache folder.
func devPath(env environment) (string, error) {
	dir := env.get("XDG_RUNTIME_DIR")
	var err error
	if !filepath.IsAbs(dir) {
		dir, err = env.cacheDir()
	}
	return filepath.Join(dir, "quern", "dev.json"), err
}

// findDev finds a running `quern dev`. One that was killed leaves its file behind, and another program may use its port
// by now: so its process must live, and its Redis answer.
//
// A live process whose Redis does not answer is an error: tasks that are meant for it must not go to another Redis.
func findDev(ctx context.Context, env environment) (dev devFile, ok bool, err error) {
	path, err := devPath(env)
	if err != nil {
		return dev, false, nil // without a folder for the file there is no `quern dev`
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // reading a pipe would never end
		return dev, false, nil
	}
	content, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(content, &dev) != nil || dev.PID <= 0 || errors.Is(syscall.Kill(dev.PID, 0), syscall.ESRCH) {
		return dev, false, nil
	}
	client, err := queue.New(dev.Redis+devTimeouts, queue.Config{})
	if err != nil {
		return dev, false, nil
	}
	defer client.Close()
	_, err = client.Clock(ctx)
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return dev, false, refusedf("`quern dev` (process %d) does not answer: end it, or name another Redis with --redis", dev.PID)
	}
	return dev, err == nil, nil
}

// withoutPassword is the URL of a `quern dev` as it is shown.
func withoutPassword(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return queue.Redact(raw)
	}
	u.User = nil
	return u.String()
}

// writeDev writes the file, readable by this user alone because of the password, and returns its path and a function that removes it.
func writeDev(env environment, dev devFile) (path string, remove func(), err error) {
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
		var now devFile
		content, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(content, &now) == nil && now == dev {
			_ = os.Remove(path) // else a later `quern dev` replaced it
		}
	}, nil
}
