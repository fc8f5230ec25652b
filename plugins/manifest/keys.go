package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
)

// The maximum values in a manifest, and some defaults.
const (
	maxConcurrency = 65536     // far above the slots of any host
	maxRunning     = 1_000_000 // far above the slots of any fleet
	maxWeight      = 1000      // of a fairness key
	maxQueues      = 100       // of one plugin; each queue costs the host memory and series of metrics
	maxGrants      = 100       // entries of one capability
	maxGranted     = 1000      // granted files
	maxConfig      = 64 << 10  // bytes of one value of config
	maxTests       = 1000

	maxValues     = 50_000  // keys and values of a manifest, whose decoding takes at most 60 MB
	maxFileValues = 400_000 // of an operator's file, such as 10,000 schedules with all of their keys

	defaultQuota = 10 << 20
	maxQuota     = 1 << 40

	defaultDepth = 16
	maxDepth     = 1000
	defaultTasks = 256     // also the maximum with after: complete
	maxTasks     = 100_000 // with after: call
	defaultBytes = 16 << 20
)

// checkpoint is the path at which a guest finds the checkpoint of an earlier run of its task.
const checkpoint = "/checkpoint"

// Parse parses the content of a manifest; name is its file, NAME.yaml. An *Error lists all problems.
func Parse(name string, data []byte) (Manifest, error) {
	d := newDecoder(name)
	m := Default(d.plugin)
	if root, ok := d.root(data, "write at least name: "+d.plugin+", or remove the file"); ok {
		d.keys = m.keys()
		d.section(root, d.keys)
		d.together(&m)
	}
	if err := d.err(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// Schema returns the JSON Schema (draft 7) of manifests, for editors. Parse is stricter: it also checks keys against
// each other, and the bounds of sizes and durations. It is looser in that it accepts numbers in quotes.
func Schema() json.RawMessage {
	root := objectProperty(new(Manifest).keys())
	root.Schema, root.Title = "http://json-schema.org/draft-07/schema#", "Quern plugin manifest"
	root.Description = "The manifest of a plugin of Quern: NAME.yaml beside NAME.wasm."
	text, _ := json.MarshalIndent(root, "", "  ") // never fails for a property
	return append(text, '\n')
}

// keys returns all keys of a manifest. Parse reads them into m, Schema describes them.
func (m *Manifest) keys() []key {
	limits, retry, crashes := m.limitKeys()
	return []key{
		{"name", "The plugin's name: that of the file.", value{read: (*decoder).name, schema: textProperty(wordPattern)}},
		{"version", "For people and for metrics.", wordValue(&m.Version, "1.0.0")},
		{"queues", "The queues that the plugin serves. Default: its name.", value{
			read: func(d *decoder, n node) {
				d.notEmpty(n, "name one, or leave the key out to serve "+strconv.Quote(d.plugin))
				m.Queues = d.names(n, maxQueues, "["+d.plugin+"]", "name", d.word)
			},
			schema: listProperty(maxQueues, textProperty(wordPattern)).names(1),
		}},
		limits,
		retry,
		{
			"concurrency", "Tasks at a time on one host, a number; or which tasks of a queue run one after another. Default: the host's slots, and none.",
			m.concurrencyValue(),
		},
		{
			"max_running", "Tasks at a time on all hosts. Default: no bound.",
			countValue(&m.MaxRunning, maxRunning, "no bound of its own"),
		},
		{
			"on_crash", "What becomes of a task whose host dies: it is run again, or fails. Default rerun.",
			choiceValue(&m.OnCrash, CrashRerun, CrashFail),
		},
		crashes,
		{
			"breaker", "The circuit breaker of a version: after many failures of one kind in a row its tasks wait for a while. Default none.",
			m.Breaker.value(),
		},
		{
			"record", "Which runs to record for replay: failed, sampled (failed ones, and one in a hundred others) or none. Default none.",
			choiceValue(&m.Record, RecordFailed, RecordSampled, RecordNone),
		},
		{
			"dead", "The queue that gets a new task for each that failed for good. Default none.",
			wordValue(&m.Dead, "mail.dead"),
		},
		{
			"pin", "attempt: each attempt runs on the current release; task: all attempts run on the release of the first. Default attempt.",
			choiceValue(&m.Pin, PinAttempt, PinTask),
		},
		{"entry", "The function of an Extism plugin that tasks call. Default: quern_handle, else the only one beside _start, else _start.", wordValue(&m.Entry, "count_vowels")},
		{"warm", "A call without a task by which a handler is warmed: tasks begin as it leaves the plugin.", section(
			key{
				"input", "The file with the input of that call: a path in the folder of the manifest.",
				pathValue(&m.Warm.Input, &m.Warm.line, "sample.json or samples/sample.json", "sample.json").
					require("write the path of a file with an input to warm the handler with, such as input: sample.json"),
			},
		)},
		{
			"config", "What a handler asks for by config_get, by name. A host may have another value for a tenant.",
			configValue(&m.Config),
		},
		{
			"capabilities", "What the plugin may use beyond its tasks: nothing that is not listed. A host may grant less.",
			section(m.Capabilities.keys()...),
		},
		{
			"subscribe", "Topics whose publications make tasks of the plugin. The subscriptions come with the first host that serves it, and go with a version without them, or a week after the last host.",
			entriesValue(&m.Subscribe, (*decoder).subscriptions, maxSubscriptions, new(Subscription).keys()),
		},
		{"schedule", "Recurring tasks of the plugin. They come with the first host that serves it, and go with a version without them, or a week after the last host.", value{
			read:   func(d *decoder, n node) { m.Schedule = d.schedules(n, maxSchedules, false) },
			schema: listProperty(maxSchedules, objectProperty(new(Schedule).keys())),
		}},
		{
			"tests", "Tasks and their outcome, which `quern plugin test` runs. Hosts do not look at them.",
			entriesValue(&m.Tests, (*decoder).tests, maxTests, new(Test).keys()),
		},
	}
}

func (c *Capabilities) keys() []key {
	return []key{
		{
			"http", "The hosts that a handler may send requests to.",
			entriesValue(&c.HTTP, (*decoder).hosts, maxGrants, hostKeys(nil, nil)),
		},
		{
			"kv", "The buckets of the tenant's key-value store that a handler may use.",
			entriesValue(&c.KV, (*decoder).buckets, maxGrants, new(KVGrant).keys("")),
		},
		{"secrets", "The names of the secrets that a handler may ask for.", value{
			read:   func(d *decoder, n node) { c.Secrets = d.secrets(n) },
			schema: listProperty(maxGrants, textProperty(secretPattern, "api_key")).names(0),
		}},
		{
			"sql", "The PostgreSQL databases on which a handler may run statements.",
			entriesValue(&c.SQL, (*decoder).databases, maxGrants, new(SQLGrant).keys()),
		},
		{"enqueue", "Lets a handler enqueue tasks.", value{
			read: func(d *decoder, n node) { c.Enqueue = d.enqueue(n) }, schema: objectProperty(new(EnqueueGrant).keys()),
		}},
		{"publish", "Lets a handler publish to topics.", value{
			read: func(d *decoder, n node) {
				c.Publish = &PublishGrant{After: afterComplete}
				d.entry(n, c.Publish.keys())
			}, schema: objectProperty(new(PublishGrant).keys()),
		}},
		{"env", "Environment variables; none begins with " + runtime.ReservedEnv + ", which are the host's.", value{
			read: func(d *decoder, n node) { c.Env = d.env(n) },
			schema: &property{
				Type: "object", Additional: textProperty(""),
				PropertyNames: &property{Pattern: variablePattern, Not: &property{Pattern: "^" + runtime.ReservedEnv}},
			},
		}},
		{
			"files", "Files that every task may read. They belong to the version: it changes with them.",
			entriesValue(&c.Files, (*decoder).files, maxGranted, new(FileGrant).keys()),
		},
	}
}

// hostKeys returns the keys of one entry of capabilities.http. egress.ParseGrant checks the values, and reports missing
// ones.
func hostKeys(host *string, methods *[]string) []key {
	origin := stringProperty(hostPattern, "https://api.example.com", "https://*.example.com")
	return []key{
		{"host", "A scheme and a host, with a port if it is not the scheme's own; *. before the name stands for all names below it.", textValue(host, "write https:// and a name", origin).require("")},
		{"methods", "The methods of these requests, in capitals.", value{
			read: func(d *decoder, n node) {
				d.list(n, maxGrants, "[GET, POST]", "grant", func(at node) {
					if d.text(at, "write a method such as GET") {
						*methods = append(*methods, at.Value)
					}
				})
			},
			schema: listProperty(0, stringProperty(methodPattern, "GET", "POST")).names(1), required: true,
		}},
	}
}

func (g *KVGrant) keys(plugin string) []key {
	return []key{
		{"bucket", "The bucket's name.", wordValue(&g.Bucket).require("write its name, such as bucket: " + plugin)},
		{"access", "r to read, rw to change it as well. Default r.", flagValue(&g.Write, accessRead, accessWrite)},
		{
			"quota", "How many bytes of keys and values it may hold when this plugin writes, up to 1TiB. Default 10MiB.",
			sizeValue(&g.Quota, 1, maxQuota, defaultQuota),
		},
	}
}

func (g *EnqueueGrant) keys() []key {
	return []key{
		{
			"queues", "The queues to which they may go: names, or names in which a * stands for any text.",
			patternsValue(&g.Queues, "name one, such as thumbnails.done, or leave out capabilities.enqueue",
				`[thumbnails.done, "mail.*"]`, "thumbnails.done", "mail.*").
				require("write to which queues tasks may go, such as queues: [thumbnails.done]"),
		},
		{"after", "When they come into being: with the completion of the task that enqueues them, or at the call. Default complete.", choiceValue(&g.After, afterComplete, afterCall)},
		{
			"depth", "How long a chain of tasks may become of which each was enqueued by the one before. Default 16.",
			countValue(&g.Depth, maxDepth, strconv.Itoa(defaultDepth)),
		},
		{
			"tasks", "How many tasks one run of a task may enqueue: 256 at most after: complete. Default 256.",
			countValue(&g.Tasks, maxTasks, strconv.Itoa(defaultTasks)),
		},
		{
			"bytes", "How many bytes these may have together, up to 512MiB. Default 16MiB.",
			sizeValue(&g.Bytes, 1, maxPayload, defaultBytes),
		},
	}
}

func (g *PublishGrant) keys() []key {
	return []key{
		{"topics", "The topics: names, or names in which a * stands for any text.", patternsValue(&g.Topics,
			"name one, such as orders, or leave out capabilities.publish", `[orders, "mail.*"]`, "orders", "mail.*").
			require("write to which topics it may publish, such as topics: [orders]")},
		{
			"after", "When it is published: with the completion of the task, or at the call. Default complete.",
			choiceValue(&g.After, afterComplete, afterCall),
		},
	}
}

func (f *FileGrant) keys() []key {
	return []key{
		{
			"from", "The file: a path in the folder of the manifest.",
			pathValue(&f.From, &f.line, "model.bin or models/model.bin", "model.bin").
				require("write the file's path in the folder of the manifest, such as from: model.bin"),
		},
		{"to", "Where tasks find it: an absolute path, neither /checkpoint nor below it.", toValue(&f.To).
			require("write where the plugin finds it, such as to: /data/model.bin")},
	}
}

func (t *Test) keys() []key {
	anyStatus := fmt.Sprintf("write a whole number, such as 65, from %d to %d", math.MinInt32, math.MaxInt32)
	return []key{
		{"name", "For people. Default: the input's path.", textValue(&t.Name, "write a few words", textProperty(""))},
		{
			"input", "The file with the parameters: a path in the folder of the manifest. Default: no parameters.",
			pathValue(&t.Input, nil, "a.jpg or samples/a.jpg", "tests/a.json"),
		},
		{"parameters", "The parameters, in place of input: the text of a string; of any other value its JSON.", value{
			read: func(d *decoder, n node) { t.Parameters = d.payload(n) }, schema: &property{},
		}},
		{
			"output", "The file with the result. Default: it may be anything.",
			pathValue(&t.Output, nil, "a.out or samples/a.out", "tests/a.out"),
		},
		{"exit", "The exit status of a command, or what a handler returns: 0 complete, 65 failed for good, 75 later, others failed. Default 0.", integerValue(&t.Exit, math.MinInt32, math.MaxInt32, anyStatus)},
		{
			"error", "A part of the error of a task that fails; without exit it may fail in any way.",
			textValue(&t.Error, "write a part of the error's text", textProperty("")),
		},
		{"queue", "The task's queue, one of the plugin's. Default: the first of them.", wordValue(&t.Queue, "mail")},
		{
			"attempt", "The number of the attempt. Default 1.",
			integerValue(&t.Attempt, 1, math.MaxInt32, "write a whole number, such as 2, of 1 or more"),
		},
		{"key", "The task's key. Default: none.", textValue(&t.Key, "write a text", textProperty("", "customer-7"))},
		{"headers", "The task's headers, by name in lower case. Default: none.", value{
			schema: mapValue(nil).schema, read: func(d *decoder, n node) { t.Headers = d.headers(n, true) },
		}},
		{
			"dependencies", "The tasks that it waited for, and their results.",
			entriesValue(&t.Dependencies, (*decoder).dependencies, maxTests, new(Dependency).keys()),
		},
		{
			"http", "Answers to the HTTP requests of the task, which then go to no server. Default: the servers answer.",
			entriesValue(&t.HTTP, (*decoder).answers, maxTests, new(Answer).keys()),
		},
		{"kv", "What the buckets have at the start, by bucket and key. Default: nothing.", value{
			read: func(d *decoder, n node) {
				t.KV = map[string]map[string]string{}
				d.entries(n, func(bucket string, _, values node) { t.KV[bucket] = d.texts(values) })
			},
			schema: &property{Type: "object", Additional: mapValue(nil).schema},
		}},
		{"database", "The files with SQL that runs first in a database's transaction, by the database's name. The transaction is undone at the end.", value{
			schema: &property{Type: "object", Additional: textProperty(fromPattern, "tests/schema.sql")},
			read: func(d *decoder, n node) {
				t.Database = map[string]string{}
				d.entries(n, func(name string, _, at node) {
					var file string
					pathValue(&file, nil, "schema.sql or tests/schema.sql", "tests/schema.sql").read(d, at)
					t.Database[name] = file
				})
			},
		}},
	}
}

func (a *Answer) keys() []key {
	return []key{
		{"method", "The request's method, in capitals.", checkedValue(&a.Method,
			stringProperty(methodPattern, "GET", "POST"), (*decoder).method).
			require("write the request's method, such as method: GET")},
		{"url", "The request's URL, as the handler writes it.", checkedValue(&a.URL,
			stringProperty(urlPattern, "https://api.example.com/users/1"), (*decoder).url).
			require("write the request's URL, such as url: https://api.example.com/users/1")},
		{
			"status", "The answer's status. Default 200.",
			integerValue(&a.Status, 200, 599, "write a whole number from 200 to 599"),
		},
		{"headers", "The answer's headers, by name.", value{
			schema: mapValue(nil).schema,
			read:   func(d *decoder, n node) { a.Headers = d.headers(n, false) },
		}},
		{"body", "The answer's body. Default: empty.", textValue(&a.Body, "write the body in quotes", textProperty(""))},
	}
}

// headers reads headers by name. If lower is true, capitals in names are reported.
func (d *decoder) headers(n node, lower bool) map[string]string {
	all := d.texts(n)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := egress.CheckHeader(name, all[name]); err != nil {
			d.wrong(n, err.Error(), "write one such as Content-Type: application/json")
		} else if low := strings.ToLower(name); lower && low != name {
			d.wrong(n, "header "+Quote(name)+" has capitals, which no header of a task has", "write "+Quote(low))
		}
	}
	return all
}

// mapValue describes a mapping of names to texts.
func mapValue(at *map[string]string) value {
	return value{
		schema: &property{Type: "object", Additional: textProperty("")},
		read:   func(d *decoder, n node) { *at = d.texts(n) },
	}
}

// texts reads a mapping of names to texts.
func (d *decoder) texts(n node) map[string]string {
	all := map[string]string{}
	d.entries(n, func(name string, _, value node) {
		if d.text(value, `write a text, "" for an empty one`) {
			all[name] = value.Value
		}
	})
	return all
}

// method reports a value that is no method of a request, and returns false for it.
func (d *decoder) method(n node) bool {
	if !d.text(n, "write a method in capitals, such as GET") {
		return false
	}
	err := egress.CheckMethod(n.Value)
	if err != nil {
		what, remedy := cutRemedy(err)
		d.bad(n, what, remedy)
	}
	return err == nil
}

// url reports a value that is not the URL of an HTTP request, and returns false for it.
func (d *decoder) url(n node) bool {
	const remedy = "write one such as https://api.example.com/users/1"
	if !d.text(n, remedy) {
		return false
	}
	err := egress.CheckURL(n.Value)
	if err != nil {
		d.wrong(n, err.Error(), remedy)
	}
	return err == nil
}

// cutRemedy cuts an error of package egress before its remedy.
func cutRemedy(err error) (what, remedy string) {
	text := err.Error()
	end := strings.LastIndex(text, ": ")
	return text[:end], text[end+2:]
}

func (p *Dependency) keys() []key {
	return []key{
		{"id", "Its ID.", wordValue(&p.ID, "part-1").require("write the task's ID, such as id: part-1")},
		{
			"result", "The file with its result: a path in the folder of the manifest. Default: it failed.",
			pathValue(&p.Result, nil, "a.out or samples/a.out", "tests/part-1.out"),
		},
	}
}

// configValue describes a mapping of names to texts: the section config.
func configValue(at *map[string]string) value {
	schema := &property{
		Type: "object", PropertyNames: &property{Pattern: wordPattern},
		Additional: &property{Type: scalarTypes, MaxLength: maxConfig},
	}
	return value{schema: schema, read: func(d *decoder, n node) {
		*at = map[string]string{}
		d.entries(n, func(name string, keyNode, value node) {
			ok := d.text(value, `write a text, "" for an empty one`)
			switch err := CheckWord(name); {
			case err != nil:
				d.bad(keyNode, err.Error(), "write "+WordRule)
			case ok && len(value.Value) > maxConfig:
				d.wrong(value, fmt.Sprintf("has %d bytes", len(value.Value)),
					fmt.Sprintf("write at most %d, or grant a file", maxConfig))
			case ok:
				(*at)[name] = value.Value
			}
		})
	}}
}

// toValue describes the absolute path at which tasks find a file.
func toValue(at *string) value {
	const remedy = "write one without . and .. between its slashes, such as /data/model.bin"
	return value{schema: stringProperty(toPattern, "/data/model.bin"), read: func(d *decoder, n node) {
		switch name, absolute := strings.CutPrefix(n.Value, "/"); {
		case !d.text(n, remedy):
		case !absolute || !isPath(name):
			d.bad(n, "is not an absolute and clean path", remedy)
		case n.Value == checkpoint || strings.HasPrefix(n.Value, checkpoint+"/"):
			d.wrong(n, Quote(checkpoint)+" is where the host puts the checkpoint of a task",
				"choose another path, such as /data"+Shorten(n.Value))
		default:
			*at = n.Value
		}
	}}
}

func (d *decoder) name(n node) {
	if d.text(n, "write name: "+d.plugin) && n.Value != d.plugin {
		d.bad(n, "is not the file's name", fmt.Sprintf("write name: %s, or rename the two files to %s%s and %s%s",
			d.plugin, Shorten(n.Value), ModuleSuffix, Shorten(n.Value), Suffix))
	}
}

// names reads a list of at most limit names, and reports duplicates. check reports a wrong name, and returns false for
// it.
func (d *decoder) names(n node, limit int, example, verb string, check func(at node) bool) (names []string) {
	d.list(n, limit, example, verb, func(at node) {
		switch {
		case !check(at):
		case slices.Contains(names, at.Value):
			d.twice(at, at.Value)
		default:
			names = append(names, at.Value)
		}
	})
	return names
}

// patternsValue describes a list of names that a plugin is granted, each with at most one * for any text. empty is the
// remedy if the list is empty.
func patternsValue(at *[]string, empty, example string, examples ...any) value {
	return value{
		schema: listProperty(maxGrants, textProperty(queuePattern, examples...)).names(1),
		read: func(d *decoder, n node) {
			d.notEmpty(n, empty)
			*at = d.names(n, maxGrants, example, "grant", d.wordPattern)
		},
	}
}

// notEmpty reports an empty list.
func (d *decoder) notEmpty(n node, remedy string) {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		d.wrong(n, "is empty", remedy)
	}
}

