package plugins

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
)

// KVGrant is a bucket of the tenant's key-value store that a handler may use.
type KVGrant struct {
	// Bucket is its name.
	Bucket string
	// Write tells whether it may be changed as well.
	Write bool
	// Quota is how many bytes of keys and values it may hold when this plugin writes.
	Quota int64
}

// What a manifest may grant at most, and what holds where it says nothing.
const (
	maxGrants    = 100
	maxConfig    = 64 << 10 // bytes of one value
	defaultQuota = 10 << 20
	maxQuota     = 1 << 40
)

// The words of a bucket's access.
const (
	accessRead  = "r"
	accessWrite = "rw"
)

// list calls each for every entry of a list of grants.
func (d *decoder) list(n node, example string, each func(at node)) {
	d.listOf(n, maxGrants, example, "grant", each)
}

// listOf calls each for every entry of a list that may have so many; verb is what one does with them.
func (d *decoder) listOf(n node, most int, example, verb string, each func(at node)) {
	switch {
	case n.Kind != yaml.SequenceNode:
		d.wrong(n, "is "+kindOf(n), "write a list, such as "+example)
	case len(n.Content) > most:
		d.wrong(n, fmt.Sprintf("has %d entries", len(n.Content)), fmt.Sprintf("%s at most %d", verb, most))
	default:
		for i, item := range n.Content {
			each(node{resolve(item), fmt.Sprintf("%s[%d]", n.path, i)})
		}
	}
}

// The keys that have entries with keys of their own.
const (
	httpField    = "capabilities.http"
	kvField      = "capabilities.kv"
	enqueueField = "capabilities.enqueue"
	testsField   = "tests"
)

// entryKeys are the keys of such an entry, by the path of the key that has it.
var entryKeys = map[string][]string{
	httpField:    {"host", "methods"},
	kvField:      {"bucket", "access", "quota"},
	enqueueField: {"queues", "after", "depth", "tasks", "bytes"},
	filesField:   {"from", "to"},
	secretsField: {"env", "file", "value"},
	testsField:   {"name", "input", "output", "exit", "error"},
}

// entry calls each for every key of an entry that such entries may have, once.
func (d *decoder) entry(n node, field string, each func(key string, value node)) {
	known := entryKeys[field]
	d.entries(n, func(key string, keyNode, value node) {
		if slices.Contains(known, key) {
			each(key, value)
			return
		}
		what, last := "unknown key "+quote(key), len(known)-1
		if d.discreet && field == secretsField {
			what = "has an unknown key" // which may be a secret in the wrong place
		}
		d.wrong(node{keyNode.Node, n.path}, what, "an entry has "+strings.Join(known[:last], ", ")+" and "+known[last])
	})
}

// has tells whether a mapping has a key.
func has(n node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if resolve(n.Content[i]).Value == key {
			return true
		}
	}
	return false
}

// buckets reads capabilities.kv.
func (d *decoder) buckets(n node) (grants []KVGrant) {
	d.list(n, "[{bucket: NAME, access: rw}]", func(at node) {
		grant := KVGrant{Quota: defaultQuota}
		d.entry(at, kvField, func(key string, value node) {
			switch key {
			case "bucket":
				grant.Bucket, _ = d.word(value)
			case "access":
				grant.Write = d.choice(value, accessRead, accessWrite) == accessWrite
			case "quota":
				grant.Quota = d.size(value, 1, maxQuota)
			}
		})
		switch {
		case at.Kind != yaml.MappingNode:
		case !has(at, "bucket"):
			d.wrong(at, "has no bucket", "write its name, such as bucket: "+d.plugin)
		case d.ceiling && !d.pattern(at, grant.Bucket):
		case slices.ContainsFunc(grants, func(g KVGrant) bool { return g.Bucket == grant.Bucket }):
			d.wrong(at, quote(grant.Bucket)+" stands in the list twice", "name it once")
		default:
			grants = append(grants, grant)
		}
	})
	return grants
}

// hosts reads capabilities.http.
func (d *decoder) hosts(n node) (grants []egress.Grant) {
	d.list(n, `[{host: "https://api.example.com", methods: [GET]}]`, func(at node) {
		var host string
		var methods []string
		before := len(d.problems)
		d.entry(at, httpField, func(key string, value node) {
			switch key {
			case "host":
				host, _ = d.text(value, "https:// and a name")
			case "methods":
				d.list(value, "[GET, POST]", func(method node) {
					if text, ok := d.text(method, "a method such as GET"); ok {
						methods = append(methods, text)
					}
				})
			}
		})
		if len(d.problems) > before {
			return
		}
		grant, err := egress.ParseGrant(host, methods)
		if err != nil {
			text := err.Error()
			end := strings.LastIndex(text, ": ")
			d.wrong(at, text[:end], text[end+2:])
			return
		}
		grants = append(grants, grant)
	})
	return grants
}

