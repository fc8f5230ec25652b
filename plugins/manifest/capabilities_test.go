package manifest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quern-project/quern/runtime/abi"
)

func TestParseGrants(t *testing.T) {
	t.Parallel()
	m, err := Parse("x.yaml", []byte(`
config: {size: 200x200, empty: "", number: 1.10}
capabilities:
  kv: [{bucket: thumbs, access: rw, quota: 1MiB}, {bucket: seen}]
  secrets: [api_key, tls.key-2]
  http: [{host: "https://api.example.com", methods: [GET]}, {host: "http://*.Example.com:8080", methods: [GET, POST]}]
  enqueue: {queues: [thumbnails.done, "mail.*"]}
tests:
- {input: a.jpg, output: out/a.jpg}
- {name: bad, input: b, exit: 65, dependencies: [{id: one, result: out/one}, {id: two}]}
- {error: no input, queue: x, attempt: 3, key: k, headers: {x-id: 7}}
- {http: [{method: GET, url: "https://api.example.com/a"}, {method: POST, url: "http://b", status: 404, headers: {A: b}, body: c}], kv: {seen: {a: 1}}}
- {http: []}
`))
	check(t, err)
	if got := fmt.Sprintf("%+v", *m.Capabilities.Enqueue); got != "{Queues:[thumbnails.done mail.*] After:complete Depth:16 Tasks:256 Bytes:16777216}" {
		t.Errorf("enqueue %s", got)
	}
	if got := fmt.Sprint(m.Tests); got != "[{a.jpg a.jpg [] out/a.jpg 0   0  map[] [] [] map[] map[]} {bad b []  65   0  map[] [{one out/one} {two }] [] map[] map[]} {3  []  0 no input x 3 k map[x-id:7] [] [] map[] map[]} "+
		"{4  []  0   0  map[] [] [{GET https://api.example.com/a 200 map[] } {POST http://b 404 map[A:b] c}] map[seen:map[a:1]] map[]} {5  []  0   0  map[] [] [] map[] map[]}]" {
		t.Errorf("tests %s", got)
	}
	if m.Tests[0].HTTP != nil || m.Tests[4].HTTP == nil {
		t.Error("no answers are not the same as none given")
	}
	if got := fmt.Sprint(m.Config); got != "map[empty: number:1.10 size:200x200]" {
		t.Errorf("config %s", got)
	}
	if got := fmt.Sprint(m.Capabilities.KV); got != "[{thumbs true 1048576} {seen false 10485760}]" {
		t.Errorf("buckets %s", got)
	}
	if got := fmt.Sprint(m.Capabilities.HTTP); got != `[{host: "https://api.example.com", methods: [GET]} {host: "http://*.example.com:8080", methods: [GET, POST]}]` {
		t.Errorf("hosts %s", got)
	}
	if got := fmt.Sprint(m.Capabilities.Secrets); got != "[api_key tls.key-2]" {
		t.Errorf("secrets %s", got)
	}
}