func (d *decoder) env(n node) map[string]string {
	env := map[string]string{}
	d.entries(n, func(name string, keyNode, value node) {
		ok := d.text(value, `write a text, "" for an empty one`)
		switch {
		case !isVariable(name):
			d.bad(keyNode, "is not a variable name", variableRule)
		case strings.HasPrefix(name, runtime.ReservedEnv):
			d.wrong(keyNode, "variables that begin with "+runtime.ReservedEnv+" are set by the host", "choose another name")
		case ok && strings.ContainsRune(value.Value, 0):
			d.wrong(value, "has a zero byte", "remove it")
		case ok:
			env[name] = value.Value
		}
	})
	return env
}

func (d *decoder) hosts(n node) (grants []egress.Grant) {
	d.list(n, maxGrants, `[{host: "https://api.example.com", methods: [GET]}]`, "grant", func(at node) {
		var host string
		var methods []string
		before := len(d.problems)
		d.entry(at, hostKeys(&host, &methods))
		if len(d.problems) > before {
			return
		}
		grant, err := egress.ParseGrant(host, methods)
		if err != nil {
			what, remedy := cutRemedy(err)
			d.wrong(at, what, remedy)
			return
		}
		grants = append(grants, grant)
	})
	return grants
}

func (d *decoder) buckets(n node) (grants []KVGrant) {
	d.list(n, maxGrants, "[{bucket: NAME, access: rw}]", "grant", func(at node) {
		grant := KVGrant{Quota: defaultQuota}
		d.entry(at, grant.keys(d.plugin))
		switch bucket, there := d.values[at.path+".bucket"]; {
		case !there: // reported already
		case d.ceiling && !d.pattern(bucket):
		case slices.ContainsFunc(grants, func(g KVGrant) bool { return g.Bucket == grant.Bucket }):
			d.twice(at, grant.Bucket)
		default:
			grants = append(grants, grant)
		}
	})
	return grants
}

