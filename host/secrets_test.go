package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A handler that tells its secret in each way that there is tells its name.
func TestASecretIsHidden(t *testing.T) {
	t.Parallel()
	const value = "hunter2-and-more"
	secrets, tenant := t.TempDir(), queuetest.Tenant()
	if err := os.Mkdir(filepath.Join(secrets, tenant), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, tenant, "api_key"), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	wasm := runtimetest.BuildCHandler(t, `
#include "quern.h"
#include <stdio.h>
static char kept[100], text[200];
QUERN_HANDLER int32_t handle(void) {
	char how;
	quern_input_read(0, &how, 1);
	int32_t size = quern_secret_get("api_key", 7);
	quern_result_read(0, kept, sizeof kept);
	quern_log(2, kept, size, 0, 0);
	int length = snprintf(text, sizeof text, "{\"key\":\"%s\"}", kept);
	quern_log(2, "fields", 6, text, length);
	quern_progress(0.5, kept, size);
	quern_kv_get(kept, size, "k", 1);
	quern_error_set(kept, size);
	fprintf(stderr, "stderr %s\n", kept);
	if (how == 't') __builtin_trap();
	return 1;
}`)
	n := start(t, settings{
		tenants: []string{tenant}, hclog: hclog.Trace,
		Config: Config{Services: guest.Config{Secrets: secrets}},
		guests: map[string][]byte{"telling": wasm},
		yaml:   map[string]string{"telling": "capabilities: {secrets: [api_key], kv: [{bucket: a}]}"},
	})
	for _, how := range []string{"t", "error"} {
		task := n.wait(n.enqueue("telling", how))
		if f := task.Failure(); !strings.Contains(f.Message+f.Stderr, "[secret api_key]") {
			t.Errorf("%s: %+v", how, f)
		}
		if task.Message != "[secret api_key]" {
			t.Errorf("progress %q", task.Message)
		}
	}
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := n.rdb.Keys(n.ctx, tenant+"*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	places := map[string]string{"the log": n.log.String(), "the metrics": fmt.Sprint(families)}
	for _, key := range keys {
		places[key] = content(t, n, key)
	}
	for place, text := range places {
		if strings.Contains(text, value) {
			t.Errorf("%s has the secret: %s", place, text)
		}
	}
}

// A secret whose file goes while the host runs is told once in its log, and again if it goes again.
func TestAMissingSecretIsToldOnce(t *testing.T) {
	t.Parallel()
	secrets, tenant := t.TempDir(), queuetest.Tenant()
	path := filepath.Join(secrets, tenant, "api_key")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		tenants: []string{tenant},
		Config:  Config{Services: guest.Config{Secrets: secrets}},
		guests: map[string][]byte{"asking": runtimetest.BuildCHandler(t, `
#include "quern.h"
QUERN_HANDLER int32_t handle(void) { return quern_secret_get("api_key", 7) < 0; }`)},
		yaml: map[string]string{"asking": "capabilities: {secrets: [api_key]}"},
	})
	for told := range 2 {
		if err := os.WriteFile(path, []byte("value"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.wait(n.enqueue("asking", ""))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			n.wait(n.enqueue("asking", ""))
		}
		if got := n.log.lines("a secret cannot be read"); got != told+1 {
			t.Errorf("told %d times, want %d:\n%s", got, told+1, n.log)
		}
	}
}

// tellsAll is a handler that tells its secret in every way in which a task says anything, and ends as its input says.
const tellsAll = `
#include "quern.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char kept[1000], text[8000], head[8100];
static int quoted(int32_t size) {
	int n = 0;
	for (int i = 0; i < size; i++) {
		unsigned char c = kept[i];
		n += c < ' ' ? sprintf(text + n, "\\u%04x", c) : sprintf(text + n, c == '"' || c == '\\' ? "\\%c" : "%c", c);
	}
	text[n] = 0;
	return n;
}
QUERN_HANDLER int32_t handle(void) {
	char how;
	quern_input_read(0, &how, 1);
	int32_t size = quern_secret_get("api_key", 7);
	quern_result_read(0, kept, sizeof kept);
	quern_log(2, kept, size, 0, 0);
	quern_log(4, kept, size, 0, 0);
	int length = quoted(size);
	quern_log(2, "fields", 6, head, snprintf(head, sizeof head, "{\"key\":\"%s\"}", text));
	quern_progress(0.5, kept, size);
	quern_kv_get(kept, size, "k", 1);
	quern_http(head, snprintf(head, sizeof head, "{\"method\":\"%s\",\"url\":\"https://a.example\"}", text), 0, 0);
	quern_http(head, snprintf(head, sizeof head, "{\"url\":\"https://%s\"}", text), 0, 0);
	quern_http(head, snprintf(head, sizeof head, "{\"url\":\"https://a.example\",\"headers\":{\"%s\":\"\"}}", text), 0, 0);
	quern_enqueue(kept, size, "", 0, "", 0);
	fprintf(stderr, "quern:progress=0.7 "); fwrite(kept, 1, size, stderr); fprintf(stderr, "\n");
	fwrite(kept, 1, size, stdout); printf("\n"); fflush(stdout);
	fprintf(stderr, "stderr: "); fwrite(kept, 1, size, stderr); fprintf(stderr, "\n");
	if (how != 'n') quern_error_set(kept, size);
	switch (how) {
	case 'c': return 0;
	case 'f': return 65;
	case 'l': return 75;
	case 't': __builtin_trap();
	case 'a': abort();
	case 'w': for (;;) quern_sleep(1000);
	case 'L': for (;;) { fwrite(kept, 1, size, stderr); fprintf(stderr, "\n"); }
	}
	return 1;
}`

