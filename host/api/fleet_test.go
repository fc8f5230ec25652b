package api_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func TestNodes(t *testing.T) {
	w := setup(t)
	id := w.enqueue(t, "q", "", queue.Options{})
	node, task := w.start(t, "q")
	list := get[api.List[admin.Node]](t, w, "/nodes")
	if len(list.Items) != 1 {
		t.Fatalf("%+v", list)
	}
	n := list.Items[0]
	if n.Listener != node.ID() || !n.Alive || n.LeaseEnds == 0 || n.Draining || n.Queues[0] != "q" || n.Holds["q"][0] != id || task.ID != id {
		t.Errorf("%+v", n)
	}
	refused(t, w.do(t, request{method: http.MethodPost, path: "/nodes/" + node.ID() + "/reclaim"}), http.StatusConflict, "is alive")
	if got := w.do(t, request{method: http.MethodPost, path: "/nodes/" + node.ID() + "/drain"}); got.status != http.StatusNoContent {
		t.Errorf("drain: %d %s", got.status, got.body)
	}
	if list := get[api.List[admin.Node]](t, w, "/nodes"); !list.Items[0].Draining {
		t.Errorf("%+v", list)
	}
	refused(t, w.do(t, request{method: http.MethodPost, path: "/nodes/none/drain"}), http.StatusNotFound, "no such listener")
	refused(t, w.do(t, request{method: http.MethodPost, path: "/nodes/none/reclaim"}), http.StatusNotFound, "no such listener")
}

func TestPlugins(t *testing.T) {
	w := setup(t)
	published, err := json.Marshal([]upkeep.PluginInfo{
		{Tenant: w.Tenant(), Plugin: "mail", Version: "1.0.0", Digest: "sha256:1", Queues: []string{"mail"}, State: "serving"},
		{Tenant: w.Tenant(), Plugin: "bad", State: "refused", Error: "no WebAssembly"},
	})
	must(t, err)
	var ids []string
	for range 2 {
		node := listen.New(w.Client)
		must(t, node.Join(w.ctx))
		_, err := node.Renew(w.ctx, map[string]string{"plugins": string(published)})
		must(t, err)
		ids = append(ids, node.ID())
	}
	list := get[api.List[admin.Plugin]](t, w, "/plugins?limit=1")
	if len(list.Items) != 1 || list.Items[0].Plugin != "bad" || list.Items[0].Error != "no WebAssembly" || list.Next == "" {
		t.Errorf("%+v", list)
	}
	list = get[api.List[admin.Plugin]](t, w, "/plugins")
	if len(list.Items) != 2 || list.Items[1].Digest != "sha256:1" || len(list.Items[1].Nodes) != len(ids) {
		t.Errorf("%+v", list)
	}
	refused(t, w.do(t, request{method: http.MethodPost, path: "/plugins/mail/release"}), http.StatusNotFound, "no quarantined plugin")
	w.enqueue(t, "mail", "", queue.Options{})
	node, task := w.start(t, "mail")
	ended := node.SettleAll(w.ctx, []listen.SettleRequest{{
		Queue: "mail", Settlements: []listen.Settlement{{Claim: task.Claim(), Failure: &queue.Failure{}, Counts: queue.ReasonError}},
		Breaker: &listen.Breaker{Plugin: "mail", Digest: "sha256:1", Failures: 1, Pause: time.Hour, MaxPause: time.Hour},
	}})[0]
	must(t, errors.Join(append(ended.Errs, ended.Err)...))
	list = get[api.List[admin.Plugin]](t, w, "/plugins")
	if p := list.Items[1]; p.State != "quarantined" ||
		!strings.HasPrefix(p.Error, "1 of its runs in a row failed (error), and a task runs as a probe at 2") ||
		!strings.HasSuffix(p.Error, "Z; replace it, or use `quern plugin release mail`") {
		t.Errorf("%+v", p)
	}
	if got := w.do(t, request{method: http.MethodPost, path: "/plugins/mail/release"}); got.status != http.StatusOK {
		t.Errorf("release: %d %s", got.status, got.body)
	}
	if list = get[api.List[admin.Plugin]](t, w, "/plugins"); list.Items[1].State != "serving" {
		t.Errorf("%+v", list)
	}
}

func TestKV(t *testing.T) {
	w := setup(t)
	store := w.store.For([]kv.Grant{{Bucket: "thumbs", Write: true, Quota: 1 << 20}}, nil)
	for _, key := range []string{"a/1", "a/2", "b"} {
		must(t, store.Set(w.ctx, "thumbs", key, []byte("\xff"+key), 0))
	}
	if list := get[api.List[admin.Bucket]](t, w, "/kv"); len(list.Items) != 1 || list.Items[0].Keys != 3 || list.Items[0].Bucket != "thumbs" {
		t.Errorf("%+v", list)
	}
	page := get[api.List[string]](t, w, "/kv/thumbs?prefix=a&limit=1")
	if len(page.Items) != 1 || page.Items[0] != "a/1" {
		t.Errorf("%+v", page)
	}
	page = get[api.List[string]](t, w, "/kv/thumbs?prefix=a&cursor="+page.Next)
	if len(page.Items) != 1 || page.Items[0] != "a/2" || page.Next != "" {
		t.Errorf("%+v", page)
	}
	if value := w.do(t, request{method: http.MethodGet, path: "/kv/thumbs/a%2F2"}); string(value.body) != "\xffa/2" {
		t.Errorf("%+v", value)
	}
	refused(t, w.do(t, request{method: http.MethodGet, path: "/kv/thumbs/c"}), http.StatusNotFound, "not found")
}

func TestDeadLetters(t *testing.T) {
	w := setup(t)
	w.enqueue(t, "q", "x", queue.Options{ID: "live"})
	node := listen.New(w.Client)
	must(t, node.Join(w.ctx))
	must(t, node.Register(w.ctx, "q"))
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{{
		Queue: "q", Count: 1, Start: true, Plugin: "p", Digest: "sha256:0", FailurePolicy: listen.FailurePolicy{Dead: "q.dead"},
	}})[0]
	must(t, reply.Err)
	errs, err := node.Settle(w.ctx, "q", []listen.Settlement{{Claim: reply.Tasks[0].Claim(), Failure: &queue.Failure{Reason: queue.ReasonError}}})
	must(t, err)
	must(t, errs[0])
	list := get[api.List[admin.Task]](t, w, "/dead-letters")
	if len(list.Items) != 1 || list.Items[0].LiveID != "live" || list.Items[0].Queue != "q.dead" {
		t.Fatalf("%+v", list)
	}
	if task := get[admin.Task](t, w, "/tasks/live"); task.DeadID != list.Items[0].ID {
		t.Errorf("%+v", task)
	}
	// To retry the letter is to retry the task for which it stands.
	if got := post[admin.Task](t, w, "/tasks/"+list.Items[0].ID+"/retry", nil, http.StatusOK); got.ID != "live" || got.Status != queue.Pending {
		t.Errorf("retried %+v", got)
	}
}