func (d *decoder) secrets(n node) []string {
	return d.names(n, maxGrants, "[api_key]", "grant", func(at node) bool {
		switch {
		case !d.text(at, "write a name such as api_key"), d.ceiling && !d.pattern(at):
		case !isSecret(at.Value) && !(d.ceiling && isSecret(strings.Replace(at.Value, wildcard, "_", 1))):
			d.bad(at, "is not a secret name", secretRule)
		case strings.HasPrefix(at.Value, DatabaseSecret):
			d.bad(at, "is the URL of a database, which no handler may read",
				"write sql: [{database: "+Shorten(strings.TrimPrefix(at.Value, DatabaseSecret))+"}] instead")
		case at.Value == PayloadKeysSecret:
			d.bad(at, "has the keys of the tenant's payloads, which no handler may read", "remove it")
		default:
			return true
		}
		return false
	})
}

func (d *decoder) enqueue(n node) *EnqueueGrant {
	grant := &EnqueueGrant{After: afterComplete, Depth: defaultDepth, Tasks: defaultTasks, Bytes: defaultBytes}
	d.entry(n, grant.keys())
	if grant.Tasks > defaultTasks && !grant.AfterCall() {
		d.wrong(d.values[n.path+".tasks"], fmt.Sprintf("%d tasks cannot come with one completion", grant.Tasks),
			fmt.Sprintf("write at most %d, or after: call", defaultTasks))
	}
	return grant
}

