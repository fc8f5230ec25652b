package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/units"
)

// The schema has the keys of a complete manifest, which the decoder takes, and no other, and describes each.
func TestSchemaHasTheDecodersKeys(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.yaml", []byte(completeManifest))
	check(t, err)
	var want []string
	var collect func(path string, value any)
	collect = func(path string, value any) {
		items, _ := value.([]any)
		for _, item := range items {
			collect(path, item)
		}
		all, _ := value.(map[string]any)
		for key, value := range all {
			own := strings.TrimPrefix(path+"."+key, ".")
			if !slices.Contains([]string{"config", "tests.headers", "tests.http.headers", "tests.kv", "tests.database"}, path) && !strings.HasPrefix(path, "tests.kv.") && path != "capabilities.env" && !strings.HasPrefix(path, "subscribe.filter.") && !slices.Contains(want, own) {
				want = append(want, own)
			}
			collect(own, value)
		}
	}
	collect("", parse(t, completeManifest))
	slices.Sort(want)
	var got []string
	var walk func(path string, schema map[string]any)
	walk = func(path string, schema map[string]any) {
		if items, ok := schema["items"].(map[string]any); ok {
			walk(path, items)
		}
		all, _ := schema["properties"].(map[string]any)
		if len(all) > 0 && schema["additionalProperties"] != false {
			t.Errorf("%q takes other keys", path)
		}
		for key, value := range all {
			property, own := value.(map[string]any), strings.TrimPrefix(path+"."+key, ".")
			if description, _ := property["description"].(string); !strings.HasSuffix(description, ".") {
				t.Errorf("%s is described as %q", own, description)
			}
			got = append(got, own)
			walk(own, property)
		}
	}
	walk("", readSchema(t))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the schema has\n%s\nthe decoder has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The manifests of the repository are right by the schema, too.
func TestSchemaTakesManifests(t *testing.T) {
	t.Parallel()
	manifests := map[string]string{"full": fullManifest, "complete": completeManifest}
	files, err := filepath.Glob("../../examples/*/*.yaml")
	check(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		check(t, err)
		manifests[file] = string(data)
	}
	for _, file := range []string{"../../cmd/quern/manual/manifest.md", "../../cmd/quern/manual/capabilities.md", "../../cmd/quern/manual/retries.md", "../../sdk/ABI.md"} {
		data, err := os.ReadFile(file)
		check(t, err)
		for i, block := range strings.Split(string(data), "```yaml\n")[1:] {
			manifests[fmt.Sprintf("%s %d", file, i)], _, _ = strings.Cut(block, "```")
		}
	}
	if len(manifests) < 12 {
		t.Fatalf("only %d manifests", len(manifests))
	}
	for name, text := range manifests {
		if wrong := validate(readSchema(t), parse(t, text), ""); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

// completeManifest has every key.
const completeManifest = `
name: x
version: 1.0.0
queues: [x]
limits: {memory: 64MiB, timeout: 1m, cpu: 1s, input: 1B, output: 1kB, log: 1KiB, record: 1MiB}
retry: {max_attempts: unlimited, backoff: linear, base: 1s, min: 1s, max: 1h, jitter: false, max_age: 7d, max_reschedules: 1}
concurrency: 1
max_running: 1
on_crash: fail
max_crashes: 1
breaker: {failures: 10, pause: 30s, max_pause: 1h}
record: sampled
dead: x.dead
pin: attempt
entry: count_vowels
warm: {input: a/b.json}
config: {size: 1, other: text}
capabilities:
  http: [{host: "https://*.example.com:8443", methods: [GET, POST]}]
  kv: [{bucket: a, access: rw, quota: 1MiB}]
  secrets: [a_b-c.d]
  sql: [{database: a, access: rw, commit: call, rows: 10, bytes: 1MiB, timeout: 1s, transaction: 1m}]
  enqueue: {queues: ["mail.*"], after: call, depth: 3, tasks: 1000, bytes: 1MiB}
  publish: {topics: [orders, "bills.*"], after: call}
  env: {A: 1}
  files: [{from: a, to: /a/b}]
subscribe: [{topic: "orders.*", queue: x, filter: {attributes: {type: "made.*"}, data: {/total: 12}}, fair_key: a, fair_weight: 2, concurrency_key: b, max_concurrent: 3}]
schedule: [{name: a, cron: "@daily", timezone: Europe/Berlin, queue: x, parameters: text, missed: all, max_missed: 3, window: 1h, overlap: queue, priority: 0, timeout: 1m, max_attempts: 2, max_age: 1h, fair_key: a, fair_weight: 2, concurrency_key: b, max_concurrent: 3}]
tests: [{name: a b, input: a, output: b/c, exit: 0}, {parameters: text}, {error: no, exit: -1, queue: x, attempt: 2, key: k, headers: {x-id: a}, dependencies: [{id: a, result: b/c}, {id: b}], http: [{method: GET, url: "https://a/b", status: 404, headers: {A: b}, body: text}], kv: {a: {one: "1"}}, database: {a: tests/a.sql}}]
`

// What is wrong by itself is wrong by the schema.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"- name", "queue: [a]", "limits: {memroy: 1MiB}", "capabilities: {files: {}}", "tests: {}",
		"name: [x]", "name:", "name: a b", "queues: x", "queues: []", "queues: [a, a]", "queues: [a b]", "queues: [~]",
		"limits: 64MiB", "limits:", "limits: {memory: 64}", "limits: {memory: 64mb}", "limits: {memory: }",
		"limits: {timeout: 30}", "limits: {timeout: soon}", "limits: {cpu: -1s}",
		"concurrency: 0", "concurrency: 1.5", "concurrency: 65537", "concurrency: [1]", "concurrency: many",
		"retry: {}", "retry: {max_attempts: 0}", "retry: {max_attempts: never}", "retry: {max_attempts: 1, backoff: fast}",
		"retry: {max_attempts: 1, jitter: 1}", "on_crash: retry", "breaker: {}", "breaker: 3", "breaker: {failures: 0}", "breaker: {failures: 1, pause: 5}", "pin: release", "warm: {}", "warm: {output: a}", "warm: {input: /a}",
		"config: [a]", "config: {a b: c}", "config: {a: {b: c}}", "config: {a: }",
		"capabilities: {kv: [thumbs]}", "capabilities: {kv: [{}]}", "capabilities: {kv: [{bucket: a, access: w}]}",
		"capabilities: {kv: [{bucket: a, quota: 5}]}", "capabilities: {http: [{}]}", `capabilities: {http: [{host: "https://a"}]}`,
		`capabilities: {http: [{host: "https://a/b", methods: [GET]}]}`, `capabilities: {http: [{host: "https://a", methods: [get]}]}`,
		`capabilities: {http: [{host: "https://a", methods: []}]}`,
		"capabilities: {secrets: [.a]}", "capabilities: {secrets: [a, a]}", "capabilities: {enqueue: {}}", "capabilities: {enqueue: [a]}",
		"capabilities: {enqueue: {queues: []}}", `capabilities: {enqueue: {queues: [""]}}`, `capabilities: {enqueue: {queues: ["*a*"]}}`, "capabilities: {enqueue: {queues: [a], after: all}}",
		"capabilities: {enqueue: {queues: [a], depth: 0}}", "capabilities: {enqueue: {queues: [a], tasks: 100001, after: call}}", "capabilities: {enqueue: {queues: [a], bytes: 5}}", "capabilities: {env: [A]}", "capabilities: {env: {TASK_ID: 1}}",
		"capabilities: {env: {A-B: 1}}", "capabilities: {env: {A: [1]}}", "capabilities: {files: [{from: a}]}",
		"capabilities: {files: [{from: a, to: b}]}", "tests: [a]", "tests: [{exit: no}]", "tests: [{outputs: a}]", "tests: [{input: /a}]",
		"tests: [{http: {}}]", "tests: [{http: [{}]}]", "tests: [{http: [{method: GET}]}]", `tests: [{http: [{method: get, url: "https://a"}]}]`,
		"tests: [{http: [{method: GET, url: a}]}]", `tests: [{http: [{method: GET, url: "https://a", status: 100}]}]`,
		`tests: [{http: [{method: GET, url: "https://a", headers: [a]}]}]`, "tests: [{kv: []}]", "tests: [{kv: {a: b}}]", "tests: [{kv: {a: {b: {}}}}]",
		"schedule: {}", "schedule: [{}]", `schedule: [{cron: ["@daily"]}]`, `schedule: [{cron: "@daily", missed: some}]`, `schedule: [{cron: "@daily", priority: 101}]`,
		`schedule: [{cron: "@daily", window: 5}]`, `schedule: [{cron: "@daily", name: "a b"}]`, `schedule: [{cron: "@daily", at: x}]`,
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil {
			t.Errorf("%q is a manifest", text)
		}
		if validate(readSchema(t), parse(t, text), "") == "" {
			t.Errorf("%q is right by the schema", text)
		}
	}
}

// The patterns take what is read.
func TestSchemaPatterns(t *testing.T) {
	t.Parallel()
	duration, size := regexp.MustCompile(durationPattern), regexp.MustCompile(sizePattern)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`([0-9]{1,2}d)?\+?([0-9]{0,2}\.?[0-9]{0,2}(ns|us|µs|μs|ms|s|m|h)){0,2}`),
			rapid.StringMatching(`[0-9]{1,3}(B|[kKMGT]?i?B)`),
		).Draw(t, "text")
		if d, err := units.ParseDuration(text); err == nil && d > 0 && !duration.MatchString(text) {
			t.Fatalf("%q is the duration %s", text, d)
		}
		if s, err := units.ParseSize(text); (err == nil) != size.MatchString(text) {
			t.Fatalf("%q is the size %d, %v", text, s, err)
		}
	})
	secret, variable := regexp.MustCompile(secretPattern), regexp.MustCompile(variablePattern)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_.-]{1,3}`), rapid.StringMatching(`[a-z]{125,130}`), rapid.String()).Draw(t, "name")
		if isSecret(name) != secret.MatchString(name) || isVariable(name) != variable.MatchString(name) {
			t.Fatalf("%q: secret %v, variable %v", name, isSecret(name), isVariable(name))
		}
	})
}

func readSchema(t testing.TB) (schema map[string]any) {
	t.Helper()
	check(t, json.Unmarshal(Schema(), &schema))
	return schema
}

// parse reads YAML as an editor does.
func parse(t testing.TB, text string) (value any) {
	t.Helper()
	check(t, yaml.Unmarshal([]byte(text), &value))
	return value
}

// validate tells what is wrong with a value by a schema, with the words of JSON Schema that Schema uses; an unknown one
// is wrong as well.
func validate(schema map[string]any, value any, path string) string {
	for word, rule := range schema {
		if wrong := validateWord(schema, word, rule, value, path); wrong != "" {
			return wrong
		}
	}
	return ""
}

func validateWord(schema map[string]any, word string, rule, value any, path string) string {
	fails := func(broken bool) string {
		if broken {
			return fmt.Sprintf("%s: %v is not %s %v", path, value, word, rule)
		}
		return ""
	}
	text, isText := value.(string)
	items, isList := value.([]any)
	object, isObject := value.(map[string]any)
	switch word {
	case "$schema", "title", "description", "default", "examples":
		return ""
	case "type":
		types, several := rule.([]any)
		if !several {
			types = []any{rule}
		}
		return fails(!slices.ContainsFunc(types, func(name any) bool { return isOf(name.(string), value) }))
	case "enum":
		return fails(!slices.Contains(rule.([]any), value))
	case "pattern":
		return fails(isText && !regexp.MustCompile(rule.(string)).MatchString(text))
	case "maxLength":
		return fails(isText && utf8.RuneCountInString(text) > int(rule.(float64)))
	case "minimum", "maximum":
		limit := big.NewFloat(rule.(float64))
		if n, ok := value.(int); ok {
			order := new(big.Float).SetInt64(int64(n)).Cmp(limit)
			return fails(word == "minimum" && order < 0 || word == "maximum" && order > 0)
		}
		return ""
	case "minItems":
		return fails(isList && len(items) < int(rule.(float64)))
	case "maxItems":
		return fails(isList && len(items) > int(rule.(float64)))
	case "uniqueItems":
		for i := range items {
			if slices.ContainsFunc(items[:i], func(other any) bool { return reflect.DeepEqual(other, items[i]) }) {
				return fails(true)
			}
		}
		return ""
	case "items":
		for i, item := range items {
			if wrong := validate(rule.(map[string]any), item, fmt.Sprintf("%s[%d]", path, i)); wrong != "" {
				return wrong
			}
		}
		return ""
	case "required":
		return fails(isObject && slices.ContainsFunc(rule.([]any), func(key any) bool { _, has := object[key.(string)]; return !has }))
	case "properties", "additionalProperties", "propertyNames":
		return validateKeys(schema, word, rule, object, path)
	case "anyOf":
		return fails(!slices.ContainsFunc(rule.([]any), func(one any) bool { return validate(one.(map[string]any), value, path) == "" }))
	case "not":
		return fails(validate(rule.(map[string]any), value, path) == "")
	}
	return "unknown word " + word
}

func validateKeys(schema map[string]any, word string, rule any, object map[string]any, path string) string {
	known, _ := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		property, has := known[key]
		wrong, own := "", path+"."+key
		switch {
		case word == "properties" && has:
			wrong = validate(property.(map[string]any), object[key], own)
		case word == "additionalProperties" && !has && rule == false:
			wrong = own + " is unknown"
		case word == "additionalProperties" && !has:
			wrong = validate(rule.(map[string]any), object[key], own)
		case word == "propertyNames":
			wrong = validate(rule.(map[string]any), key, own)
		}
		if wrong != "" {
			return wrong
		}
	}
	return ""
}

func isOf(name string, value any) bool {
	switch value.(type) {
	case map[string]any:
		return name == "object"
	case []any:
		return name == "array"
	case bool:
		return name == "boolean"
	case int:
		return name == "integer" || name == "number"
	case float64:
		return name == "number"
	case string, time.Time: // which YAML 1.2 does not know: editors take it for a text
		return name == "string"
	}
	return false
}
