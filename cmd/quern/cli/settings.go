package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/plugins/spelling"
	"github.com/quern-project/quern/plugins/strictyaml"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// maxConfigFile bounds the configuration file in bytes, and maxConfigValues its number of values.
	maxConfigFile   = 1 << 20
	maxConfigValues = 10_000
	// envPrefix begins the name of every setting in the environment.
	envPrefix = "QUERN_"
	// originKey annotates a flag with the origin of its value, if that is not the command line.
	originKey = "origin"
	// callKey annotates a flag that is no setting: see NotSettings.
	callKey = "call"
)

// TenantRule is the remedy in errors about invalid names of tenants.
const TenantRule = "use 1 to 32 of a-z 0-9 and - for each, or such a word in braces"

// Environment looks up a variable, as os.LookupEnv does. It is a parameter, so that parallel tests can have one each.
type Environment func(name string) (string, bool)

// Get returns the value of a variable, "" if it is not set.
func (e Environment) Get(name string) string {
	value, _ := e(name)
	return value
}

// CacheDir returns the cache folder of this user.
func (e Environment) CacheDir() (string, error) {
	if dir := e.Get("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	return os.UserCacheDir()
}

// ApplySettings sets each flag that is a setting, and is not on the command line, from the environment or the
// configuration file. The flags are the only catalogue of settings: they have name, type, default and help. It leaves
// other flags alone: a variable left over in the environment must not choose the tasks of a command, or the ID of a
// task.
func ApplySettings(cmd *cobra.Command, env Environment) error {
	flags := cmd.Flags()
	path, _ := flags.GetString("config")
	layers, origins, err := readConfig(cmd.Root(), cmp.Or(path, env.Get(envPrefix+"CONFIG")))
	if err != nil {
		return err
	}
	settings := append(settingNames(cmd.Root()), "token", "engines", "identity")
	given := make(map[string]any)
	flags.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(settings, flag.Name) {
			return
		}
		names := []string{envPrefix + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))}
		if flag.Name == "redis" {
			names = append(names, envPrefix+"REDIS_URL")
		}
		for _, name := range slices.Backward(names) {
			if value := env.Get(name); value != "" {
				given[flag.Name], origins[flag.Name] = value, name
			}
		}
	})
	overrideAll(layers, func(name string) bool { return given[name] != nil })
	if err := layers.Load(confmap.Provider(given, ""), nil); err != nil {
		return fmt.Errorf("read environment: %w", err)
	}
	overrideAll(layers, flags.Changed)
	flags.VisitAll(func(flag *pflag.Flag) {
		value := layers.Get(flag.Name)
		if err != nil || value == nil || flag.Changed || flag.Annotations[callKey] != nil {
			return
		}
		flag.Annotations = map[string][]string{originKey: {origins[flag.Name]}}
		if wrong := set(flag.Value, value); wrong != nil {
			err = WrongValue(flag, fmt.Sprint(value), wrong)
		}
	})
	return err
}

// NotSettings marks flags whose meaning differs from that of the host's settings with the same names. Neither the
// environment nor the configuration file sets them.
func NotSettings(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flags.Lookup(name).Annotations = map[string][]string{callKey: {}}
	}
}

// overrideAll deletes all forms of a setting, such as --redis and --redis-file, from layers if a higher layer sets one
// of the forms. higher reports whether it sets the flag of that name.
func overrideAll(layers *koanf.Koanf, higher func(name string) bool) {
	for _, names := range [][]string{{"redis", "redis-file", "server"}, {"token", "token-file"}} {
		if slices.ContainsFunc(names, higher) {
			for _, name := range names {
				layers.Delete(name)
			}
		}
	}
}

