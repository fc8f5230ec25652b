package plugins

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/quern-project/quern/runtime"
)

// property is a part of a JSON Schema (draft 7), as far as manifests need it.
type property struct {
	Schema        string      `json:"$schema,omitempty"`
	Title         string      `json:"title,omitempty"`
	Description   string      `json:"description,omitempty"`
	Type          any         `json:"type,omitempty"` // a word, or several
	Enum          []string    `json:"enum,omitempty"`
	Pattern       string      `json:"pattern,omitempty"`
	MaxLength     int         `json:"maxLength,omitempty"`
	Minimum       *int64      `json:"minimum,omitempty"`
	Maximum       *int64      `json:"maximum,omitempty"`
	MinItems      int         `json:"minItems,omitempty"`
	MaxItems      int         `json:"maxItems,omitempty"`
	UniqueItems   bool        `json:"uniqueItems,omitempty"`
	Items         *property   `json:"items,omitempty"`
	Properties    properties  `json:"properties,omitempty"`
	PropertyNames *property   `json:"propertyNames,omitempty"`
	Additional    any         `json:"additionalProperties,omitempty"` // false, or a *property
	Required      []string    `json:"required,omitempty"`
	AnyOf         []*property `json:"anyOf,omitempty"`
	Not           *property   `json:"not,omitempty"`
	Default       any         `json:"default,omitempty"`
	Examples      []any       `json:"examples,omitempty"`
}

// properties are those of an object, in the order in which they are shown.
type properties []named

type named struct {
	name string
	*property
}

