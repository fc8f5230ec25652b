package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	defaultRedis = "redis://127.0.0.1:6379/0"
	// devAnswerTimeout bounds asking whether a `quern dev` that left its file still answers.
	devAnswerTimeout = time.Second
)

// redisURL is the setting, or "" if there is none.
func redisURL(cmd *cobra.Command) (string, error) {
	url, _ := cmd.Flags().GetString("redis")
	path, _ := cmd.Flags().GetString("redis-file")
	if path == "" {
		return url, nil
	}
	if url != "" {
		return "", usagef("both redis and redis-file are set: leave one of them out")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("redis-file: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// connect makes the client of a client command: with the setting, else with a `quern dev` that
// answers, else with the default.
func connect(cmd *cobra.Command) (*queue.Client, error) {
	url, err := redisURL(cmd)
	if err != nil {
		return nil, err
	}
	tenant, _ := cmd.Flags().GetString("tenant")
	if url == "" {
		url = defaultRedis
		if dev, ok := findDev(cmd.Context()); ok {
			url = dev.Redis
			fmt.Fprintf(cmd.ErrOrStderr(), "quern: using `quern dev` at %s\n", url)
		}
	}
	return queue.New(url, queue.Config{Tenant: tenant})
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
func devPath() (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "quern", "dev.json"), nil
}

// findDev reads the file and asks the Redis that it names.
func findDev(ctx context.Context) (devFile, bool) {
	var dev devFile
	path, err := devPath()
	if err != nil {
		return dev, false
	}
	content, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(content, &dev) != nil {
		return dev, false
	}
	client, err := queue.New(dev.Redis, queue.Config{})
	if err != nil {
		return dev, false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, devAnswerTimeout)
	defer cancel()
	_, err = client.Clock(ctx)
	return dev, err == nil
}

// writeDev leaves the file, readable by this user alone, and returns what removes it again.
func writeDev(dev devFile) (remove func(), err error) {
	path, err := devPath()
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
		if err == nil && json.Unmarshal(content, &now) == nil && now.PID == dev.PID && now.Redis == dev.Redis {
			_ = os.Remove(path) // not that of another one which started later
		}
	}, nil
}
