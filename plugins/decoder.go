package plugins

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

// decoder walks the nodes of a manifest and gathers every problem on its way, so that a person
// corrects a file once and not as often as it has mistakes.
type decoder struct {
	file     string
	plugin   string
	fields   []field
	values   map[string]node // by path: the values of the keys that the manifest has
	problems []Problem

	most     int    // bytes of the file
	top      string // what the keys without a section belong to
	prefix   string // of paths, for messages
	ceiling  bool   // names may be patterns
	discreet bool   // the file holds secrets: messages show no more of it than names
}

// field is one key of the manifest, by its path.
type field struct {
	path string
	// decode reads the key's value into the manifest.
	decode func(d *decoder, n node, m *Manifest)
}

// node is a value of the document and the path that leads to it.
type node struct {
	*yaml.Node
	path string
}

// schema lists every key, parents before their children.
func schema() []field {
	section := func(d *decoder, n node, m *Manifest) { d.section(n, m) }
	return []field{
		{"name", func(d *decoder, n node, m *Manifest) { m.Name = d.name(n) }},
		{"version", func(d *decoder, n node, m *Manifest) { m.Version, _ = d.word(n) }},
		{"queues", func(d *decoder, n node, m *Manifest) { m.Queues = d.queues(n) }},
		{"limits", section},
		limitOf("limits.memory").field(),
		limitOf("limits.timeout").field(),
		limitOf("limits.cpu").field(),
		limitOf("limits.input").field(),
		limitOf("limits.output").field(),
		limitOf("limits.log").field(),
		{"retry", section},
		limitOf("retry.max_attempts").field(),
		{"retry.backoff", func(d *decoder, n node, m *Manifest) {
			m.Retry.Backoff = d.choice(n, BackoffExponential, BackoffLinear)
		}},
		{"retry.base", func(d *decoder, n node, m *Manifest) { m.Retry.Base = d.duration(n, "1s") }},
		limitOf("retry.min").field(),
		{"retry.max", func(d *decoder, n node, m *Manifest) { m.Retry.Max = d.duration(n, "12h") }},
		{"retry.jitter", func(d *decoder, n node, m *Manifest) { m.Retry.Jitter = d.boolean(n) }},
		limitOf("retry.max_age").field(),
		limitOf("retry.max_reschedules").field(),
		{"concurrency", func(d *decoder, n node, m *Manifest) {
			m.Concurrency = d.count(n, maxConcurrency, "no bound of its own")
		}},
		{"max_running", func(d *decoder, n node, m *Manifest) { m.MaxRunning = d.count(n, maxRunning, "no bound of its own") }},
		{"on_crash", func(d *decoder, n node, m *Manifest) { m.OnCrash = d.choice(n, CrashRerun, CrashFail) }},
		limitOf("max_crashes").field(),
		{"dead", func(d *decoder, n node, m *Manifest) { m.Dead, _ = d.word(n) }},
		{"warm", func(d *decoder, n node, m *Manifest) { d.warm(n, m) }},
		{warmField, func(d *decoder, n node, m *Manifest) {
			m.Warm = Warm{Input: d.from(n, "sample.json or samples/sample.json"), line: n.Line}
		}},
		{"config", func(d *decoder, n node, m *Manifest) { m.Config = d.config(n) }},
		{"capabilities", section},
		{httpField, func(d *decoder, n node, m *Manifest) { m.Capabilities.HTTP = d.hosts(n) }},
		{kvField, func(d *decoder, n node, m *Manifest) { m.Capabilities.KV = d.buckets(n) }},
		{"capabilities.secrets", func(d *decoder, n node, m *Manifest) { m.Capabilities.Secrets = d.secrets(n) }},
		{enqueueField, func(d *decoder, n node, m *Manifest) { m.Capabilities.Enqueue = d.enqueue(n) }},
		{"capabilities.env", func(d *decoder, n node, m *Manifest) { m.Capabilities.Env = d.env(n) }},
		{filesField, func(d *decoder, n node, m *Manifest) { m.Capabilities.Files = d.files(n) }},
		{testsField, func(d *decoder, n node, m *Manifest) { m.Tests = d.tests(n) }},
	}
}

func newDecoder(file string) *decoder {
	return &decoder{
		file: file, plugin: pluginOf(file), fields: schema(), values: map[string]node{}, most: maxManifest, top: "the top level",
	}
}

func (d *decoder) report(line int, path, what, remedy string) {
	if d.prefix != "" {
		path = strings.TrimSuffix(d.prefix+"."+path, ".")
	}
	d.problems = append(d.problems, Problem{Line: line, Field: path, What: what, Remedy: remedy})
}

func (d *decoder) wrong(n node, what, remedy string) { d.report(n.Line, n.path, what, remedy) }

func (d *decoder) err() error { return manifestError(d.file, d.problems) }

// document reads the one document that data may hold.
func (d *decoder) document(data []byte) Manifest {
	m := DefaultManifest(d.plugin)
	if root, ok := d.root(data, "write at least name: "+d.plugin+", or remove the file"); ok {
		d.section(root, &m)
		d.together(&m)
	}
	return m
}

