// Package connect finds the Redis that a command connects to: the one of the settings, the one of a running `quern
// dev`, or the default.
package connect

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/cmd/quern/atomicfile"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// ReadSetting returns the text of the file at path, without white space around it. Its errors contain from, the origin
// of the path, and what, a name for the text.
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

// DefaultURL is the URL of Redis if no setting gives one and no `quern dev` runs.
const DefaultURL = "redis://127.0.0.1:6379/0"

// URL returns the URL of --redis or --redis-file, "" if neither is set.
func URL(cmd *cobra.Command) (string, error) {
	url := cmd.Flag("redis").Value.String()
	if url == "" && cmd.Flag("redis").Changed { // as from a script whose variable is not set
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

// WrongURL adds to an error about an invalid URL where the URL comes from.
func WrongURL(cmd *cobra.Command, err error) error {
	for _, name := range []string{"redis-file", "redis"} {
		if flag := cmd.Flag(name); flag.Value.String() != "" {
			return cli.Usagef("%s: %w", cli.Origin(flag), cli.TrimInvalid(err))
		}
	}
	return cli.WrongUsage(err)
}

// Flags adds the flags that every client command has.
func Flags(cmd *cobra.Command) {
	cmd.Annotations = map[string]string{cli.UsesRedis: "yes"}
	cmd.PersistentFlags().String("tenant", queue.DefaultTenant, "whose queues and tasks: the key prefix in Redis")
}

// PayloadKeysFlag adds the flag that PayloadKeys reads.
func PayloadKeysFlag(flags *pflag.FlagSet) {
	flags.String("payload-keys", "", "`FILE` with the keys that encrypt payloads in Redis, one a line, the first of which encrypts: see quern help encryption")
}

// PayloadKeys reads the keys of --payload-keys; nil if there are none.
func PayloadKeys(cmd *cobra.Command) (*seal.Ring, error) {
	flag := cmd.Flag("payload-keys")
	if flag == nil || flag.Value.String() == "" && !flag.Changed {
		return nil, nil
	}
	from := cli.Origin(flag)
	text, err := ReadSetting(from, flag.Value.String(), "the keys of payloads")
	if err != nil {
		return nil, err
	}
	keys, err := seal.Parse(text)
	if err != nil {
		return nil, cli.Usagef("%s: %w", from, err)
	}
	return keys, nil
}

// Tenant returns the tenant of a client command.
func Tenant(cmd *cobra.Command) (string, error) {
	flag := cmd.Flag("tenant")
	tenant := flag.Value.String()
	if queue.ValidTenant(tenant) != nil {
		return "", cli.Usagef("%s %q: %s", cli.Origin(flag), tenant, cli.TenantRule)
	}
	return tenant, nil
}

// Redis connects to the Redis of the settings, else to that of a running `quern dev`, else to the default. The function
// connect is queue.Connect or queue.ConnectBounded.
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

// FindURL returns the URL to which Redis connects.
func FindURL(cmd *cobra.Command, env cli.Environment) (string, error) {
	url, err := URL(cmd)
	if err != nil || url != "" {
		return url, err
	}
	dev, ok, err := FindDev(cmd.Context(), env)
	if !ok || err != nil {
		return DefaultURL, err
	}
	if !told(env, dev) {
		cli.Note(cmd, "using `quern dev` at %s", WithoutPassword(dev.Redis))
	}
	return dev.Redis, nil
}

// told reports whether an earlier command has said that it uses this `quern dev`. If not, it remembers that this one
// says so.
func told(env cli.Environment, dev Dev) bool {
	path, err := devPath(env)
	if err != nil {
		return false
	}
	is := strconv.Itoa(dev.PID) + "\n"
	if content, err := os.ReadFile(path + toldSuffix); err == nil && string(content) == is {
		return true
	}
	_ = atomicfile.Write(path+toldSuffix, []byte(is), 0o600) // otherwise the next command says it again
	return false
}

// toldSuffix ends the name of a file with a PID: that of the last `quern dev` whose use a command has announced.
const toldSuffix = ".told"

const (
	// OutageTimeout is how long commands wait for Redis while it is unavailable. It is long enough for a restart.
	OutageTimeout = 30 * time.Second
	// OutagePause is the pause before Redis is tried again.
	OutagePause = 200 * time.Millisecond
)

// ThroughOutage repeats write while Redis is unavailable, for at most the duration outage. away reports whether Redis
// was unavailable for any time.
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

// DevSecrets returns the folder of secrets of the `quern dev` that a command uses; "" if the command uses another Redis
// or a server.
func DevSecrets(cmd *cobra.Command, env cli.Environment) string {
	if server := cmd.Flag("server"); server != nil && server.Value.String() != "" {
		return ""
	}
	if url, err := URL(cmd); url != "" || err != nil {
		return ""
	}
	dev, _, _ := FindDev(cmd.Context(), env) // without one there is no folder
	return dev.Secrets
}

// devTimeouts are parameters of the URL with which FindDev checks that a `quern dev` is alive.
const devTimeouts = "?dial_timeout=1s&read_timeout=1s"

// Dev is the content of the JSON file in which a running `quern dev` records the URL of its Redis, the address of its
// metrics, the URL of its API ("" if it serves none), its process ID and its folder of secrets. Clients find it by this
// file.
type Dev struct {
	Redis string `json:"redis"`
	HTTP  string `json:"http"`
	Admin string `json:"admin"`
	PID   int    `json:"pid"`

	Secrets string `json:"secrets,omitempty"`
}

// devPath returns the path of that file: quern/dev.json in $XDG_RUNTIME_DIR, or else in the cache folder.
func devPath(env cli.Environment) (string, error) {
	dir := env.Get("XDG_RUNTIME_DIR")
	var err error
	if !filepath.IsAbs(dir) {
		dir, err = env.CacheDir()
	}
	return filepath.Join(dir, "quern", "dev.json"), err
}

// FindDev finds a running `quern dev`. A killed one leaves its file behind, and another program can have taken over its
// port. Therefore FindDev checks that the process is alive and that its Redis answers.
//
// It is an error if the process is alive but its Redis times out: tasks that are meant for that Redis must not go to
// another one.
func FindDev(ctx context.Context, env cli.Environment) (dev Dev, ok bool, err error) {
	path, err := devPath(env)
	if err != nil {
		return dev, false, nil // no folder for the file, so no `quern dev` has written it
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // reading from a pipe could block for ever
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

// WithoutPassword returns the URL of a `quern dev` without user and password.
func WithoutPassword(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return queue.Redact(raw)
	}
	u.User = nil
	return u.String()
}

// WriteDev writes the file by which clients find this `quern dev`. It returns the file's path and a function that
// removes the file. Only this user can read the file, because it contains the password.
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
			_ = os.Remove(path + toldSuffix)
			_ = os.Remove(path) // otherwise a later `quern dev` has replaced it
		}
	}, nil
}