// MarshalJSON implements json.Marshaler.
func (p properties) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, one := range p {
		if i > 0 {
			out.WriteByte(',')
		}
		value, err := json.Marshal(one.property)
		if err != nil {
			return nil, err
		}
		out.WriteString(strconv.Quote(one.name) + ":")
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// Schema is the JSON Schema (draft 7) of manifests, for editors. It has the keys that ParseManifest takes, and all that
// can be said of their values one by one; what they say of each other, and how large a size or a duration may be,
// ParseManifest alone knows. A number in quotes, which ParseManifest takes for the number, is none here.
func Schema() json.RawMessage {
	root := object("The manifest of a plugin of Quern: NAME.yaml beside NAME.wasm.", nil)
	root.Schema, root.Title = "http://json-schema.org/draft-07/schema#", "Quern plugin manifest"
	all := values()
	sections := map[string]*property{"": root}
	for _, f := range schema() {
		p := all[f.path]
		if p == nil {
			continue // a test sees that there is none
		}
		if keys := entryKeys[f.path]; keys != nil {
			entry := p
			if p.Items != nil {
				entry = p.Items
			}
			for _, key := range keys {
				entry.Properties = append(entry.Properties, named{key, all[f.path+"[]."+key]})
			}
		}
		section, key := splitPath(f.path)
		sections[f.path] = p
		sections[section].Properties = append(sections[section].Properties, named{key, p})
	}
	text, _ := json.MarshalIndent(root, "", "  ") // it is made of what can be written
	return append(text, '\n')
}

// What the texts of a manifest look like. Sizes are those of the package units, durations those of Go, after days.
const (
	wordPattern     = `^[!-~]{1,128}$`
	sizePattern     = `^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB|TiB)$`
	durationPattern = `^([0-9]+d)?\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`
	variablePattern = `^[A-Za-z_][A-Za-z0-9_]{0,127}$`
	secretPattern   = `^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,126}$`
	hostPattern     = `^https?://[^/?#\\@]+$`
	methodPattern   = `^[^a-z ]{1,32}$`
	fromPattern     = `^[^/]+(/[^/]+)*$`
	toPattern       = `^(/[^/]+)+$`
	queuePattern    = `^([!-)+-~]+\*?|\*)[!-)+-~]*$`
)

// scalar is what YAML may take a text for that is not in quotes.
var scalar = []string{"string", "number", "boolean"}

func text(description, pattern string, examples ...any) *property {
	return &property{Type: scalar, Pattern: pattern, Description: description, Examples: examples}
}

func size(description, standard string) *property {
	return &property{Type: "string", Pattern: sizePattern, Description: description, Examples: []any{standard}}
}

func duration(description string, examples ...any) *property {
	return &property{Type: "string", Pattern: durationPattern, Description: description, Examples: examples}
}

func number(description string, least, most int64) *property {
	return &property{Type: "integer", Minimum: &least, Maximum: &most, Description: description}
}

func choice(description string, words ...string) *property {
	return &property{Type: "string", Enum: words, Description: description}
}

func object(description string, required []string) *property {
	return &property{Type: "object", Additional: false, Required: required, Description: description}
}

func list(description string, most int, item *property) *property {
	return &property{Type: "array", MaxItems: most, Items: item, Description: description}
}

func (p *property) unique() *property {
	p.UniqueItems = true
	return p
}

func (p *property) some() *property {
	p.MinItems = 1
	return p
}

// values are what the keys of a manifest may have, by their paths; those of an entry have [] behind the path of the key
// that has the entry.
func values() map[string]*property {
	retry := object("How often and when a failed task is tried again, unless the task says so itself. Default: one attempt.", nil)
	retry.AnyOf = []*property{{Required: []string{"max_attempts"}}, {Required: []string{"max_age"}}}
	env := object("Environment variables; none begins with "+runtime.ReservedEnv+", which are the host's.", nil)
	env.PropertyNames = &property{Pattern: variablePattern, Not: &property{Pattern: "^" + runtime.ReservedEnv}}
	env.Additional = text("", "")
	config := object("What a handler asks for by config_get, by name. A host may have another value for a tenant.", nil)
	config.PropertyNames = &property{Pattern: wordPattern}
	config.Additional = &property{Type: scalar, MaxLength: maxConfig}
	all := map[string]*property{
		"name":    text("The plugin's name: that of the file.", wordPattern),
		"version": text("For people and for metrics.", wordPattern, "1.0.0"),
		"queues":  list("The queues that the plugin serves. Default: its name.", maxQueues, text("", wordPattern)).some().unique(),

		"limits": object("What one task may take. One that passes a limit fails. A host may give less.", nil),

		"retry":         retry,
		"retry.backoff": choice("How the delay grows with the attempts n: exponential, base × 2ⁿ, or linear, base × n. Default exponential.", BackoffExponential, BackoffLinear),
		"retry.base":    duration("The delay after the first attempt. Default 1s.", "1s"),
		"retry.max":     duration("The longest delay. Default 12h.", "12h"),
		"retry.jitter":  {Type: "boolean", Description: "Whether a random part, up to half, is taken from each delay. Default true."},

		"concurrency": number("Tasks at a time on one host. Default: the host's slots.", 1, maxConcurrency),
		"max_running": number("Tasks at a time on all hosts. Default: no bound.", 1, maxRunning),
		"on_crash":    choice("What becomes of a task whose host dies: it is run again, or fails. Default rerun.", CrashRerun, CrashFail),
		"dead":        text("The queue that gets a new task for each that failed for good. Default none.", wordPattern, "mail.dead"),
		"warm":        object("A call without a task by which a handler is warmed: tasks begin as it leaves the plugin.", []string{"input"}),
		"warm.input":  text("The file with the input of that call: a path in the folder of the manifest.", fromPattern, "sample.json"),
		"config":      config,

		"capabilities":     object("What the plugin may use beyond its tasks: nothing that is not listed. A host may grant less.", nil),
		"capabilities.env": env,

		httpField:                list("The hosts that a handler may send requests to.", maxGrants, object("", []string{"host", "methods"})),
		httpField + "[].host":    {Type: "string", Pattern: hostPattern, Description: "A scheme and a host, with a port if it is not the scheme's own; *. before the name stands for all names below it.", Examples: []any{"https://api.example.com", "https://*.example.com"}},
		httpField + "[].methods": list("The methods of these requests, in capitals.", 0, &property{Type: "string", Pattern: methodPattern, Examples: []any{"GET", "POST"}}).some().unique(),

		kvField:               list("The buckets of the tenant's key-value store that a handler may use.", maxGrants, object("", []string{"bucket"})),
		kvField + "[].bucket": text("The bucket's name.", wordPattern),
		kvField + "[].access": choice("r to read, rw to change it as well. Default r.", accessRead, accessWrite),
		kvField + "[].quota":  size("How many bytes of keys and values it may hold when this plugin writes, up to 1TiB. Default 10MiB.", "10MiB"),

		"capabilities.secrets": list("The names of the secrets that a handler may ask for.", maxGrants, text("", secretPattern, "api_key")).unique(),

		enqueueField:               object("Lets a handler enqueue tasks.", []string{"queues"}),
		enqueueField + "[].queues": list("The queues to which they may go: names, or names in which a * stands for any text.", maxGrants, text("", queuePattern, "thumbnails.done", "mail.*")).some().unique(),
		enqueueField + "[].after":  choice("When they come into being: with the completion of the task that enqueues them, or at the call. Default complete.", afterComplete, afterCall),
		enqueueField + "[].depth":  number("How long a chain of tasks may become of which each was enqueued by the one before. Default 16.", 1, maxDepth),
		enqueueField + "[].tasks":  number("How many tasks one run of a task may enqueue: 256 at most after: complete. Default 256.", 1, maxTasks),
		enqueueField + "[].bytes":  size("How many bytes these may have together, up to 512MiB. Default 16MiB.", "16MiB"),

		filesField:             list("Files that every task may read. They belong to the version: it changes with them.", maxFiles, object("", []string{"from", "to"})),
		filesField + "[].from": text("The file: a path in the folder of the manifest.", fromPattern, "model.bin"),
		filesField + "[].to":   {Type: "string", Pattern: toPattern, Description: "Where tasks find it: an absolute path, neither /checkpoint nor below it.", Examples: []any{"/data/model.bin"}},

		testsField:               list("Tasks and their outcome, which `quern plugin test` runs. Hosts do not look at them.", maxTests, object("", nil)),
		testsField + "[].name":   text("For people. Default: the input's path.", ""),
		testsField + "[].input":  text("The file with the parameters: a path in the folder of the manifest. Default: no parameters.", fromPattern, "tests/a.json"),
		testsField + "[].output": text("The file with the result. Default: it may be anything.", fromPattern, "tests/a.out"),
		testsField + "[].exit":   number("The exit status of a command, or what a handler returns: 0 complete, 65 failed for good, 75 later, others failed. Default 0.", -1<<31, 1<<31-1),
		testsField + "[].error":  text("A part of the error of a task that fails; without exit it may fail in any way.", ""),
	}
	for _, l := range limits {
		all[l.path] = l.kind.property(l)
	}
	return all
}
