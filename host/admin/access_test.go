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
func TestOperatorsAccessList(t *testing.T) {
	t.Parallel()
	role, err := manage.RoleNamed("operator")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var logs []*queuetest.Sent
	t.Run("contract", func(t *testing.T) {
		admintest.Exercise(t, func(t *testing.T, client *queue.Client, _ *kv.Store) admin.Tenant {
			server := queuetest.Shared(t)
			list := strings.Fields(role.ACL(client.Tenant()))
			words := make([]any, len(list), len(list)+1)
			for i, word := range list {
				words[i] = word
			}
			words = append(words, "+scan") // optional, to find other tenants
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
			tenant := admin.NewDirect(own, kv.New(rdb, client.Tenant()))
			// Beside the contract: a search by key.
			if _, err := tenant.List(t.Context(), &admin.Filter{Queue: "q", Key: "k"}, 0, 1); err != nil {
				t.Error(err)
			}
			return tenant
		})
	})
	needed := map[string]bool{"wait": true} // for `quern enqueue --replicas`
	for _, sent := range logs {
		maps.Copy(needed, sent.Needed())
	}
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
