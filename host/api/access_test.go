package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// token adds a new token to the file, and returns it.
func token(t *testing.T, path, name string, role api.Role, tenants ...string) string {
	t.Helper()
	secret, lines, err := api.NewToken(name, role, tenants, time.Hour)
	must(t, err)
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if strings.Contains(lines, secret) {
		t.Fatal("the file would have the token itself")
	}
	if len(text) == 0 {
		lines = "tokens:\n" + lines
	}
	must(t, os.WriteFile(path, append(text, lines...), 0o600))
	return secret
}

// amend replaces a part of a file.
func amend(t *testing.T, path, old, changed string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, changed, 1)), 0o600))
}

func access(t *testing.T, path string) func(*api.Config) {
	t.Helper()
	return func(c *api.Config) {
		var err error
		c.Access, err = api.LoadAccess(path, hclog.NewNullLogger())
		must(t, err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	tenant := queuetest.Tenant()
	viewer, operator := token(t, path, "vera", api.Viewer), token(t, path, "otto", api.Operator, tenant)
	ada, stranger := token(t, path, "ada", api.Admin), token(t, path, "sam", api.Admin, "other")
	w := serve(t, queuetest.Shared(t).URL(), tenant, access(t, path))
	id := w.fail(t, "mail", "no")

	got := w.do(t, request{method: http.MethodGet, path: "/queues"})
	refused(t, got, http.StatusUnauthorized, "Authorization: Bearer")
	if got.header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("header %v", got.header)
	}
	w.token = "quern_wrong"
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues"}), http.StatusUnauthorized, "unknown or was revoked")
	w.token = stranger
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues"}), http.StatusForbidden, "may not see tenant")
	refused(t, w.do(t, request{method: http.MethodGet, path: "/v1/tenants/other/queues"}), http.StatusNotFound, "is not served here: add it to --tenants of the process")
	if list := get[api.List[api.TenantInfo]](t, w, "/v1/tenants"); len(list.Items) != 0 {
		t.Errorf("a stranger sees %+v", list)
	}
	for _, step := range []struct {
		token, method, path string
		status              int
	}{
		{viewer, http.MethodGet, "/queues/mail", 200},
		{viewer, http.MethodPost, "/queues/mail/pause", 403},
		{viewer, http.MethodPost, "/tasks/" + id + "/retry", 403},
		{viewer, http.MethodGet, "/audit", 403},
		{operator, http.MethodPost, "/queues/mail/pause", 200},
		{operator, http.MethodDelete, "/tasks/" + id, 403},
		{operator, http.MethodPost, "/queues/mail/purge?all=true", 403},
		{ada, http.MethodDelete, "/tasks/" + id, 204},
	} {
		w.token = step.token
		if got := w.do(t, request{method: step.method, path: step.path}); got.status != step.status {
			t.Errorf("%s %s: %d, want %d: %s", step.method, step.path, got.status, step.status, got.body)
		}
	}
	if me := get[api.Principal](t, w, "/v1/me"); me.Name != "ada" || me.Role != api.Admin {
		t.Errorf("me: %+v", me)
	}

	// The audit log has what was done, newest first. Who may not act writes nothing there.
	log := get[api.List[admin.AuditEntry]](t, w, "/audit")
	if len(log.Items) != 2 {
		t.Fatalf("%+v", log)
	}
	last, before := log.Items[0], log.Items[1]
	if last.Who != "ada" || last.Action != "delete-task" || last.On != "id "+id || last.Status != 204 || last.From != "127.0.0.1" || last.Time == 0 {
		t.Errorf("last %+v", last)
	}
	if before.Who != "otto" || before.Action != "pause-queue" || before.On != "queue mail" || before.Status != 200 {
		t.Errorf("before %+v", before)
	}
	rest := get[api.List[admin.AuditEntry]](t, w, "/audit?cursor="+get[api.List[admin.AuditEntry]](t, w, "/audit?limit=1").Next)
	if len(rest.Items) != 1 || rest.Items[0] != before || rest.Next != "" {
		t.Errorf("the rest: %+v", rest)
	}

	// A token that is taken out of the file ends, and a new one counts; a damaged file changes nothing.
	must(t, os.Remove(path))
	fresh := token(t, path, "new", api.Viewer)
	eventually(t, "the new token", func() bool {
		w.token = fresh
		return w.do(t, request{method: http.MethodGet, path: "/queues"}).status == http.StatusOK
	})
	w.token = ada
	refused(t, w.do(t, request{method: http.MethodGet, path: "/queues"}), http.StatusUnauthorized, "unknown or was revoked")
	damaged := path + ".new" // not written in place: for a moment the file would be empty
	must(t, os.WriteFile(damaged, []byte("tokens: 7"), 0o600))
	must(t, os.Rename(damaged, path))
	w.token = fresh
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for range 15 { // longer than the file is trusted unread
		<-ticker.C
		if got := w.do(t, request{method: http.MethodGet, path: "/queues"}); got.status != http.StatusOK {
			t.Fatalf("with a damaged file: %d %s", got.status, got.body)
		}
	}

	// Without an entry there is nobody left.
	must(t, os.WriteFile(path, []byte("tokens: []"), 0o600))
	eventually(t, "the end of the last token", func() bool {
		return w.do(t, request{method: http.MethodGet, path: "/queues"}).status == http.StatusUnauthorized
	})
}

// A stream ends when its token is taken out of the file.
func TestRevokedStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	secret := token(t, path, "vera", api.Viewer)
	w := setup(t, access(t, path))
	w.token = secret
	events := follow(t, w, "/changes")
	must(t, os.Remove(path))
	token(t, path, "another", api.Viewer)
	for {
		select {
		case _, more := <-events:
			if !more {
				return
			}
		case <-w.ctx.Done():
			t.Fatal("the stream goes on")
		}
	}
}