func TestParseGrantsWrong(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"tests: [{queue: other}]":                                                 `x.yaml:1: tests[0].queue: "other" is no queue that the plugin serves: name one of x, or add it to queues`,
		"tests: [{attempt: 0}]":                                                   `x.yaml:1: tests[0].attempt: "0" is not allowed: write a whole number, such as 2, of 1 or more`,
		"tests: [{headers: {X-ID: a}}]":                                           `x.yaml:1: tests[0].headers: header "X-ID" has capitals, which no header of a task has: write "x-id"`,
		"tests: [{attemp: 2}]":                                                    `x.yaml:1: tests[0]: unknown key "attemp": did you mean "attempt"?`,
		"tests: [{kv: {a: {b: c}}}]":                                              `x.yaml:1: tests[0].kv: bucket "a" is not granted: add capabilities: {kv: [{bucket: "a", access: rw}]}`,
		"tests: [{kv: {a: b}}]\ncapabilities: {kv: [{bucket: a}]}":                `x.yaml:1: tests[0].kv.a: expected a mapping, but it is a text: write its keys, or leave it out`,
		"tests: [{http: [{url: \"https://a\"}]}]":                                 `x.yaml:1: tests[0].http[0]: has no method: write the request's method, such as method: GET`,
		"tests: [{http: [{method: get, url: \"https://a\"}]}]":                    `x.yaml:1: tests[0].http[0].method: "get" has small letters: use GET`,
		"tests: [{http: [{method: GET, url: a.b}]}]":                              `x.yaml:1: tests[0].http[0].url: the URL does not begin with https:// or http://: write one such as https://api.example.com/users/1`,
		"tests: [{http: [{method: TRACE, url: \"https://a\"}]}]":                  `x.yaml:1: tests[0].http[0].method: "TRACE" is never sent: use another method`,
		"tests: [{http: [{method: GET, url: \"https://a/b c\"}]}]":                `x.yaml:1: tests[0].http[0].url: the URL has the byte 0x20: percent-encode it: write one such as https://api.example.com/users/1`,
		"tests: [{http: [{method: GET, url: \"https://a\", headers: {a b: c}}]}]": `x.yaml:1: tests[0].http[0].headers: header "a b": its name is no token of RFC 9110 §5.6.2: write one such as Content-Type: application/json`,
		"tests: [{http: [{method: GET, url: \"http://a\", status: 1}]}]":          `x.yaml:1: tests[0].http[0].status: "1" is not allowed: write a whole number from 200 to 599`,
		"config: [a]":                                                                 `x.yaml:1: config: expected a mapping, but it is a list: write its keys, such as config: {greeting: Hello}, or leave it out`,
		"config: {a b: c}":                                                            `x.yaml:1: config.a b: "a b" has the byte 0x20: write 1 to 128 printable ASCII characters without a space`,
		"config: {a: {b: c}}":                                                         `x.yaml:1: config.a: is a mapping: write a text, "" for an empty one`,
		"capabilities: {kv: thumbs}":                                                  `x.yaml:1: capabilities.kv: is a text: write a list, such as [{bucket: NAME, access: rw}]`,
		"capabilities: {kv: [thumbs]}":                                                `x.yaml:1: capabilities.kv[0]: expected a mapping, but it is a text: write its keys, such as kv: [{bucket: seen, access: rw}], or leave it out`,
		"capabilities: {kv: [{}]}":                                                    `x.yaml:1: capabilities.kv[0]: has no bucket: write its name, such as bucket: x`,
		"capabilities: {kv: [{bucket: a, x: b}]}":                                     `x.yaml:1: capabilities.kv[0]: unknown key "x": an entry has bucket, access and quota`,
		"capabilities: {kv: [{bucket: a, quota: 5}]}":                                 `x.yaml:1: capabilities.kv[0].quota: "5" has no unit: write a size from 1B to 1TiB, such as 16MiB`,
		"capabilities: {kv: [{bucket: a, access: w}]}":                                `x.yaml:1: capabilities.kv[0].access: "w" is not allowed: write r or rw`,
		"capabilities: {kv: [{bucket: a}, {bucket: a}]}":                              `x.yaml:1: capabilities.kv[1]: "a" is in the list twice: name it once`,
		"capabilities: {http: [{}]}":                                                  `x.yaml:1: capabilities.http[0]: host "": has no scheme: use one such as https://api.example.com`,
		"capabilities: {http: [{host: \"https://a\"}]}":                               `x.yaml:1: capabilities.http[0]: methods: there are none: list those that are granted, such as [GET]`,
		"capabilities: {http: [{host: \"https://a\", methods: GET}]}":                 `x.yaml:1: capabilities.http[0].methods: is a text: write a list, such as [GET, POST]`,
		"capabilities: {http: [{hosts: a}]}":                                          `x.yaml:1: capabilities.http[0]: unknown key "hosts": did you mean "host"?`,
		"capabilities: {secrets: [a, a]}":                                             `x.yaml:1: capabilities.secrets[1]: "a" is in the list twice: name it once`,
		"capabilities: {secrets: [../a]}":                                             `x.yaml:1: capabilities.secrets[0]: "../a" is not a secret name: write letters, digits, _, - and ., not beginning with a dot`,
		"capabilities: {secrets: [.a]}":                                               `x.yaml:1: capabilities.secrets[0]: ".a" is not a secret name: write letters, digits, _, - and ., not beginning with a dot`,
		"capabilities: {enqueue: [a]}":                                                `x.yaml:1: capabilities.enqueue: expected a mapping, but it is a list: write its keys, such as enqueue: {queues: [mail]}, or leave it out`,
		"capabilities: {enqueue: {}}":                                                 `x.yaml:1: capabilities.enqueue: has no queues: write to which queues tasks may go, such as queues: [thumbnails.done]`,
		"capabilities: {enqueue: {queues: []}}":                                       `x.yaml:1: capabilities.enqueue.queues: is empty: name one, such as thumbnails.done, or leave out capabilities.enqueue`,
		"capabilities: {publish: {topics: []}}":                                       `x.yaml:1: capabilities.publish.topics: is empty: name one, such as orders, or leave out capabilities.publish`,
		"capabilities: {enqueue: {queues: [a, a]}}":                                   `x.yaml:1: capabilities.enqueue.queues[1]: "a" is in the list twice: name it once`,
		"capabilities: {enqueue: {queues: [a b]}}":                                    `x.yaml:1: capabilities.enqueue.queues[0]: "a b" has the byte 0x20: write 1 to 128 printable ASCII characters without a space`,
		`capabilities: {enqueue: {queues: ["a*b*"]}}`:                                 `x.yaml:1: capabilities.enqueue.queues[0]: "a*b*" has more than one *: write a name, or one with a single * for any text, such as mail.*`,
		"capabilities: {enqueue: {queues: [a], after: end}}":                          `x.yaml:1: capabilities.enqueue.after: "end" is not allowed: write complete or call`,
		"capabilities: {enqueue: {queues: [a], depth: 1001}}":                         `x.yaml:1: capabilities.enqueue.depth: "1001" is not allowed: write a whole number from 1 to 1000, or leave the key out for 16`,
		"capabilities: {enqueue: {queues: [a], when: end}}":                           `x.yaml:1: capabilities.enqueue: unknown key "when": an entry has queues, after, depth, tasks and bytes`,
		"tests: {input: a}":                                                           `x.yaml:1: tests: is a mapping: write a list, such as [{input: a.jpg, output: a.out}]`,
		"tests: [{input: a, parameters: b}]":                                          `x.yaml:1: tests[0]: has both input and parameters: remove one of them: input names a file, parameters is the text itself`,
		"tests: [a]":                                                                  `x.yaml:1: tests[0]: expected a mapping, but it is a text: write its keys, such as tests: [{input: tests/a.json, output: tests/a.out}], or leave it out`,
		"tests: [{input: ../a}]":                                                      `x.yaml:1: tests[0].input: "../a" is not a path inside the folder of the manifest: write one without . and .. between its slashes, such as a.jpg or samples/a.jpg`,
		"tests: [{exit: ok}]":                                                         `x.yaml:1: tests[0].exit: "ok" is not allowed: write a whole number, such as 65, from -2147483648 to 2147483647`,
		"tests: [{output: a, exit: 1}]":                                               `x.yaml:1: tests[0]: has an output, and fails: a task that fails has no result: remove output, or exit and error`,
		"tests: [{status: 1}]":                                                        `x.yaml:1: tests[0]: unknown key "status": an entry has name, input, parameters, output, exit, error, queue, attempt, key, headers, dependencies, http, kv and database`,
		"tests: [{database: {shop: a.sql}}]":                                          `x.yaml:1: tests[0].database: database "shop" is not granted: add capabilities: {sql: [{database: "shop", access: rw}]}`,
		"tests: [{database: {a: ../b}}]\ncapabilities: {sql: [{database: a}]}":        `x.yaml:1: tests[0].database.a: "../b" is not a path inside the folder of the manifest: write one without . and .. between its slashes, such as schema.sql or tests/schema.sql`,
		"capabilities: {sql: [{}]}":                                                   `x.yaml:1: capabilities.sql[0]: has no database: write its name, such as database: shop`,
		"capabilities: {sql: [{database: a, access: rw}, {database: b, access: rw}]}": `x.yaml:1: capabilities.sql[1]: is the second database whose changes are committed with the completion of the task, and only one can be: write access: r or commit: call for the others`,
		"capabilities: {sql: [{database: a}, {database: a}]}":                         `x.yaml:1: capabilities.sql[1]: "a" is in the list twice: name it once`,
		"capabilities: {sql: [{database: a, timeout: 2h}]}":                           `x.yaml:1: capabilities.sql[0].timeout: "2h" is more than 1h: write a duration of at most 1h, such as 10s`,
		"capabilities: {sql: [{database: a, commit: later}]}":                         `x.yaml:1: capabilities.sql[0].commit: "later" is not allowed: write complete or call`,
		"capabilities: {sql: [{database: shop.47}]}":                                  `x.yaml:1: capabilities.sql[0].database: "shop.47" is not a database name: write 1 to 64 of A-Z, a-z, 0-9, - and _`,
		`capabilities: {sql: [{database: "*"}]}`:                                      `x.yaml:1: capabilities.sql[0].database: "*" is not a database name: write 1 to 64 of A-Z, a-z, 0-9, - and _`,
		"capabilities: {sql: [{database: ../shop}]}":                                  `x.yaml:1: capabilities.sql[0].database: "../shop" is not a database name: write 1 to 64 of A-Z, a-z, 0-9, - and _`,
		"capabilities: {secrets: [database.shop]}":                                    `x.yaml:1: capabilities.secrets[0]: "database.shop" is the URL of a database, which no handler may read: write sql: [{database: shop}] instead`,
		"tests: [{dependencies: [{result: a}]}]":                                      `x.yaml:1: tests[0].dependencies[0]: has no id: write the task's ID, such as id: part-1`,
	} {
		if _, err := Parse("x.yaml", []byte(data)); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", data, err, want)
		}
	}
}

