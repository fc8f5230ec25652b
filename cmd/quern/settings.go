package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/runtime/units"
)

// envPrefix begins the name of every setting in the environment.
const envPrefix = "QUERN_"

// applySettings gives every flag of the command that was not given on the command line its value from
// the environment or the configuration file. Flags are the one catalogue of settings: a name, a type,
// a default, a text.
func applySettings(cmd *cobra.Command) error {
	layers := koanf.New("\n") // no flag's name has a newline: names are not split
	path, _ := cmd.Flags().GetString("config")
	if path == "" {
		path = os.Getenv(envPrefix + "CONFIG")
	}
	if path != "" {
		if err := readConfig(layers, cmd.Root(), path); err != nil {
			return err
		}
	}
	environment := make(map[string]any)
	origin := make(map[string]string)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		for _, name := range environmentNames(flag.Name) {
			if value, ok := os.LookupEnv(name); ok && value != "" {
				environment[flag.Name], origin[flag.Name] = value, name
				return
			}
		}
		origin[flag.Name] = path + ": " + flag.Name
	})
	if err := layers.Load(confmap.Provider(environment, ""), nil); err != nil {
		return fmt.Errorf("read environment: %w", err)
	}
	var failure error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if failure != nil || flag.Changed || !layers.Exists(flag.Name) || flag.Name == "config" {
			return
		}
		if err := cmd.Flags().Set(flag.Name, text(layers.Get(flag.Name))); err != nil {
			failure = usagef("%s: %w", origin[flag.Name], err)
		}
		flag.Changed = false // it stays the mark of what was given on the command line
	})
	return failure
}

// readConfig reads the file and refuses keys that are no setting of any command, so that a slip of
// the pen is told and one file serves all commands.
func readConfig(layers *koanf.Koanf, root *cobra.Command, path string) error {
	if err := layers.Load(file.Provider(path), yaml.Parser()); err != nil {
		return usagef("read configuration %q: %w", path, err)
	}
	known := settingNames(root)
	for _, key := range layers.Keys() {
		if !slices.Contains(known, key) {
			return usagef("%s: unknown setting %q: use %s", path, key, strings.Join(known, ", "))
		}
	}
	return nil
}

// settingNames are the flags of all commands that a configuration file may hold.
func settingNames(root *cobra.Command) []string {
	var names []string
	add := func(flag *pflag.Flag) {
		if flag.Name != "help" && flag.Name != "config" && !slices.Contains(names, flag.Name) {
			names = append(names, flag.Name)
		}
	}
	root.PersistentFlags().VisitAll(add)
	for _, cmd := range root.Commands() {
		if cmd.Name() == "serve" || cmd.Name() == "dev" {
			cmd.Flags().VisitAll(add)
		}
	}
	names = append(names, "tenant")
	slices.Sort(names)
	return slices.Compact(names)
}

// environmentNames are the variables that set a flag, the first one that is set wins.
func environmentNames(flag string) []string {
	name := envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if flag == "redis" {
		return []string{name, envPrefix + "REDIS_URL"}
	}
	return []string{name}
}

// text writes a value of the configuration as it would stand on the command line.
func text(value any) string {
	if list, ok := value.([]any); ok {
		words := make([]string, len(list))
		for i, v := range list {
			words[i] = fmt.Sprint(v)
		}
		return strings.Join(words, ",")
	}
	return fmt.Sprint(value)
}

// memorySetting is a size, or a share of the memory that the machine or the cgroup has.
type memorySetting struct {
	percent int
	bytes   int64
}

func (m *memorySetting) Type() string { return "size|percent" }

func (m *memorySetting) String() string {
	if m.percent > 0 {
		return strconv.Itoa(m.percent) + "%"
	}
	return units.FormatSize(m.bytes)
}

// Set reads "75%" or a size like "8GiB".
func (m *memorySetting) Set(text string) error {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.Atoi(number)
		if err != nil || percent < 1 || percent > 100 {
			return fmt.Errorf("memory %q: use 1%% to 100%%, or a size like 8GiB", text)
		}
		m.percent, m.bytes = percent, 0
		return nil
	}
	bytes, err := units.ParseSize(text)
	if err != nil {
		return err
	}
	m.percent, m.bytes = 0, bytes
	return nil
}

// resolve is the setting in bytes.
func (m *memorySetting) resolve() (int64, error) {
	if m.percent == 0 {
		return m.bytes, nil
	}
	total, err := availableMemory()
	if err != nil {
		return 0, refusedf("cannot tell how much memory there is (%w): give --memory a size like 8GiB", err)
	}
	return total / 100 * int64(m.percent), nil
}
