package relay

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/plugins/strictyaml"
	"github.com/quern-project/quern/sdk/queue"
)

// Source is an entry of the file of --sources: a database whose rows become tasks.
type Source struct {
	Name      string        `yaml:"name"`
	Postgres  URLFile       `yaml:"postgres"`
	Direct    URLFile       `yaml:"direct"`
	Tenants   []string      `yaml:"tenants"`
	Hold      time.Duration `yaml:"hold"`
	KeepEnded time.Duration `yaml:"keep_ended"`
	NotBefore moment        `yaml:"not_before"`
	Raquel    *Raquel       `yaml:"raquel"`
	Nsj       *Nsj          `yaml:"nsj"`
}

// moment is a time. Unlike the decoder, its error names the line.
type moment struct{ time.Time }

// UnmarshalYAML reads a time, or a date.
func (m *moment) UnmarshalYAML(n *yaml.Node) error {
	if err := n.Decode(&m.Time); err != nil {
		return fmt.Errorf("line %d: not_before: %q is not %s", n.Line, n.Value, remedies["time.Time"])
	}
	return nil
}

// URLFile names a file with the URL of a database. A relative path is relative to the folder of the file of --sources.
type URLFile struct {
	File string `yaml:"file"`
	line int
}

// UnmarshalYAML remembers the line, for messages.
func (u *URLFile) UnmarshalYAML(n *yaml.Node) error {
	type plain URLFile
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || n.Content[0].Value != "file" {
		return fmt.Errorf("line %d: expected {file: PATH}, a file with the URL of the database", n.Line)
	}
	u.line = n.Line
	return n.Decode((*plain)(u))
}

// maxSources bounds the file of --sources, in bytes.
const maxSources = 1 << 20

// unreadable matches what the decoder says of a value of another type.
var unreadable = regexp.MustCompile("cannot unmarshal !!(\\w+)(?: `([^`]*)`)? into ([\\w.\\[\\]]+)")

// remedies say what a value of a type is.
var remedies = map[string]string{
	"time.Duration": "a duration: write it with its unit, such as 5m", "time.Time": "a time: write it like 2026-01-31T12:00:00Z",
	"relay.Raquel": "a table: write raquel: {table: jobs}", "relay.Nsj": "a table: write nsj: {table: fila}",
	"string": "a text", "int": "a whole number", "[]string": "a list: write it like [a, b]",
	"map[string]string": "a mapping: write it like {a: b}",
}

// readable says with the remedy what the decoder says.
func readable(text string) string {
	return unreadable.ReplaceAllStringFunc(text, func(text string) string {
		said := unreadable.FindStringSubmatch(text)
		what := map[string]string{"seq": "a list", "map": "a mapping", "null": "an empty value"}[said[1]]
		return cmp.Or(what, fmt.Sprintf("%q", said[2])) + " is not " + cmp.Or(remedies[said[3]], said[3])
	})
}

const sourcesRule = "write a list such as [{name: shop, postgres: {file: /run/secrets/shop}, tenants: [acme]}]"

// ReadSources reads the file of --sources. served are the tenants that this process serves; a source without tenants is
// for the first.
func ReadSources(path string, served []string) ([]Config, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, fmt.Errorf("read sources: %w", err)
	}
	configs, err := parseSources(text, filepath.Dir(path), served)
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		err = errors.New(readable(strings.Join(wrong.Errors, "; ")))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return configs, nil
}

func parseSources(text []byte, folder string, served []string) ([]Config, error) {
	root, err := strictyaml.Parse(text, strictyaml.Limits{Bytes: maxSources, Values: maxSources / 16})
	if err != nil {
		return nil, err
	}
	if root == nil || root.Kind != yaml.SequenceNode || len(root.Content) == 0 {
		return nil, errors.New("no sources: " + sourcesRule)
	}
	for _, item := range root.Content { // the decoder leaves out empty ones
		if item.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: expected a mapping: %s", item.Line, sourcesRule)
		}
	}
	var sources []Source
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&sources); err != nil {
		return nil, err
	}
	configs := make([]Config, len(sources))
	names := make(map[string]bool)
	for i, s := range sources {
		for at := 0; at+1 < len(root.Content[i].Content); at += 2 { // an empty one would relay the outbox
			key, value := root.Content[i].Content[at], root.Content[i].Content[at+1]
			if what := map[string]string{"raquel": "relay.Raquel", "nsj": "relay.Nsj"}[key.Value]; what != "" && value.Tag == "!!null" {
				return nil, fmt.Errorf("line %d: %s: an empty value is not %s", key.Line, key.Value, remedies[what])
			}
		}
		config, err := s.config(folder, served)
		if err == nil && names[config.Name] {
			err = errors.New("another source has this name: give each its own")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: source %q: %w", root.Content[i].Line, s.Name, err)
		}
		names[config.Name] = true
		configs[i] = config
	}
	return configs, nil
}

// config returns the configuration of a source, without clients.
func (s *Source) config(folder string, served []string) (Config, error) {
	if s.Hold < 0 || s.KeepEnded < 0 {
		return Config{}, fmt.Errorf("hold %s, keep_ended %s: use 0s or more", s.Hold, s.KeepEnded)
	}
	config := Config{
		Name: s.Name, Hold: s.Hold, KeepEnded: s.KeepEnded, NotBefore: s.NotBefore.Time, Raquel: s.Raquel, Nsj: s.Nsj,
	}
	if s.Postgres.File == "" {
		return config, errors.New("it has no postgres: write postgres: {file: PATH}, a file with the URL of the database")
	}
	for _, u := range []struct {
		file URLFile
		to   **postgres.Address
	}{{s.Postgres, &config.Database}, {s.Direct, &config.Direct}} {
		if u.file.File == "" {
			continue
		}
		path := u.file.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		var err error
		if *u.to, err = postgres.ReadFile(path); err != nil {
			return config, err
		}
	}
	tenants := s.Tenants
	if len(tenants) == 0 {
		tenants = served[:1]
	}
	config.Tenant, config.Tenants = tenants[0], make(map[string]*queue.Client)
	for _, tenant := range tenants {
		if !slices.Contains(served, tenant) {
			return config, fmt.Errorf("tenant %q is not served here: add it to --tenants, or remove it", tenant)
		}
		config.Tenants[tenant] = nil
	}
	config.Name = config.name()
	return config, config.validate()
}