// secrets reads capabilities.secrets.
func (d *decoder) secrets(n node) (names []string) {
	d.list(n, "[api_key]", func(at node) {
		name, ok := d.text(at, "a name such as api_key")
		switch {
		case !ok:
		case d.ceiling && !d.pattern(at, name):
		case !isSecret(name) && !(d.ceiling && isSecret(strings.Replace(name, wildcard, "_", 1))):
			d.wrong(at, quote(name)+" is no name of a secret", secretRule)
		case slices.Contains(names, name):
			d.wrong(at, quote(name)+" stands in the list twice", "name it once")
		default:
			names = append(names, name)
		}
	})
	return names
}

const secretRule = "write letters, digits, _, - and ., not beginning with a dot"

// isSecret holds the names of secrets to what is a file's name everywhere and no hidden one.
func isSecret(name string) bool {
	return name != "" && name[0] != '.' && isVariable("_"+strings.Map(func(r rune) rune {
		if r == '-' || r == '.' {
			return '_'
		}
		return r
	}, name))
}

// config reads the section of that name.
func (d *decoder) config(n node) map[string]string {
	config := map[string]string{}
	d.entries(n, func(key string, keyNode, value node) {
		text, ok := d.text(value, `a text, "" for an empty one`)
		switch err := checkWord(key); {
		case err != nil:
			d.wrong(keyNode, quote(key)+" "+err.Error(), "write "+wordRule)
		case len(text) > maxConfig:
			d.wrong(value, fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("write at most %d, or grant a file", maxConfig))
		case ok:
			config[key] = text
		}
	})
	return config
}

// importGrant is what the functions of quern_v1 whose names begin alike need: the key of the manifest that gives it, how
// it is written, and whether capabilities have it.
type importGrant struct {
	prefix, field, example string
	by                     func(c Capabilities) bool
}

// importGrants are those of all functions that need one. The first whose prefix fits holds.
var importGrants = []importGrant{
	{"quern_v1.kv_get", kvField, "kv: [{bucket: NAME}]", anyBucket},
	{"quern_v1.kv_list", kvField, "kv: [{bucket: NAME}]", anyBucket},
	{"quern_v1.kv_", kvField, "kv: [{bucket: NAME, access: rw}]", anyWritable},
	{"quern_v1.http", httpField, `http: [{host: "https://HOST", methods: [GET]}]`, func(c Capabilities) bool { return len(c.HTTP) > 0 }},
	{"quern_v1.secret_get", "capabilities.secrets", "secrets: [NAME]", func(c Capabilities) bool { return len(c.Secrets) > 0 }},
	{"quern_v1.enqueue", enqueueField, "enqueue: {queues: [NAME]}", func(c Capabilities) bool { return c.Enqueue != nil }},
}

func anyBucket(c Capabilities) bool { return len(c.KV) > 0 }

func anyWritable(c Capabilities) bool {
	return slices.ContainsFunc(c.KV, func(g KVGrant) bool { return g.Write })
}

// importGrantOf finds the grant that an import needs.
func importGrantOf(name string) (g importGrant, needed bool) {
	i := slices.IndexFunc(importGrants, func(g importGrant) bool { return strings.HasPrefix(name, g.prefix) })
	if i < 0 {
		return importGrant{}, false
	}
	return importGrants[i], true
}

// lacks lists what a module imports and the manifest does not grant.
func (m Manifest) lacks(info runtime.Info) (problems []Problem) {
	for _, name := range info.Imports {
		if g, needed := importGrantOf(name); needed && !g.by(m.Capabilities) {
			problems = append(problems, Problem{
				Field: g.field, What: "does not grant what the module imports, " + name,
				Remedy: "add capabilities: {" + g.example + "}, or build the module without it",
			})
		}
	}
	return problems
}

// lacks lists what a module imports and the manifest grants, and of which the ceiling leaves nothing.
func (t *Terms) lacks(info runtime.Info) (problems []Problem) {
	for _, name := range info.Imports {
		g, needed := importGrantOf(name)
		if !needed || !g.by(t.asked) || g.by(t.Capabilities) {
			continue
		}
		example := g.example
		if g.field == enqueueField && t.asked.Enqueue.AfterCall {
			example = `enqueue: {queues: [NAME], after: call}`
		}
		problems = append(problems, Problem{
			Field: g.field, What: "grants what the module imports, " + name + ", and the host does not",
			Remedy: t.place + " would have to say: capabilities: {" + example + "}",
		})
	}
	return problems
}