// TestNoEndTellsASecret: whatever bytes a secret has, and however the task ends that tells it, no eight of them are in the
// host's log, in the task's, or in what Redis has of it.
func TestNoEndTellsASecret(t *testing.T) {
	t.Parallel()
	secrets, tenant := t.TempDir(), queuetest.Tenant()
	if err := os.Mkdir(filepath.Join(secrets, tenant), 0o700); err != nil {
		t.Fatal(err)
	}
	n := start(t, settings{
		tenants: []string{tenant}, hclog: hclog.Trace,
		Config: Config{Services: guest.Config{Secrets: secrets, HTTP: egress.New(egress.Config{})}},
		guests: map[string][]byte{"telling": runtimetest.BuildCHandler(t, tellsAll)},
		yaml: map[string]string{"telling": `limits: {timeout: 300ms, log: 64KiB}
retry: {max_attempts: 2, base: 1ms, min: 1ms, max_reschedules: 1}
capabilities:
  secrets: [api_key]
  kv: [{bucket: a}]
  http: [{host: "https://a.example", methods: [GET]}]
  enqueue: {queues: [telling]}
`},
	})
	odd := rapid.SampledFrom([]string{"\\", "\"", "\n", "\r\n", "\r", "\a", "\b", "\x00", "\x7f", "\xff", "\xc3", "é", "🔒", "\u2028", "\ufffd", "/", "<", "'"})
	piece := rapid.OneOf(odd, rapid.StringMatching(`[!-~]{1,6}`), rapid.Map(rapid.Byte(), func(b byte) string { return string([]byte{b}) }))
	rapid.Check(t, func(t *rapid.T) {
		value := strings.Join(rapid.SliceOfN(piece, 8, 60).Draw(t, "secret"), "")
		how := rapid.SampledFrom([]string{"c", "f", "l", "t", "a", "w", "L", "n", "x"}).Draw(t, "how")
		if err := os.WriteFile(filepath.Join(secrets, tenant, "api_key"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		id := n.enqueue("telling", how)
		n.wait(id)
		places := map[string]string{"the host's log": strings.Join(n.log.linesOf("task_id="+id), "")}
		keys, err := n.rdb.Keys(n.ctx, tenant+"*"+id+"*").Result()
		if err != nil || len(keys) == 0 {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, key := range keys {
			places[key] = content(n.t.(*testing.T), n, key)
		}
		for place, text := range places {
			if form := shown(value, text); form != "" {
				t.Fatalf("%s shows %q of %q:\n%s", place, form, value, text)
			}
		}
		said := n.taskLog(id)
		if len(said) < 5 {
			t.Fatalf("the log has %d lines", len(said))
		}
		short := strings.Split(value, "\n")
		for _, line := range said {
			text := strings.TrimSpace(strings.TrimPrefix(line.Text, "stderr: "))
			if len(short) > 1 && len(text) > 2 && slices.ContainsFunc(short, func(s string) bool { return strings.TrimSpace(s) == text }) {
				t.Fatalf("the log has a line of %q: %q", value, line.Text)
			}
		}
	})
}

// shown is a piece of a secret that stands in a text, as Go, JSON or a log write it; "" for none. Backslashes do not count.
func shown(value, text string) string {
	text = strings.ReplaceAll(text, "[secret api_key]", "\x00")
	for i := 0; i+8 <= len(value) && len(value)-8*strings.Count(value, `\`) > 16; i++ {
		piece := value[i : i+8]
		if strings.TrimSpace(piece) != piece || strings.ContainsFunc(piece, func(r rune) bool { return r == utf8.RuneError }) {
			continue
		}
		quoted, _ := json.Marshal(piece)
		for _, form := range []string{piece, redact.Escape([]byte(piece)), strings.Trim(strconv.Quote(piece), `"`), strings.Trim(string(quoted), `"`)} {
			if strings.Contains(text, form) {
				return form
			}
		}
	}
	return ""
}

// A secret that a task has in its memory is nowhere else, however the task ends: not in Redis, not in the host's log, not
// in what it counts.
func TestASecretStaysInItsTask(t *testing.T) {
	t.Parallel()
	const value = "hunter2-and-more"
	secrets := t.TempDir()
	tenant := queuetest.Tenant()
	if err := os.Mkdir(filepath.Join(secrets, tenant), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, tenant, "api_key"), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	// It reads the secret into its memory and onto its stack, and ends as its input says.
	wasm := runtimetest.BuildCHandler(t, `
#include "quern.h"
#include <stdlib.h>
static char kept[100];
static int32_t deep(int32_t n, volatile const char *copy) {
	volatile char own[100];
	for (int i = 0; i < 100; i++) own[i] = copy[i];
	return n == 0 ? 0 : own[0] + deep(n + 1, own);
}
QUERN_HANDLER int32_t handle(void) {
	char how;
	quern_input_read(0, &how, 1);
	if (quern_secret_get("api_key", 7) != sizeof "`+value+`" - 1) return 3;
	quern_result_read(0, kept, sizeof kept);
	switch (how) {
	case 'c': return 0;
	case 'f': return 65;
	case 'l': return 75;
	case 't': __builtin_trap();
	case 'a': abort();
	case 's': return deep(1, kept);
	case 'w': for (;;) quern_sleep(1000);
	case 'd': quern_kv_get("others", 6, kept, sizeof "`+value+`" - 1);
	}
	return 1;
}`)
	n := start(t, settings{
		tenants: []string{tenant}, hclog: hclog.Trace,
		Config: Config{Services: guest.Config{Secrets: secrets}},
		guests: map[string][]byte{"keeping": wasm},
		yaml: map[string]string{"keeping": `limits: {timeout: 3s}
retry: {max_attempts: 2, base: 10ms, min: 10ms, max_reschedules: 1}
capabilities: {secrets: [api_key], kv: [{bucket: a}]}
`},
	})
	for how, want := range map[string]queue.Status{
		"c": queue.Complete, "f": queue.Failed, "l": queue.Failed, "t": queue.Failed, "a": queue.Failed, "s": queue.Failed, "w": queue.Failed,
		"d": queue.Failed, "other": queue.Failed,
	} {
		task := n.wait(n.enqueue("keeping", how))
		if code := task.Failure().ExitCode; task.Status != want || code != nil && *code == 3 {
			t.Errorf("%s: %s, %+v", how, task.Status, task.Failure())
		}
	}
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{"the log": n.log.String(), "the metrics": fmt.Sprint(families), "what the host says of itself": fmt.Sprint(n.about(n.tenants[tenant]))}
	keys, err := n.rdb.Keys(n.ctx, tenant+"*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for _, key := range keys {
		places[key] = content(t, n, key)
	}
	for place, text := range places {
		if text == "" {
			t.Errorf("%s is empty", place)
		}
		if strings.Contains(text, value) || strings.Contains(text, value[:8]) || strings.Contains(text, value[8:]) {
			t.Errorf("%s has the secret: %s", place, text)
		}
	}
}

// content is all that a key of Redis holds.
func content(t *testing.T, n *node, key string) string {
	t.Helper()
	kind, err := n.rdb.Type(n.ctx, key).Result()
	var value any
	if err == nil {
		switch kind {
		case "string":
			value, err = n.rdb.Get(n.ctx, key).Result()
		case "hash":
			value, err = n.rdb.HGetAll(n.ctx, key).Result()
		case "list":
			value, err = n.rdb.LRange(n.ctx, key, 0, -1).Result()
		case "set":
			value, err = n.rdb.SMembers(n.ctx, key).Result()
		case "zset":
			value, err = n.rdb.ZRange(n.ctx, key, 0, -1).Result()
		case "stream":
			value, err = n.rdb.XRange(n.ctx, key, "-", "+").Result()
		case "none": // it has expired
			value = kind
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	if errors.Is(err, redis.Nil) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(value)
}
