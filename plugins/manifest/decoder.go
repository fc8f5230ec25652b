package manifest

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/plugins/spelling"
	"github.com/quern-project/quern/plugins/strictyaml"
	"github.com/quern-project/quern/runtime/redact"
)

// decoder walks the nodes of a file and gathers every problem, so that a person can correct the file in one go.
type decoder struct {
	file     string
	plugin   string
	keys     []key           // the keys of the top level
	values   map[string]node // the values of the keys that the file has, by path
	problems []Problem

	most    strictyaml.Limits // the bounds of the file
	top     string            // the name of the top level, for messages
	prefix  string            // is put before each path in messages
	ceiling bool              // names can be patterns, as in a host's ceilings
	secret  bool              // messages do not even repeat names: a name may be a misplaced secret
}

// key is a key of a mapping: the decoder reads its value, the schema describes it.
type key struct {
	name, about string
	value
}

// value describes the values that a key can have. Functions such as textValue return a value whose read function stores
// into *at.
type value struct {
	read   func(d *decoder, n node) // reads a value of the document, and stores it
	schema *property                // describes the value
	keys   []key                    // the keys below this one, if it is a section; messages name them by their paths
	*limit                          // for a number that hosts can bound

	required bool   // the key must be there
	lacking  string // the remedy if the key is missing; "" if other code reports that
}

// section describes a mapping with these keys.
func section(keys ...key) value { return value{schema: objectProperty(keys), keys: keys} }

// require makes the key mandatory. remedy says what to do if the key is missing.
func (v value) require(remedy string) value {
	v.required, v.lacking = true, remedy
	return v
}

// node is a value of the document and the path that leads to it.
type node struct {
	*yaml.Node
	path string
}

func newDecoder(file string) *decoder {
	plugin := strings.TrimSuffix(filepath.Base(file), Suffix)
	return &decoder{
		file: file, plugin: plugin, values: map[string]node{},
		most: strictyaml.Limits{Bytes: MaxSize, Values: maxValues}, top: "the top level",
	}
}

func (d *decoder) report(line int, path, what, remedy string) {
	if d.full() {
		return
	}
	if d.prefix != "" {
		path = strings.TrimSuffix(d.prefix+"."+path, ".")
	}
	d.problems = append(d.problems, Problem{
		Line: line, Field: path, What: redact.Shorten(what, maxMessage), Remedy: redact.Shorten(remedy, maxMessage),
	})
}

// full reports whether there are more problems than an error shows. Nothing more is read then.
func (d *decoder) full() bool { return len(d.problems) > maxProblems }

func (d *decoder) wrong(n node, what, remedy string) { d.report(n.Line, n.path, what, remedy) }

