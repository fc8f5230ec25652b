package connect

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/sdk/queue"
)

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
