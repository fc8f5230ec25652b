package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/sdk/queue"
)

func newServe(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node host until SIGTERM; a second SIGTERM requeues running tasks at once",
		Long: "Runs a node host, which takes tasks from the queues of the plugins in its directory and runs them, until\n" +
			"SIGTERM: then it takes no more and ends after --grace at the latest. A second SIGTERM requeues running\n" +
			"tasks at once. --check prints each setting with where it comes from, and asks Redis.",
		Example: "  quern serve --redis redis://redis.internal:6379/0 --plugins /srv/plugins\n" +
			"  quern serve --tenants acme,globex --grants /etc/quern/grants.yaml --memory 4GiB --name worker-7\n" +
			"  quern serve --config /etc/quern/quern.yaml --check",
		Args:        arguments(0, 0),
		Annotations: map[string]string{usesRedis: "yes"},
	}
	o := newHostOptions(cmd, "127.0.0.1:9464")
	o.admin = newAdminOptions(cmd.Flags(), "")
	cmd.Flags().Var(&o.tenantRedis, "tenant-redis", "`TENANT=URL`: a Redis user, or a Redis, of the tenant's own (default that of --redis)")
	newList(cmd.Flags(), &o.tenantRedisFiles, "tenant-redis-file", nil, "`TENANT=FILE` with such a URL, for mounted secrets")
	confined := &confinement{mode: confineAuto}
	newChoice(cmd.Flags(), &confined.mode, "confine", "restrict this process to the system calls and files that it needs: auto as far as this system can, require both, or off",
		confineAuto, confineRequire, confineOff)
	check := cmd.Flags().Bool("check", false, "print the settings in effect with their origins, without secrets, connect to Redis, and exit")
	groupFlags(cmd, hostGroups)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		url, err := redisURL(cmd)
		if err != nil {
			return err
		}
		url = cmp.Or(url, defaultRedis)
		defer confined.prepare()()
		n, err := newNode(cmd, env, o, url)
		if err != nil {
			return err
		}
		defer n.close()
		if *check {
			if _, err := os.Stat(o.plugins.Dir); err != nil {
				n.logger.Warn("the plugin directory does not exist: make it, or name another with --plugins", "dir", o.plugins.Dir)
			}
			return cmp.Or(printSettings(cmd, url), n.reach(cmd.Context()))
		}
		if err := confined.begin(n); err != nil {
			return err
		}
		return n.run(cmd.Context(), func(string) {})
	}
	return cmd
}

// printSettings writes the settings as YAML for --config, without secrets.
func printSettings(cmd *cobra.Command, redisURL string) error {
	settings, comments := make(map[string]any), map[string]string{"redis": "default"}
	for _, name := range []string{"redis", "redis-file"} {
		if flag := cmd.Flag(name); isGiven(flag) {
			comments["redis"] = origin(flag)
		}
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		value := shown(flag, flag.Value.String())
		if flag.Name != "redis" {
			comments[flag.Name] = "default"
		}
		if isGiven(flag) {
			comments[flag.Name] = origin(flag)
		}
		switch list, ok := flag.Value.(pflag.SliceValue); {
		case slices.Contains([]string{"check", "config", "help", "redis"}, flag.Name), flag.Name == "redis-file" && value == "":
		case ok:
			settings[flag.Name] = list.GetSlice()
		case flag.Value.Type() == "number" && value != unlimited:
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
	for i := 0; i < len(document.Content); i += 2 { // key, value
		key := document.Content[i]
		if key.LineComment = comments[key.Value]; document.Content[i+1].Kind == yaml.ScalarNode || len(document.Content[i+1].Content) == 0 {
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