func (d *decoder) files(n node) (grants []FileGrant) {
	if n.Kind == yaml.SequenceNode && len(n.Content) > maxGranted {
		d.wrong(n, fmt.Sprintf("grants %d files", len(n.Content)), fmt.Sprintf("grant at most %d", maxGranted))
		return nil
	}
	places := map[string]node{} // the node of each To
	d.list(n, maxGranted, "[{from: model.bin, to: /data/model.bin}]", "grant", func(at node) {
		var f FileGrant
		d.entry(at, f.keys())
		to := d.values[at.path+".to"]
		if first, twice := places[f.To]; twice {
			d.wrong(to, fmt.Sprintf("%s is in %s already", Quote(f.To), first.path), "choose another path")
		} else if f.To != "" {
			places[f.To] = to
		}
		grants = append(grants, f)
	})
	for _, grant := range grants {
		for above := parentOf(grant.To); above != ""; above = parentOf(above) {
			if file, isFile := places[above]; isFile {
				d.wrong(places[grant.To], fmt.Sprintf("%s is below the file %s of %s", Quote(grant.To), Quote(above), file.path),
					"choose another path")
				break
			}
		}
	}
	return grants
}

// parentOf returns the folder of an absolute path; "" for a path in the root.
func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

func (d *decoder) tests(n node) (tests []Test) {
	d.list(n, maxTests, "[{input: a.jpg, output: a.out}]", "write", func(at node) {
		var test Test
		d.entry(at, test.keys())
		if test.Output != "" && (test.Exit != 0 || test.Error != "") {
			d.wrong(at, "has an output, and fails", "a task that fails has no result: remove output, or exit and error")
		}
		if test.Input != "" && test.Parameters != nil {
			d.wrong(at, "has both input and parameters", "remove one of them: input names a file, parameters is the text itself")
		}
		test.Name = cmp.Or(test.Name, test.Input, strconv.Itoa(len(tests)+1))
		tests = append(tests, test)
	})
	return tests
}