// What a module imports and nobody grants is told with the line that grants it.
func TestDeniedImports(t *testing.T) {
	t.Parallel()
	all := []string{"wasi_snapshot_preview1.fd_write"}
	for _, f := range abi.Functions() {
		all = append(all, abi.ModuleName+"."+f.Name)
	}
	const manifest = `capabilities: {kv: [{bucket: a}, {bucket: b, access: rw}], secrets: [k], enqueue: {queues: [q]}, http: [{host: "https://a", methods: [GET]}], sql: [{database: a, access: rw, commit: call}]}`
	for i, tt := range []struct {
		manifest string
		imports  []string
		want     []string
	}{
		{"", []string{"quern_v1.log", "quern_v1.config_get", "quern_v1.checkpoint_save"}, nil},
		{"", all, []string{
			"kv_get, kv_list: imported, and denied to each task: add capabilities: {kv: [{bucket: NAME}]}",
			"kv_set, kv_delete, kv_increment, kv_swap: imported, and denied to each task: add capabilities: {kv: [{bucket: NAME, access: rw}]}",
			`http: imported, and denied to each task: add capabilities: {http: [{host: "https://HOST", methods: [GET]}]}`,
			"secret_get: imported, and denied to each task: add capabilities: {secrets: [NAME]}",
			"sql, sql_rollback: imported, and denied to each task: add capabilities: {sql: [{database: NAME}]}",
			"sql_commit, sql_step: imported, and denied to each task: add capabilities: {sql: [{database: NAME, access: rw, commit: call}]}",
			"enqueue: imported, and denied to each task: add capabilities: {enqueue: {queues: [NAME]}}",
		}},
		{manifest, all, nil},
		{"capabilities: {kv: [{bucket: a}]}", []string{"quern_v1.kv_get", "quern_v1.kv_swap"}, []string{
			"kv_swap: imported, and denied to each task: add capabilities: {kv: [{bucket: NAME, access: rw}]}",
		}},
	} {
		m, err := Parse("x.yaml", []byte("name: x\n"+tt.manifest))
		check(t, err)
		if got := m.Capabilities.Denied(tt.imports); !slices.Equal(got, tt.want) {
			t.Errorf("%d:\ngot  %q\nwant %q", i, got, tt.want)
		}
	}
}

// TestInlineParameters: a test has its parameters in the manifest, a mapping as JSON.
func TestInlineParameters(t *testing.T) {
	t.Parallel()
	m, err := Parse("x.yaml", []byte("tests: [{parameters: {items: [], n: 1.50}}, {parameters: text}, {parameters: \"\"}]"))
	check(t, err)
	if got := fmt.Sprintf("%s", [][]byte{m.Tests[0].Parameters, m.Tests[1].Parameters, m.Tests[2].Parameters}); got != `[{"items":[],"n":1.50} text ]` {
		t.Error(got)
	}
}
