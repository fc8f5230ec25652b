package admin_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/admin/admintest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// The Redis user of the role operator can do everything in the contract of Tenant, and has no command that this does not
// need.
func TestOperatorsAccessList(t *testing.T) { //nolint:tparallel // what follows needs what the parts have sent
	t.Parallel()
	roles := manage.Roles()
	role := roles[slices.IndexFunc(roles, func(r manage.Role) bool { return r.Name == "operator" })]
	var mu sync.Mutex
	var logs []*queuetest.Sent
	open := func(t *testing.T, client *queue.Client, _ *kv.Store) admin.Tenant {
		server := queuetest.Shared(t)
		var words []any
		for word := range strings.FieldsSeq(role.ACL(client.Tenant()) + " +scan") { // scan is optional, to find other tenants
			words = append(words, word)
		}
		if err := server.Client(t).Do(t.Context(), words...).Err(); err != nil {
			t.Fatalf("ACL SETUSER: %v", err)
		}
		rdb, err := queue.Connect("redis://" + role.User(client.Tenant()) + ":PASSWORD@" + server.Addr() + "/0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rdb.Close() })
		sent := queuetest.Watch(rdb)
		mu.Lock()
		logs = append(logs, sent)
		mu.Unlock()
		own, err := queue.NewFromRedis(rdb, queue.Config{Tenant: client.Tenant()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = own.Close() })
		return admin.NewDirect(own, kv.New(rdb, client.Tenant()))
	}
	t.Run("contract", func(t *testing.T) { admintest.Exercise(t, open) })
	t.Run("beside", func(t *testing.T) { besideTheContract(t, open) })
	needed := map[string]bool{"wait": true} // for `quern enqueue --replicas`
	for _, sent := range logs {
		maps.Copy(needed, sent.Needed())
	}
	operatorIsConfined(t, role)
	// These are optional: for the doctor's look at Redis, and to find other tenants.
	for _, optional := range []string{"config|get", "info", "scan"} {
		delete(needed, optional)
	}
	granted := make(map[string]bool)
	for word := range strings.FieldsSeq(role.ACL("acme")) {
		if command, ok := strings.CutPrefix(word, "+"); ok {
			granted[command] = true
		}
	}
	if !maps.Equal(granted, needed) {
		t.Errorf("operators have\n%s, and need\n%s", slices.Sorted(maps.Keys(granted)),
			strings.Join(slices.Sorted(maps.Keys(needed)), " "))
	}
}

// besideTheContract does what commands do and the contract's tests do not: a search by key, and the reclaim of a Python
// listener.
func besideTheContract(t *testing.T, open admintest.Open) {
	rdb := queuetest.Shared(t).Client(t)
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tenant := open(t, client, nil)
	if _, err := tenant.List(t.Context(), &admin.Filter{Queue: "q", Key: "k"}, 0, 1); err != nil {
		t.Error(err)
	}
	rdb.SAdd(t.Context(), client.Tenant()+"_listeners_q", "python_1")
	rdb.ZIncrBy(t.Context(), client.Tenant()+"_queues", 1, "q")
	if _, err := tenant.ReclaimNode(t.Context(), "python_1", 3); err != nil {
		t.Error(err)
	}
}

// operatorIsConfined checks that the operator of a tenant reaches no other tenant, and not Redis itself.
func operatorIsConfined(t *testing.T, role manage.Role) {
	t.Helper()
	server, tenant := queuetest.Shared(t), queuetest.Tenant()
	var words []any
	for word := range strings.FieldsSeq(role.ACL(tenant)) {
		words = append(words, word)
	}
	if err := server.Client(t).Do(t.Context(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb, err := queue.Connect("redis://" + role.User(tenant) + ":PASSWORD@" + server.Addr() + "/0")
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	for what, err := range map[string]error{
		"another tenant": rdb.Get(t.Context(), queuetest.Tenant()+"_version").Err(), "FLUSHALL": rdb.FlushAll(t.Context()).Err(),
		"KEYS": rdb.Keys(t.Context(), "*").Err(), "CONFIG": rdb.ConfigSet(t.Context(), "save", "").Err(),
		"SCAN": rdb.Scan(t.Context(), 0, "*", 1).Err(), "XADD": rdb.Do(t.Context(), "XADD", tenant+"_audit", "*", "who", "me").Err(),
	} {
		if err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