func TestWrongTokenFiles(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("a", 64)
	for text, words := range map[string]string{
		"":          "no tokens",
		"{}":        "no tokens",
		"token: []": "token",
		"tokens: [{name: a, role: boss, sha256: " + hash + "}]":                                                       "viewer, operator or admin",
		"tokens: [{role: admin, sha256: " + hash + "}]":                                                               "no name",
		"tokens: [{name: a, role: admin, sha256: quern_abc}]":                                                         "64 hex digits",
		"tokens: [{name: a, role: admin, sha256: " + hash + "}, {name: b, role: viewer, sha256: " + hash + "}]":       "another entry",
		"tokens: [{name: a, role: admin, tenants: [A_B], sha256: " + hash + "}]":                                      "A_B",
		"tokens: [{name: a, role: admin, sha256: " + hash + "}]\ncertificates: [{name: a, role: viewer, subject: s}]": "same name",
		"tokens: [{name: 'oidc:ada', role: admin, sha256: " + hash + "}]":                                             "choose another",
		"tokens: [{name: a, role: admin, tenants: [], sha256: " + hash + "}]":                                         "line 1: tenants is empty",
		"tokens:\n- name: a\n  role: admin\n  tenants:\n  sha256: " + hash:                                            "line 4: tenants is empty",
		"certificates: [{name: a, role: admin, subject: s, tenants: ~}]":                                              "tenants is empty",
		"certificates: [{name: a, role: admin}]":                                                                      "subject is missing",
		"oidc: {issuer: https://example.com}":                                                                         "both needed",
		"x: &x {role: admin}\ntokens: [{<<: *x, name: a, sha256: " + hash + "}]":                                      "line 1: has an anchor",
		"tokens: [{name: a, <<: {role: admin}, sha256: " + hash + "}]":                                                "merges keys",
		"tokens: " + strings.Repeat("[", 300_000):                                                                     "more than 262144 keys and values",
		"#" + strings.Repeat(" ", 4<<20):                                                                              "more than 4MiB",
		"tokens: [{name: a, role: admin, rate: -1, sha256: " + hash + "}]":                                            "rate",
	} {
		path := filepath.Join(t.TempDir(), "tokens.yaml")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := api.LoadAccess(path, hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want an error with %q", text, err, words)
		}
	}
}

// Who may not see payloads sees neither what producers nor what handlers wrote.
func TestHiddenPayloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	secret := token(t, path, "vera", api.Viewer)
	amend(t, path, "role: viewer", "role: viewer\n  payloads: false")
	w := setup(t, access(t, path))
	w.token = secret
	id := w.fail(t, "mail", "secret words\nmore of them")
	w.rdb.HSet(w.ctx, w.Tenant()+"_task_"+id, "headers", `{"x-id": "secret"}`)
	whole := w.do(t, request{method: http.MethodGet, path: "/tasks/" + id})
	task := decode[admin.Task](t, whole, http.StatusOK)
	if strings.Contains(string(whole.body), "secret") || task.Parameters != nil || task.ParametersSize != 1 || task.Error.Message != "" {
		t.Errorf("%s", whole.body)
	}
	if got := w.do(t, request{method: http.MethodGet, path: "/tasks/" + id + "/history"}); got.status != http.StatusOK || strings.Contains(string(got.body), "secret") {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, path := range []string{"/tasks/" + id + "/parameters", "/tasks/" + id + "/result", "/tasks/" + id + "/record", "/pieces/ab", "/tasks/" + id + "/log", "/tasks/" + id + "/log/stream", "/kv", "/kv/b", "/kv/b/k"} {
		refused(t, w.do(t, request{method: http.MethodGet, path: path}), http.StatusForbidden, "payloads: false")
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/tasks?error=s"}), http.StatusForbidden, "payloads: false") // or it could be guessed
	_, err := w.Subscribe(w.ctx, queue.Subscription{ID: "hook", Topic: "t", Webhook: &queue.Webhook{
		URL: "https://example.com/secret?key=secret", Headers: map[string]string{"X-Key": "secret"},
	}})
	must(t, err)
	for _, path := range []string{"/subscriptions", "/subscriptions/hook", "/topics/t"} {
		got := w.do(t, request{method: http.MethodGet, path: path})
		if text := string(got.body); got.status != http.StatusOK || strings.Contains(text, "secret") || !strings.Contains(text, "https://example.com") || !strings.Contains(text, "X-Key") {
			t.Errorf("%s: %d %s", path, got.status, text)
		}
	}
}

func TestRate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	slow := token(t, path, "slow", api.Viewer)
	amend(t, path, "role: viewer", "role: viewer\n  rate: 0.001")
	other := token(t, path, "other", api.Viewer)
	w := setup(t, access(t, path))
	w.token = slow
	get[api.Principal](t, w, "/v1/me")
	got := w.do(t, request{method: http.MethodGet, path: "/v1/me"})
	refused(t, got, http.StatusTooManyRequests, "slow sends more than 0.001 requests a second")
	w.token = other
	get[api.Principal](t, w, "/v1/me")
}
