// Package serve has the commands `quern serve` and `quern admin`, which serve until SIGTERM, and `quern health`, which
// asks a host for its state.
package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/nodehost"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/sdk/queue"
)

// Commands returns the commands of this package.
func Commands(env cli.Environment) []*cobra.Command {
	return []*cobra.Command{newServe(env), newAdmin(env), newHealth()}
}

func newServe(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a host until SIGTERM; a second SIGTERM requeues running tasks at once",
		Long: "Runs a host, which takes tasks from the queues of the plugins in its directory and runs them, until\n" +
			"SIGTERM: then it takes no more and ends after --grace at the latest. A second SIGTERM requeues running\n" +
			"tasks at once. --check prints each setting with where it comes from, and asks Redis.",
		Example: "  quern serve --redis redis://redis.internal:6379/0 --plugins /srv/plugins\n" +
			"  quern serve --tenants acme,globex --grants /etc/quern/grants.yaml --memory 4GiB --name worker-7\n" +
			"  quern serve --config /etc/quern/quern.yaml --check",
		Args:        cli.Arguments(0, 0),
		Annotations: map[string]string{cli.UsesRedis: "yes"},
	}
	o := nodehost.NewOptions(cmd, "127.0.0.1:9464")
	o.Admin = nodehost.APIFlags(cmd.Flags(), "")
	o.TenantFlags(cmd.Flags())
	o.RegistryFlags(cmd.Flags())
	confined := &nodehost.Confinement{Mode: nodehost.ConfineAuto}
	option.Choice(cmd.Flags(), &confined.Mode, "confine", "restrict this process to the system calls and files that it needs: auto as far as this system can, require both, or off",
		nodehost.ConfineAuto, nodehost.ConfineRequire, nodehost.ConfineOff)
	check := cmd.Flags().Bool("check", false, "print the settings in effect with their origins, without secrets, connect to Redis, and exit")
	nodehost.GroupFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		url, err := connect.URL(cmd)
		if err != nil {
			return err
		}
		url = cmp.Or(url, connect.DefaultURL)
		defer confined.Prepare()()
		n, err := nodehost.New(cmd, env, o, url)
		if err != nil {
			return err
		}
		defer n.Close()
		if *check {
			if o.NoPlugins() {
				n.Logger.Warn("the plugin directory does not exist: make it, or name another with --plugins", "dir", o.Plugins.Dir)
			}
			return cmp.Or(printSettings(cmd, url), n.Reach(cmd.Context()))
		}
		if err := confined.Begin(n); err != nil {
			return err
		}
		return n.Run(cmd.Context(), func(string, string) {})
	}
	return cmd
}

// printSettings writes the settings with their origins as YAML for --config, without secrets.
func printSettings(cmd *cobra.Command, redisURL string) error {
	settings, comments := make(map[string]any), map[string]string{"redis": "default"}
	for _, name := range []string{"redis", "redis-file"} {
		if flag := cmd.Flag(name); cli.IsGiven(flag) {
			comments["redis"] = cli.Origin(flag)
		}
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		value := cli.Shown(flag, flag.Value.String())
		if flag.Name != "redis" {
			comments[flag.Name] = "default"
		}
		if cli.IsGiven(flag) {
			comments[flag.Name] = cli.Origin(flag)
		}
		switch list, ok := flag.Value.(pflag.SliceValue); {
		case slices.Contains([]string{"check", "config", "help", "redis"}, flag.Name),
			flag.Name == "redis-file" && value == "":
		case ok:
			settings[flag.Name] = list.GetSlice()
		case flag.Value.Type() == "number" && value != option.Unlimited:
			settings[flag.Name], _ = strconv.Atoi(value)
		case flag.Value.Type() == "bool":
			settings[flag.Name] = value == "true"
		default:
			settings[flag.Name] = value
		}
	})
	if settings["redis-file"] == nil {
		settings["redis"] = queue.Redact(redisURL)
	}
	var document yaml.Node
	err := document.Encode(settings)
	for i := 0; i < len(document.Content); i += 2 { // keys and values alternate
		key := document.Content[i]
		if key.LineComment = comments[key.Value]; document.Content[i+1].Kind == yaml.ScalarNode ||
			len(document.Content[i+1].Content) == 0 {
			document.Content[i+1].LineComment, key.LineComment = key.LineComment, ""
		}
	}
	var text []byte
	if err == nil {
		text, err = yaml.Marshal(&document)
	}
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// healthTimeout bounds the wait for a host's answer.
const healthTimeout = 5 * time.Second

// newHealth makes `quern health`, which checks a host on this machine. It is for containers that have no other program
// for that.
func newHealth() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the host at --http whether it lives, or with --ready whether it takes tasks",
		Args:  cli.Arguments(0, 0),
	}
	address := cmd.Flags().String("http", "127.0.0.1:9464", "`ADDRESS` that the host has by its own --http")
	ready := cmd.Flags().Bool("ready", false, "ask whether it takes tasks, which it does not while Redis is away")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		host, port, err := net.SplitHostPort(*address)
		if err != nil {
			return cli.Usagef("--http %q: %w: use an address such as 127.0.0.1:9464", *address, err)
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1" // the host listens on all interfaces; an image may not resolve localhost
		}
		page := "/healthz"
		if *ready {
			page = "/readyz"
		}
		client := &http.Client{Timeout: healthTimeout, Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
		request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, "http://"+net.JoinHostPort(host, port)+page,
			http.NoBody)
		if err != nil {
			return cli.Usagef("--http %q: %w", *address, err)
		}
		answer, err := client.Do(request)
		if err != nil {
			if request, ok := errors.AsType[*url.Error](err); ok {
				err = request.Err
			}
			return cli.Refusedf("no host answers at %s: %w: start one, or give its --http", *address, err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		if err != nil || answer.StatusCode != http.StatusOK {
			return cli.Refusedf("the host at %s answers %s: %s", *address, answer.Status, strings.TrimSpace(string(text)))
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), string(text))
		return err
	}
	return cmd
}
