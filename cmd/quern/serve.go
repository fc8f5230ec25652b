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
		Args:  arguments(0, 0),
	}
	o := newHostOptions(cmd, "127.0.0.1:9464")
	o.admin = newAdminOptions(cmd.Flags(), "")
	cmd.Flags().Var(&o.tenantRedis, "tenant-redis", "`TENANT=URL`: a Redis user, or a Redis, of the tenant's own (default that of --redis)")
	cmd.Flags().StringSliceVar(&o.tenantRedisFiles, "tenant-redis-file", nil, "`TENANT=FILE` with such a URL, for mounted secrets")
	confined := &confinement{mode: confineAuto}
	newChoice(cmd.Flags(), &confined.mode, "confine", "restrict this process to the system calls and files that it needs: auto as far as this system can, require both, or off",
		confineAuto, confineRequire, confineOff)
	check := cmd.Flags().Bool("check", false, "print the settings in effect, without secrets, and exit")
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
			return printSettings(cmd, url)
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
	settings := make(map[string]any)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		value := shown(flag, flag.Value.String())
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
	text, err := yaml.Marshal(settings)
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}
