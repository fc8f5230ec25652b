package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// envPrefix begins the name of every setting in the environment.
	envPrefix = "QUERN_"
	// originKey notes at a flag where its value comes from, if not from the command line.
	originKey = "origin"
	// callKey notes at a flag that it is of one call alone: see notSettings.
	callKey = "call"
)

// applySettings gives every flag of the command that was not given on the command line its value from
// the environment or the configuration file. Flags are the one catalogue of settings: a name, a type,
// a default, a text.
func applySettings(cmd *cobra.Command, env environment) error {
	flags := cmd.Flags()
	layers := koanf.New("\n") // no flag's name has a newline: names are not split
	origins := make(map[string]string)
	path, _ := flags.GetString("config")
	if path == "" {
		path = env.get(envPrefix + "CONFIG")
	}
	if path != "" {
		if err := readConfig(layers, cmd.Root(), path); err != nil {
			return err
		}
		for key := range layers.Raw() {
			origins[key] = path + ": " + key
		}
	}
	given := make(map[string]any)
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations[callKey] != nil {
			return
		}
		for _, name := range environmentNames(flag.Name) {
			if value := env.get(name); value != "" {
				given[flag.Name], origins[flag.Name] = value, name
				return
			}
		}
	})
	overrule(layers, func(name string) bool { return given[name] != nil })
	if err := layers.Load(confmap.Provider(given, ""), nil); err != nil {
		return fmt.Errorf("read environment: %w", err)
	}
	overrule(layers, flags.Changed)
	var failure error
	flags.VisitAll(func(flag *pflag.Flag) {
		value := layers.Get(flag.Name)
		if failure != nil || flag.Changed || value == nil || flag.Name == "config" || flag.Name == "help" ||
			flag.Annotations[callKey] != nil {
			return
		}
		flag.Annotations = map[string][]string{originKey: {origins[flag.Name]}}
		if err := set(flag.Value, value); err != nil {
			failure = wrongValue(flag, fmt.Sprint(value), err)
		}
	})
	return failure
}

// notSettings marks flags whose words are those of one call, or which mean something else than a host's
// setting of the same name: neither the environment nor the configuration file gives them a value.
func notSettings(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		flags.Lookup(name).Annotations = map[string][]string{callKey: {}}
	}
}

// overrule drops what lower layers say of Redis if a higher one says anything of it: redis and
// redis-file are two ways to give one setting.
func overrule(layers *koanf.Koanf, higher func(name string) bool) {
	if higher("redis") || higher("redis-file") {
		layers.Delete("redis")
		layers.Delete("redis-file")
	}
}

// readConfig reads the file and refuses keys that are no setting of any command, so that a slip of
// the pen is told and one file serves all commands.
func readConfig(layers *koanf.Koanf, root *cobra.Command, path string) error {
	err := layers.Load(file.Provider(path), yaml.Parser())
	var unreadable *fs.PathError
	switch {
	case errors.As(err, &unreadable):
		return usagef("configuration %q: %w: name a YAML file with --config or %sCONFIG, or none", path, unreadable.Err, envPrefix)
	case err != nil:
		return usagef("configuration %q: %w: write each setting as NAME: VALUE on a line of its own", path, err)
	}
	known := settingNames(root)
	for _, key := range slices.Sorted(maps.Keys(layers.Raw())) {
		if !slices.Contains(known, key) {
			return usagef("%s: unknown setting %q: %s", path, key, didYouMean(key, known))
		}
	}
	return nil
}

