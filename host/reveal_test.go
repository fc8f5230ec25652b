package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestHide(t *testing.T) {
	t.Parallel()
	r := &Revealed{}
	const plain = "no secret is in hunter2-and-more"
	if got := r.Hide(plain); got != plain {
		t.Errorf("without a secret: %q", got)
	}
	r.Add("password", []byte("hunter2-and-more"))
	r.Add("password", []byte("hunter2-and-more"))
	r.Add("longer", []byte("hunter2-and-more-of-it"))
	r.Add("short", []byte("no"))
	r.Add("pem", []byte("-----BEGIN-----\r\nMIIEvQIBADANBg\n\n"))
	r.Add("quoted", []byte(`say "please" \o/`))
	r.Add("odd", []byte("<b>\"\x01&amp/"))
	for text, want := range map[string]string{
		plain:                                     "no secret is in [secret password]",
		"hunter2-and-more-of-it":                  "[secret longer]",
		"hunter2-and-more, of":                    "[secret password], of",
		"a MIIEvQIBADANBg b":                      "a [secret pem] b",
		`{"a":"say \"please\" \\o/"}`:             `{"a":"[secret quoted]"}`,
		`say "please" \o/`:                        "[secret quoted]",
		`{"a":"<b>\"\u0001&amp\/"}`:               `{"a":"[secret odd]"}`,
		`{"a":"\u003cb\u003e\"\u0001\u0026amp/"}`: `{"a":"[secret odd]"}`,
		`bucket: "<b>\"\x01&amp/"`:                `bucket: "[secret odd]"`,
		"hunter2-and-more-of":                     "[secret password]-of",
		"hunter2-and-morehunter2-and-":            "[secret password][secret longer]",
	} {
		if got := r.Hide(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"it was hunter2-and-mo…": "it was [secret longer]…",
		"r2-and-more was it":     "[secret password] was it",
		"it was hunter2":         "it was hunter2", // too little to tell by
		"":                       "",
	} {
		outcome := runtime.Outcome{Message: text, Stderr: text, Output: []byte(text)}
		if r.cover(&outcome); outcome.Message != want || outcome.Stderr != want || string(outcome.Output) != text {
			t.Errorf("%q is %+v, want %q", text, outcome, want)
		}
	}
}

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
	guest := runtimetest.BuildCHandler(t, `
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
		Config: Config{Services: Services{Secrets: secrets}},
		guests: map[string][]byte{"telling": guest},
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
