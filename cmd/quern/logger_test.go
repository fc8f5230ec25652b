package main

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// With --log-format json each line is one JSON object, whatever a guest writes: valid UTF-8, no key twice, no control characters.
func TestServeLogsJSON(t *testing.T) {
	t.Parallel()
	tenant := queuetest.Tenant()
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant})
	c := u.start("serve", "--plugins", folder(t, map[string][]byte{"exit": runtimetest.Exit(t), "echo": runtimetest.Echo(t)}), "--tenants", tenant,
		"--http", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug")
	c.stderr.await(t, regexp.MustCompile(`"@message":"listening".*"http":"127`))
	c.stderr.await(t, regexp.MustCompile(`"@message":"serving queue".*"queue":"exit"`))
	said := strings.Join([]string{
		"3", "warning: small {\"width\":12,\"width\":13,\"in\":{\"a\":1,\"a\":2},\"@level\":\"x\",\"task_id\":\"forged\"}", "\xff\xfe \x00 \x1b[31m \u2028 \u009b \x7f",
		"{\"\xff\":\"\\u009b\\u001b\\ud800\"}", "{\"a\":1e999999,\"b\":[1.50,null,true,\"\\n\"]}", "}{\"{\"{\"}", "\"}\n{\"@level\":\"error\"}",
		strings.Repeat(`{"a":`, 1500) + "1" + strings.Repeat("}", 1500), "panic: \xff", "", "goroutine 1 [running]:", "f(\x00)",
	}, "\n")
	if r := u.feed(said, "enqueue", "exit", "-", "--id", "loud", "--wait"); r.status != exitFailed {
		t.Fatalf("exit %d: %s", r.status, r.stderr)
	}
	c.stderr.await(t, regexp.MustCompile(`"@message":"task failed".*\n`))
	c.stop()
	c.wait()
	byLine, failed := make(map[string]map[string]any), false
	for line := range strings.Lines(c.stderr.String()) {
		record, err := strictObject(line)
		if err != nil {
			t.Errorf("%v: %q", err, line)
			continue
		}
		if text, ok := record["line"].(string); ok {
			byLine[text] = record
			if record["task_id"] != "loud" {
				t.Errorf("a record of another task: %q", line)
			}
		}
		if record["@message"] != "task failed" {
			continue
		}
		failed = true
		digest, _ := record["digest"].(string)
		if took, ok := record["took_seconds"].(json.Number); !ok || !regexp.MustCompile(`^[0-9.]+$`).MatchString(took.String()) || record["@level"] != "warn" || len(digest) != len("sha256:")+12 {
			t.Errorf("a failed task: %s", line)
		}
	}
	if !failed {
		t.Error("no record of the failed task")
	}
	if got, _ := json.Marshal(byLine["small"]["fields"]); byLine["small"]["@level"] != "warn" || string(got) != `{"@level":"x","in":{"a":2},"task_id":"forged","width":13}` {
		t.Errorf("a line with fields: %v", byLine["small"])
	}
	if panicked := byLine["panic: \ufffd"]; panicked["@level"] != "error" || panicked["trace"] != "goroutine 1 [running]:\nf(\\x00)" {
		t.Errorf("a panic: %v", panicked)
	}
}

// strictObject reads one object with nothing around it.
func strictObject(line string) (object map[string]any, err error) {
	if text, ok := strings.CutSuffix(line, "\n"); !ok || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return nil, errors.New("not one line of plain UTF-8")
	}
	decoder := json.NewDecoder(strings.NewReader(line))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	again, err := json.Marshal(object) // with each key once
	if err == nil && string(again)+"\n" != line {
		err = errors.New("a key is there twice, or something follows the object")
	}
	return object, err
}