func (d *decoder) dependencies(n node) (all []Dependency) {
	d.list(n, maxTests, "[{id: part-1, result: part-1.out}]", "write", func(at node) {
		var one Dependency
		d.entry(at, one.keys())
		all = append(all, one)
	})
	return all
}

func (d *decoder) answers(n node) []Answer {
	all := []Answer{} // not nil: an empty list answers no request
	d.list(n, maxTests, "[{method: GET, url: \"https://api.example.com\", body: text}]", "write", func(at node) {
		one := Answer{Status: 200}
		d.entry(at, one.keys())
		all = append(all, one)
	})
	return all
}

// filledBuckets reports buckets that a test fills although the plugin may not use them.
func (d *decoder) filledBuckets(m *Manifest) {
	if d.troubled("capabilities") { // the grant may be there, misspelled
		return
	}
	for i, test := range m.Tests {
		for _, bucket := range slices.Sorted(maps.Keys(test.KV)) {
			if !slices.ContainsFunc(m.Capabilities.KV, func(g KVGrant) bool { return g.Bucket == bucket }) {
				d.wrong(d.values[fmt.Sprintf("tests[%d].kv", i)], "bucket "+Quote(bucket)+" is not granted",
					fmt.Sprintf("add capabilities: {kv: [{bucket: %s, access: rw}]}", Quote(bucket)))
			}
		}
	}
}