// readConfig reads the configuration file at path and returns its values and the origin of each. If path is "", there
// are no values. All commands share one file.
func readConfig(root *cobra.Command, path string) (layers *koanf.Koanf, origins map[string]string, err error) {
	layers, origins = koanf.New("\n"), make(map[string]string) // a delimiter that no flag's name has
	if path == "" {
		return layers, origins, nil
	}
	var unreadable *fs.PathError
	settings, err := readSettings(path)
	if err == nil {
		err = layers.Load(confmap.Provider(settings, ""), nil)
	}
	switch {
	case errors.As(err, &unreadable):
		return nil, nil, Usagef("configuration %q: %w: name a YAML file with --config or %sCONFIG, or none", path,
			unreadable.Err, envPrefix)
	case err != nil:
		return nil, nil, Usagef("configuration %q: %w: write each setting as NAME: VALUE on a line of its own", path, err)
	}
	known := settingNames(root)
	for _, key := range slices.Sorted(maps.Keys(layers.Raw())) {
		if !slices.Contains(known, key) {
			return nil, nil, Usagef("%s: unknown setting %q: %s", path, key, spelling.DidYouMean(key, known))
		}
		origins[key] = path + ": " + key
	}
	return layers, origins, nil
}

// readSettings reads the mapping in a YAML file.
func readSettings(path string) (settings map[string]any, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxConfigFile+1))
	if err != nil {
		return nil, err
	}
	root, err := strictyaml.Parse(text, strictyaml.Limits{Bytes: maxConfigFile, Values: maxConfigValues})
	if root == nil {
		return nil, err
	}
	return settings, root.Decode(&settings)
}

// settingNames returns the names of the flags that a configuration file can set: the flags of a host, and those with
// which clients connect.
func settingNames(root *cobra.Command) []string {
	names := []string{"tenant", "server", "token-file"}
	add := func(flag *pflag.Flag) {
		if flag.Name != "help" && flag.Name != "config" && flag.Name != "check" {
			names = append(names, flag.Name)
		}
	}
	root.PersistentFlags().VisitAll(add)
	serve, _, _ := root.Find([]string{"serve"})
	serve.Flags().VisitAll(add)
	slices.Sort(names)
	return slices.Compact(names)
}

// set sets a flag to a value from the environment, which is text, or from the configuration file.
func set(flag pflag.Value, value any) error {
	switch value := value.(type) {
	case map[string]any:
		return errors.New("use a value, or a list where there may be several")
	case []any:
		list, ok := flag.(pflag.SliceValue)
		if !ok {
			return errors.New("use one value")
		}
		words := make([]string, len(value))
		for i, word := range value {
			if words[i] = fmt.Sprint(word); word == nil || words[i] == "" {
				return errors.New(`a word of the list is empty: in YAML, write one that begins with ! in quotes ("!mail")`)
			}
		}
		return list.Replace(words)
	}
	return flag.Set(fmt.Sprint(value))
}

// WrongValue makes the error about an invalid value of a flag. It gives the value's origin, the value and the remedy.
func WrongValue(flag *pflag.Flag, value string, err error) error {
	remedy := err.Error() // Quern's own flag types name the allowed values
	switch flag.Value.Type() {
	case "bool":
		remedy = "use true or false"
	case "int":
		remedy = "use a whole number"
	}
	return Usagef("%s %q: %s", Origin(flag), Shown(flag, value), remedy)
}

// Shown returns a flag's value with passwords and tokens hidden. Every URL that is printed comes through here.
func Shown(flag *pflag.Flag, value string) string {
	switch kind := flag.Value.Type(); {
	case kind == "URL" && value != "":
		return queue.Redact(value)
	case kind == "TOKEN" && value != "":
		return "xxxxx"
	}
	if secret, ok := flag.Value.(interface{ Redact(value string) string }); ok {
		return secret.Redact(value)
	}
	return value
}

// Origin returns where the value of a flag comes from: an environment variable, the configuration file, or the flag
// itself.
func Origin(flag *pflag.Flag) string {
	if from := flag.Annotations[originKey]; len(from) == 1 {
		return from[0]
	}
	return "--" + flag.Name
}

// IsGiven reports whether a flag has its value from the command line, the environment or the configuration file.
func IsGiven(flag *pflag.Flag) bool { return flag.Changed || flag.Annotations[originKey] != nil }

// Bare removes the path from a system error, for a message that already names it.
func Bare(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
