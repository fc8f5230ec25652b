package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	defaultRedis = "redis://127.0.0.1:6379/0"
	// tenantRule says what may be a tenant.
	tenantRule = "use 1 to 32 of a-z 0-9 and - for each, or such a word in braces"
	// devTimeouts bound asking whether a `quern dev` that left its file still answers.
	devTimeouts = "?dial_timeout=1s&read_timeout=1s"
)

// redisURL is the setting, or "" if there is none.
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

// urlOfFile reads the URL of Redis from a file that a setting names.
func urlOfFile(from, path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%s: %w: name a file that holds the URL of Redis", from, err)
	}
	url := strings.TrimSpace(string(content))
	if url == "" {
		return "", usagef("%s: %s is empty: write the URL of Redis into it", from, path)
	}
	return url, nil
}

// wrongRedis is the error of a URL that cannot be; it says where the URL comes from.
func wrongRedis(cmd *cobra.Command, err error) error {
	for _, name := range []string{"redis-file", "redis"} {
		if flag := cmd.Flag(name); flag.Value.String() != "" {
			return usagef("%s: %w", origin(flag), trimInvalid(err))
		}
	}
	return wrongUsage(err)
}

// target is where a client command looks, and for whom: the Redis of the setting, else of a `quern dev`
// that answers, else the default; and the tenant of the command's flag.
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

// connect makes the client of a client command: see target, which says the config's tenant.
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

// clientFlags adds what every client command takes.
func clientFlags(cmd *cobra.Command) {
	cmd.PersistentFlags().String("tenant", queue.DefaultTenant, "whose queues and tasks: the key prefix in Redis")
}

// devFile is what `quern dev` leaves for clients to find it.
type devFile struct {
	Redis string `json:"redis"`
	HTTP  string `json:"http"`
	PID   int    `json:"pid"`
}

// devPath is where that file lies: quern/dev.json in $XDG_RUNTIME_DIR, else in the cache folder.
func devPath(env environment) (string, error) {
	dir, err := env.runtimeDir()
	return filepath.Join(dir, "quern", "dev.json"), err
}

// findDev reads the file and asks the Redis that it names. One that was killed leaves its file behind,
// and something else may listen on its port by now: its process must live, too.
//
// One that lives and keeps silent is an error: what was meant for it must not go to another Redis.
func findDev(ctx context.Context, env environment) (dev devFile, ok bool, err error) {
	path, err := devPath(env)
	if err != nil {
		return dev, false, nil // this user has no folder for it, and so no `quern dev`
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // a pipe would never end
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
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return dev, false, refusedf("`quern dev` (process %d) does not answer: end it, or name another Redis with --redis", dev.PID)
	}
	return dev, err == nil, nil
}

// writeDev leaves the file, readable by this user alone, and returns what removes it again.
func writeDev(env environment, dev devFile) (remove func(), err error) {
	path, err := devPath(env)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	content, err := json.Marshal(dev)
	if err != nil {
		return nil, err
	}
	temporary := fmt.Sprintf("%s.%d", path, dev.PID)
	if err := os.WriteFile(temporary, append(content, '\n'), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, errors.Join(err, os.Remove(temporary))
	}
	return func() {
		var now devFile
		content, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(content, &now) == nil && now == dev {
			_ = os.Remove(path) // not that of another one which started later
		}
	}, nil
}
