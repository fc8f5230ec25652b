package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quern-project/quern/sdk/queue"
)

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
	dir, err := env.runtimeDir()
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
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return dev, false, refusedf("`quern dev` (process %d) does not answer: end it, or name another Redis with --redis", dev.PID)
	}
	return dev, err == nil, nil
}

// writeDev writes the file, readable by this user alone, and returns a function that removes it.
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
			_ = os.Remove(path) // else a later `quern dev` replaced it
		}
	}, nil
}