// settingNames are the flags that a configuration file may hold: those of a host, and what clients
// need to find its tasks.
func settingNames(root *cobra.Command) []string {
	names := []string{"tenant"}
	add := func(flag *pflag.Flag) {
		if flag.Name != "help" && flag.Name != "config" && flag.Name != "check" {
			names = append(names, flag.Name)
		}
	}
	root.PersistentFlags().VisitAll(add)
	for _, cmd := range root.Commands() {
		if cmd.Name() == "serve" {
			cmd.Flags().VisitAll(add)
		}
	}
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

// set gives a flag a value from the environment, which is text, or from the configuration file.
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

// wrongValue is the error of a setting that cannot be: where it comes from, what it is, what may be.
func wrongValue(flag *pflag.Flag, value string, err error) error {
	remedy := err.Error() // types of our own say what they take
	switch flag.Value.Type() {
	case "bool":
		remedy = "use true or false"
	case "int":
		remedy = "use a whole number"
	case "stringToString":
		remedy = "use NAME=VALUE"
	}
	return usagef("%s %q: %s", origin(flag), shown(flag, value), remedy)
}

// urlValue is a flag that takes a URL, which may hold a password.
type urlValue string

func (u *urlValue) String() string        { return string(*u) }
func (u *urlValue) Type() string          { return "URL" }
func (u *urlValue) Set(text string) error { *u = urlValue(text); return nil }

// shown is a value that a flag was given as people may see it. No other way leads from a URL to what is printed.
func shown(flag *pflag.Flag, value string) string {
	switch flag.Value.(type) {
	case *urlValue:
		if value != "" {
			return queue.Redact(value)
		}
	case *tenantURLs:
		var list tenantURLs
		_ = list.Set(value)
		return list.String()
	}
	return value
}

// origin is where the value of a flag comes from.
func origin(flag *pflag.Flag) string {
	if from := flag.Annotations[originKey]; len(from) == 1 {
		return from[0]
	}
	return "--" + flag.Name
}

// period is a flag that takes a duration, which is not negative.
type period time.Duration

// newPeriod adds one to a command's flags.
func newPeriod(flags *pflag.FlagSet, value *time.Duration, name string, standard time.Duration, usage string) {
	*value = standard
	flag := flags.VarPF((*period)(value), name, "", usage)
	if standard == 0 {
		flag.DefValue = "0" // the usage tells what it means
	}
}

func (p *period) String() string { return time.Duration(*p).String() }
func (p *period) Type() string   { return "duration" }

func (p *period) Set(text string) error {
	d, err := parseDuration(text)
	if err != nil || d < 0 {
		return errors.New(durationRule)
	}
	*p = period(d)
	return nil
}

const durationRule = "use a duration like 500ms, 10s, 1h30m or 7d"

// parseDuration is time.ParseDuration, with days before all else.
func parseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	part := time.Duration(0)
	if err == nil && rest != "" {
		part, err = time.ParseDuration(rest)
	}
	if part < 0 {
		err = errors.New(durationRule)
	}
	return time.Duration(n)*24*time.Hour + part, err
}

// lasting is a period that is not zero, of what holds only if it is given: zero is not set.
type lasting time.Duration

func newLasting(flags *pflag.FlagSet, value *time.Duration, name, usage string) {
	flags.VarPF((*lasting)(value), name, "", usage).DefValue = "0"
}

func (l *lasting) String() string { return time.Duration(*l).String() }
func (l *lasting) Type() string   { return "duration" }

func (l *lasting) Set(text string) error {
	if err := (*period)(l).Set(text); err != nil {
		return err
	}
	if *l == 0 {
		return errors.New(durationRule + ", or leave it out")
	}
	return nil
}

// amount is a flag that takes a number from 1 on; zero is not set.
type amount int

func (a *amount) String() string { return strconv.Itoa(int(*a)) }
func (a *amount) Type() string   { return "number" }

func (a *amount) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("use a whole number from 1 on")
	}
	*a = amount(n)
	return nil
}

// attempts is a flag that takes how often something is tried.
type attempts int

const unlimited = "unlimited"

func (a *attempts) String() string {
	if *a == queue.Unlimited {
		return unlimited
	}
	return strconv.Itoa(int(*a))
}

func (a *attempts) Type() string { return "number" }

func (a *attempts) Set(text string) error {
	if text == unlimited {
		*a = queue.Unlimited
		return nil
	}
	if (*amount)(a).Set(text) != nil {
		return errors.New("use a whole number from 1 on, or " + unlimited)
	}
	return nil
}

// choice is a flag that takes one of a few words; the first is its default.
type choice struct {
	word  string
	words []string
}

func newChoice(words ...string) *choice { return &choice{words[0], words} }

func (c *choice) String() string { return c.word }
func (c *choice) Type() string   { return "word" }

func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		last := len(c.words) - 1
		return fmt.Errorf("use %s or %s", strings.Join(c.words[:last], ", "), c.words[last])
	}
	c.word = word
	return nil
}