// preparedDatabases reports databases that a test prepares although the plugin may not use them.
func (d *decoder) preparedDatabases(m *Manifest) {
	for i, test := range m.Tests {
		for _, name := range slices.Sorted(maps.Keys(test.Database)) {
			if m.Capabilities.database(name) == nil {
				d.wrong(d.values[fmt.Sprintf("tests[%d].database", i)], "database "+Quote(name)+" is not granted",
					fmt.Sprintf("add capabilities: {sql: [{database: %s, access: rw}]}", Quote(name)))
			}
		}
	}
}

// together checks keys against each other, as far as each of them is valid by itself.
func (d *decoder) together(m *Manifest) {
	d.reserved(m)
	d.filledBuckets(m)
	d.preparedDatabases(m)
	d.ownSubscriptions(m)
	if n, ok := d.values["dead"]; ok && m.Dead != "" && slices.Contains(m.Queues, m.Dead) {
		d.wrong(n, Quote(m.Dead)+" is a queue that the plugin serves itself",
			"name another queue, such as "+Shorten(m.Dead)+".dead")
	}
	d.ownSchedules(m)
	d.pauses(m)
	for i, test := range m.Tests {
		if n, ok := d.values[fmt.Sprintf("tests[%d].queue", i)]; ok && test.Queue != "" &&
			!slices.Contains(m.Queues, test.Queue) {
			d.wrong(n, Quote(test.Queue)+" is no queue that the plugin serves",
				"name one of "+strings.Join(m.Queues, ", ")+", or add it to queues")
		}
	}
	n, ok := d.values["retry"]
	if !ok || n.Kind != yaml.MappingNode || d.troubled("retry") {
		return
	}
	if _, limited := d.values["retry.max_attempts"]; !limited {
		m.Retry.MaxAttempts = Unlimited
		if _, ends := d.values["retry.max_age"]; !ends {
			d.wrong(n, "has neither max_attempts nor max_age, so tasks would be retried forever",
				"write max_attempts, a number or unlimited, or max_age, a duration such as 24h")
		}
	}
	low, high := m.Retry.Min, m.Retry.Max
	minNode, hasMin := d.values["retry.min"]
	maxNode, hasMax := d.values["retry.max"]
	switch {
	case hasMin && low == 0 || hasMax && high == 0: // reported already
	case hasMin && hasMax && low > high:
		d.bad(minNode, "is more than retry.max, which is "+Shorten(maxNode.Value), "write a min that is at most max")
	case hasMin && !hasMax && low > longestRetry:
		d.bad(minNode, "is more than retry.max, which is 12h if it is left out", "write a smaller min, or a max")
	case hasMax && !hasMin && high < shortestRetry:
		d.bad(maxNode, "is less than retry.min, which is 1s if it is left out", "write a larger max, or a min")
	}
}