// root finds the one document that data may hold; remedy is what to do if there is none.
func (d *decoder) root(data []byte, remedy string) (root node, ok bool) {
	if len(data) > d.most {
		d.report(0, "", "has more than "+units.FormatSize(int64(d.most)), "put less into it")
		return node{}, false
	}
	if d.characters(data); len(d.problems) > 0 {
		return node{}, false
	}
	documents := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	switch err := documents.Decode(&first); {
	case errors.Is(err, io.EOF) || err == nil && isNull(resolve(first.Content[0])):
		d.report(0, "", "is empty", remedy)
		return node{}, false
	case err != nil:
		d.syntax(err, data)
		return node{}, false
	}
	switch err := documents.Decode(&second); {
	case err == nil:
		d.report(second.Line, "", "there is a second document", "keep one, without a --- between its lines")
	case !errors.Is(err, io.EOF):
		d.syntax(err, data)
	}
	return node{resolve(first.Content[0]), ""}, true
}

// characters reports the first one that no YAML may have, with the line that the YAML reader does not
// tell.
func (d *decoder) characters(data []byte) {
	line := 1
	for rest := data; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			d.report(line, "", fmt.Sprintf("has the byte 0x%02x, which is not UTF-8", rest[0]), "save the file as UTF-8")
			return
		case r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0x7f:
			d.report(line, "", fmt.Sprintf("has the control character 0x%02x", r), "remove it")
			return
		case r == '\n':
			line++
		}
		rest = rest[size:]
	}
}

// syntax reports what the YAML reader says, with its line in the place where ours stand. The reader
// leaves out the first line's number, and counts lines from 0 in what its grammar says.
func (d *decoder) syntax(err error, data []byte) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if head, rest, found := strings.Cut(text, ": "); found {
		if number, err := strconv.Atoi(strings.TrimPrefix(head, "line ")); err == nil {
			text, line = rest, number
			if isGrammar(text) {
				line++
			}
		}
	}
	remedy := `write it as "key: value" lines`
	if strings.HasPrefix(text, "unknown anchor") {
		line = 0 // it may be anywhere
		if d.discreet {
			text, remedy = "a text begins with *, which would be an alias", "write it in quotes"
		}
	}
	line = min(line, 1+bytes.Count(data, []byte("\n"))) // it may count the end of the file as a line
	d.report(line, "", "is not YAML: "+text, remedy)
}

func isGrammar(text string) bool {
	for _, expected := range []string{"',' or ']'", "',' or '}'", "'-' indicator", "<document start>", "key", "node content"} {
		if text == "did not find expected "+expected {
			return true
		}
	}
	return text == "found undefined tag handle"
}

// section reads a mapping whose keys the schema knows.
func (d *decoder) section(n node, m *Manifest) {
	d.entries(n, func(key string, keyNode, value node) {
		i := slices.IndexFunc(d.fields, func(f field) bool { return f.path == value.path })
		switch {
		case i < 0:
			d.unknown(keyNode, n.path, key)
		default:
			d.values[value.path] = value
			d.fields[i].decode(d, value, m)
		}
	})
}

// entries calls each for every key of a mapping, once.
func (d *decoder) entries(n node, each func(key string, keyNode, value node)) {
	if n.Kind != yaml.MappingNode {
		remedy := "write its keys, or leave it out"
		if n.path == "" {
			remedy = `write it as "key: value" lines`
		}
		d.wrong(n, "is "+kindOf(n)+" where keys belong", remedy)
		return
	}
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		keyNode, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		key, path := keyNode.Value, keyNode.Value
		if n.path != "" {
			path = n.path + "." + shorten(key)
		}
		at := node{keyNode, path}
		first, duplicate := lines[key]
		switch {
		case keyNode.Kind != yaml.ScalarNode:
			d.wrong(node{keyNode, n.path}, "has "+kindOf(at)+" as a key", "write a word")
		case keyNode.Tag == "!!merge":
			d.wrong(node{keyNode, n.path}, "merges keys with <<", "write the keys out")
		case duplicate && d.discreet && strings.HasPrefix(n.path, secretsField+"."): // it may be a secret in the wrong place
			d.wrong(node{keyNode, n.path}, "has a key twice", "keep one of them")
		case duplicate:
			d.wrong(at, fmt.Sprintf("stands here a second time, after line %d", first), "keep one of them")
		default:
			lines[key] = keyNode.Line
			each(key, at, node{value, path})
		}
	}
}

// textTags are those of the scalars that are texts as they are written.
var textTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}

// text reads a scalar as it is written, so that `version: 1.10` does not become 1.1.
func (d *decoder) text(n node, example string) (string, bool) {
	if n.Kind == yaml.ScalarNode && slices.Contains(textTags, n.Tag) {
		return n.Value, true
	}
	d.wrong(n, "is "+kindOf(n), "write "+example)
	return "", false
}