// troubled reports whether there is a problem at the key of a path, or below it.
func (d *decoder) troubled(path string) bool {
	return slices.ContainsFunc(d.problems, func(p Problem) bool {
		rest, ok := strings.CutPrefix(p.Field, strings.TrimPrefix(d.prefix+"."+path, "."))
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func (d *decoder) err() error { return NewError(d.file, d.problems) }

// root returns the root value of the one document in data. remedy says what to do if there is no document.
func (d *decoder) root(data []byte, remedy string) (root node, ok bool) {
	found, err := strictyaml.Parse(data, d.most)
	if wrong, is := errors.AsType[*strictyaml.Error](err); is {
		d.report(wrong.Line, "", wrong.What, wrong.Remedy)
	} else if found == nil {
		d.report(0, "", "is empty", remedy)
	}
	return node{found, ""}, found != nil
}

// section reads a mapping with the keys of a section, and reports unknown keys.
func (d *decoder) section(n node, keys []key) {
	d.mapping(n, keys, func(name string, keyNode node) { d.unknown(keyNode, n.path, name) })
}

// entry reads a mapping that is not a section, but an entry of a list or the value of a key.
func (d *decoder) entry(n node, keys []key) {
	d.mapping(n, keys, func(name string, keyNode node) {
		names, what := namesOf(keys), "unknown key "+Quote(name)
		if d.secret {
			what = "has an unknown key"
		}
		if near := spelling.Nearest(name, names); len(near) > 0 && !d.secret {
			d.wrong(node{keyNode.Node, n.path}, what, fmt.Sprintf("did you mean %q?", near[0]))
			return
		}
		last := len(names) - 1
		d.wrong(node{keyNode.Node, n.path}, what, "an entry has "+strings.Join(names[:last], ", ")+" and "+names[last])
	})
}

// mapping reads the values of a mapping's keys. It calls unknown for each key that is not in keys, and reports
// missing mandatory keys.
func (d *decoder) mapping(n node, keys []key, unknown func(name string, keyNode node)) {
	d.entries(n, func(name string, keyNode, value node) {
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		switch {
		case i < 0:
			unknown(name, keyNode)
			return
		case keys[i].keys != nil:
			d.section(value, keys[i].keys)
		default:
			keys[i].read(d, value)
		}
		d.values[value.path] = value
	})
	for _, k := range keys {
		if _, there := d.values[n.path+"."+k.name]; !there && k.lacking != "" && n.Kind == yaml.MappingNode {
			d.wrong(n, "has no "+k.name, k.lacking)
		}
	}
}

var index = regexp.MustCompile(`\[\d+\]`)

// forms has an example for each key whose value is a mapping, or a list of mappings, by its path.
var forms = map[string]string{
	"capabilities": "{secrets: [api_key]}", "capabilities.enqueue": "{queues: [mail]}", "capabilities.env": "{MODE: prod}",
	"capabilities.files": "[{from: model.bin, to: /data/model.bin}]",
	"capabilities.http":  `[{host: "https://api.example.com", methods: [GET]}]`,
	"capabilities.kv":    "[{bucket: seen, access: rw}]", "capabilities.publish": "{topics: [orders]}",
	"config": "{greeting: Hello}", "limits": "{memory: 64MiB, timeout: 30s}", "retry": "{max_attempts: 5}",
	"schedule": `[{cron: "30 6 * * MON-FRI"}]`, "subscribe": "[{topic: orders}]",
	"tests": "[{input: tests/a.json, output: tests/a.out}]", "warm": "{input: sample.json}",
}

// entries calls each for every key of a mapping, once.
func (d *decoder) entries(n node, each func(name string, keyNode, value node)) {
	if n.Kind != yaml.MappingNode {
		remedy := "write its keys, or leave it out"
		path := index.ReplaceAllString(n.path, "")
		if form := forms[path]; form != "" {
			_, leaf := splitPath(path)
			remedy = fmt.Sprintf("write its keys, such as %s: %s, or leave it out", leaf, form)
		}
		if n.path == "" {
			remedy = strictyaml.WriteKeys
		}
		d.wrong(n, "expected a mapping, but it is "+kindOf(n), remedy)
		return
	}
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !d.full(); i += 2 {
		keyNode, value := n.Content[i], n.Content[i+1]
		name, path := keyNode.Value, keyNode.Value
		if n.path != "" {
			path = n.path + "." + Shorten(name)
		}
		at := node{keyNode, path}
		first, duplicate := lines[name]
		switch {
		case keyNode.Kind != yaml.ScalarNode:
			d.wrong(node{keyNode, n.path}, "has "+kindOf(at)+" as a key", "write a word")
		case duplicate && d.secret:
			d.wrong(node{keyNode, n.path}, "has a key twice", "keep one of them")
		case duplicate:
			d.wrong(at, fmt.Sprintf("is here a second time, after line %d", first), "keep one of them")
		default:
			lines[name] = keyNode.Line
			each(name, at, node{value, path})
		}
	}
}

// list calls each for every entry of a list, unless the list has more than limit entries. verb is what a person does
// with the entries, for messages.
func (d *decoder) list(n node, limit int, example, verb string, each func(at node)) {
	switch {
	case n.Kind != yaml.SequenceNode:
		d.wrong(n, "is "+kindOf(n), "write a list, such as "+example)
	case len(n.Content) > limit:
		d.wrong(n, fmt.Sprintf("has %d entries", len(n.Content)), fmt.Sprintf("%s at most %d", verb, limit))
	default:
		for i, item := range n.Content {
			if d.full() {
				return
			}
			each(node{item, fmt.Sprintf("%s[%d]", n.path, i)})
		}
	}
}

// synonyms has the paths of keys by the names that other systems, or other files of Quern, have for them.
var synonyms = map[string]string{
	"attempts": "retry.max_attempts", "max_retries": "retry.max_attempts", "max_retry": "retry.max_attempts",
	"retries": "retry.max_attempts", "backoff_delay": "retry.base", "default_retry_delay": "retry.base",
	"delay": "retry.base", "initial_delay": "retry.base", "max_backoff": "retry.max", "max_delay": "retry.max",
	"retry_backoff_max": "retry.max", "retry_backoff": "retry.backoff", "retry_jitter": "retry.jitter",
	"expires": "retry.max_age", "ttl": "retry.max_age", "hard_time_limit": "limits.timeout",
	"job_timeout": "limits.timeout", "soft_time_limit": "limits.timeout", "time_limit": "limits.timeout",
	"memory_limit": "limits.memory", "rate_limit": "concurrency", "limiter": "concurrency",
	"worker_concurrency": "concurrency", "dead_letter": "dead", "dead_letter_queue": "dead", "dead_queue": "dead",
	"beat_schedule": "schedule", "cron": "schedule", "crontab": "schedule", "topics": "subscribe",
	"buckets": "capabilities.kv", "hosts": "capabilities.http",
	"record": "records", // of grants: manifests have record
}

// synonymNotes says how the key differs from the synonym.
var synonymNotes = map[string]string{
	"max_retries": " (the first run counts, too)", "max_retry": " (the first run counts, too)",
	"retries": " (the first run counts, too)", "rate_limit": " (it bounds how many tasks run at a time, not their rate)",
	"limiter": " (it bounds how many tasks run at a time, not their rate)",
	"record":  " (the bound of a record is limits.record)",
}

// unknown reports an unknown key of a section. The remedy names the nearest known key, or the section to which the key
// belongs.
func (d *decoder) unknown(n node, section, name string) {
	var allowed []string
	nearest, best := "", 0
	word := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	meant := synonyms[word]
	isMeant := false // d.keys has the key that the synonym means
	walk(d.keys, "", func(path string, k key) {
		isMeant = isMeant || path == meant
		parent, leaf := splitPath(path)
		if parent == section {
			allowed = append(allowed, leaf)
		}
		distance := distance(strings.ToLower(name), leaf)
		switch {
		case parent != section && distance > 0:
			return // in other sections only the exact name counts
		case parent != section:
			distance = 2 // worse than the exact name in this section, better than a mistyped one
		}
		if nearest == "" || distance < best {
			nearest, best = path, distance
		}
	})
	n.path = section
	what := fmt.Sprintf("unknown key %s", Quote(name))
	parent, leaf := splitPath(nearest)
	switch {
	case isMeant && (nearest == "" || best > 0):
		if parent, leaf := splitPath(meant); parent == section {
			meant = leaf
		}
		d.wrong(n, what, fmt.Sprintf("did you mean %q%s?", meant, synonymNotes[word]))
	case parent != section && parent != "":
		d.wrong(n, what, fmt.Sprintf("it belongs to %s, as %s", parent, nearest))
	case parent != section:
		d.wrong(n, what, "it belongs to "+d.top)
	case best/4 <= 1+len(leaf)/4:
		d.wrong(n, what, fmt.Sprintf("did you mean %q?", leaf))
	default:
		d.wrong(n, what, fmt.Sprintf("the nearest is %q; allowed are %s", leaf, strings.Join(allowed, ", ")))
	}
}

// distance returns 4 for each mistyped letter. If there are several but one of name and leaf begins with the other, it
// returns 5.
func distance(name, leaf string) int {
	edits := spelling.Distance(name, leaf)
	if edits > 1 && min(len(name), len(leaf)) >= 3 && (strings.HasPrefix(name, leaf) || strings.HasPrefix(leaf, name)) {
		return 5
	}
	return 4 * edits
}

// walk calls each for every key, with the key's path. A section comes before its keys.
func walk(keys []key, path string, each func(path string, k key)) {
	for _, k := range keys {
		own := strings.TrimPrefix(path+"."+k.name, ".")
		each(own, k)
		walk(k.keys, own, each)
	}
}

func splitPath(path string) (parent, leaf string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

func namesOf(keys []key) []string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return names
}

// has reports whether a mapping has a key.
func (n node) has(name string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

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
	return "of the type " + Shorten(n.Tag)
}
