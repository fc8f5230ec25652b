package api_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// A tenant's quotas are set by those who may see all tenants; what is over is refused with 429, and when it is worth
// trying again.
func TestQuotas(t *testing.T) {
	t.Parallel()
	path, tenant := filepath.Join(t.TempDir(), "tokens.yaml"), queuetest.Tenant()
	operator, own, all := token(t, path, "otto", api.Operator), token(t, path, "ada", api.Admin, tenant), token(t, path, "root", api.Admin)
	w := serve(t, queuetest.Shared(t).URL(), tenant, access(t, path))
	send := func(token, method, path, body string) answer {
		w.token = token
		return w.do(t, request{method: method, path: path, body: []byte(body), header: map[string]string{"Content-Type": "application/json"}})
	}
	quotas := `{"quotas": {"enqueue_rate": "1/m", "subscriptions": "1"}}`
	refused(t, send(operator, http.MethodPatch, "/quotas", quotas), http.StatusForbidden, "admin")
	refused(t, send(own, http.MethodPatch, "/quotas", quotas), http.StatusForbidden, "a tenant does not set its own quotas")
	for _, path := range []string{"/pause", "/pause?accepting=true", "/resume", "/resume?accepting=true"} {
		refused(t, send(operator, http.MethodPost, path, ""), http.StatusForbidden, "needs the role admin")
		refused(t, send(own, http.MethodPost, path, ""), http.StatusForbidden, "ask for a token of all tenants")
		if got := send(all, http.MethodPost, path, ""); got.status != http.StatusNoContent {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := send(all, http.MethodPatch, "/quotas", quotas); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	refused(t, send(all, http.MethodPatch, "/quotas", `{"quotas": {"rate": "fast"}}`), http.StatusBadRequest, `write tasks by s, m, h or d`)
	if got := send(own, http.MethodPost, "/queues/q/tasks/batch", `{"tasks": [{"parameters": "x"}]}`); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	got := send(own, http.MethodPost, "/queues/q/tasks/batch", `{"tasks": [{"parameters": "x"}]}`)
	refused(t, got, http.StatusTooManyRequests, "the quota enqueue_rate of tenant "+tenant+" is 1/m burst 1")
	if after := got.header.Get("Retry-After"); after != "60" {
		t.Errorf("Retry-After: %q", after)
	}
	list := get[api.List[admin.Quota]](t, w, "/quotas").Items
	if len(list) != 2 || list[0].Name != "enqueue_rate" || list[0].Share != 1 || list[0].Refused != 1 {
		t.Errorf("%+v", list)
	}
}