func (d *decoder) word(n node) (string, bool) {
	value, ok := d.text(n, wordRule)
	if !ok {
		return "", false
	}
	if err := checkWord(value); err != nil {
		d.wrong(n, quote(value)+" "+err.Error(), "write "+wordRule)
		return "", false
	}
	return value, true
}

func (d *decoder) name(n node) string {
	value, ok := d.text(n, "name: "+d.plugin)
	if ok && value != d.plugin {
		d.wrong(n, fmt.Sprintf("%s is not the file's name", quote(value)),
			fmt.Sprintf("write name: %s, or rename the two files to %s%s and %s%s",
				d.plugin, shorten(value), moduleSuffix, shorten(value), manifestSuffix))
	}
	return d.plugin
}

func (d *decoder) queues(n node) []string {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		d.wrong(n, "names no queue", "name one, or leave the key out to serve "+strconv.Quote(d.plugin))
	}
	var queues []string
	d.listOf(n, maxQueues, "["+d.plugin+"]", "name", func(at node) {
		queue, ok := d.word(at)
		switch {
		case !ok:
		case slices.Contains(queues, queue):
			d.wrong(at, quote(queue)+" stands in the list twice", "name it once")
		default:
			queues = append(queues, queue)
		}
	})
	return queues
}

func (d *decoder) size(n node, least, most int64) int64 {
	remedy := fmt.Sprintf("write a size from %s to %s, such as %s",
		units.FormatSize(least), units.FormatSize(most), units.FormatSize(min(16<<20, most)))
	value, ok := d.text(n, remedy[len("write "):])
	if !ok {
		return 0
	}
	size, err := units.ParseSize(value)
	switch {
	case err != nil && isDigits(value):
		d.wrong(n, quote(value)+" has no unit", remedy)
	case err != nil:
		d.wrong(n, quote(value)+" is not a size", remedy)
	case size < least:
		d.wrong(n, quote(value)+" is too small", remedy)
	case size > most:
		d.wrong(n, quote(value)+" is too large", remedy)
	}
	return size
}

// duration reads a time that is not zero; without is what holds if the key is left out.
func (d *decoder) duration(n node, without string) time.Duration {
	remedy := "write a duration such as 30s, 5m, 24h or 7d, or leave the key out for " + without
	value, ok := d.text(n, remedy[len("write "):])
	if !ok {
		return 0
	}
	duration, err := parseDuration(value)
	switch {
	case err != nil && isDigits(value):
		d.wrong(n, quote(value)+" has no unit", remedy)
	case err != nil:
		d.wrong(n, quote(value)+" is not a duration", remedy)
	case duration <= 0:
		d.wrong(n, quote(value)+" is no time at all", remedy)
	case duration > maxTimeout:
		d.wrong(n, quote(value)+" is more than 365d", remedy)
	default:
		return duration
	}
	return 0
}

// count reads a number from 1 up; without is what holds if the key is left out.
func (d *decoder) count(n node, most int, without string) int {
	remedy := fmt.Sprintf("write a whole number from 1 to %d, or leave the key out for %s", most, without)
	value, ok := d.text(n, remedy[len("write "):])
	if !ok {
		return 0
	}
	count, err := strconv.Atoi(value)
	if err != nil || count < 1 || count > most {
		d.wrong(n, quote(value)+" is not allowed", remedy)
		return 0
	}
	return count
}

func (d *decoder) env(n node) map[string]string {
	env := map[string]string{}
	d.entries(n, func(key string, keyNode, value node) {
		text, ok := d.text(value, `a text, "" for an empty one`)
		switch {
		case !isVariable(key):
			d.wrong(keyNode, quote(key)+" is no name of a variable", "write letters, digits and _, not beginning with a digit")
		case strings.HasPrefix(key, runtime.ReservedEnv):
			d.wrong(keyNode, "variables that begin with "+runtime.ReservedEnv+" are set by the host", "choose another name")
		case strings.ContainsRune(text, 0):
			d.wrong(value, "has a zero byte", "remove it")
		case ok:
			env[key] = text
		}
	})
	return env
}

// isVariable holds the names of environment variables to what every shell and libc takes.
func isVariable(name string) bool {
	const digits, others = "0123456789", "_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return name != "" && len(name) <= maxWord &&
		strings.Trim(name, digits+others) == "" && !strings.ContainsAny(name[:1], digits)
}

// parseDuration reads Go's durations and, before them, whole days: "30s", "7d", "1d12h".
func parseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	count, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("parse days %q: %w", days, err)
	}
	whole := time.Duration(count) * 24 * time.Hour
	if rest == "" {
		return whole, nil
	}
	part, err := time.ParseDuration(rest)
	if err != nil || part < 0 {
		return 0, fmt.Errorf("parse duration %q after the days", rest)
	}
	return whole + part, nil
}

// resolve follows an alias to what it stands for. An alias of an alias does not exist in YAML.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// kindOf names a value's type for people.
func kindOf(n node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "empty"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	case "!!str", "!!timestamp":
		return "a text"
	}
	return "of the type " + shorten(n.Tag)
}
