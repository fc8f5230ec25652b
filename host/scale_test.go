package host

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What one tenant of a host may take: goroutines and Redis connections, beside those that all tenants share. doc.go tells
// what each is for.
const (
	goroutinesPerTenant  = 6
	connectionsPerTenant = 2
	shared               = 100 // goroutines or connections
)

// A host with 500 tenants is a normal host: it serves all of them, each takes few goroutines and connections, and it ends
// in order.
func TestHostOfFiveHundredTenants(t *testing.T) { // not parallel: it counts the goroutines of the process
	const tenants = 500
	s := settings{hclog: hclog.Info, server: queuetest.Start(t), guests: map[string][]byte{"echo": runtimetest.Echo(t)}}
	for range tenants {
		s.tenants = append(s.tenants, queuetest.Tenant())
	}
	s.idle = true
	n := start(t, s)
	before := runtime.NumGoroutine()
	n.run()
	n.eventually("all are served", func() bool { return n.Ready() == nil && n.log.lines("serving queue: ", "queue=echo") == tenants })
	for i := 0; i < tenants; i += tenants / 10 {
		client := n.clientOf(s.tenants[i])
		id, err := client.Queue("echo").Enqueue(n.ctx, []byte(fmt.Sprint(i)), queue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if task, err := client.Wait(n.ctx, id); err != nil || task.Status != queue.Complete || string(task.Result) != fmt.Sprint(i) {
			t.Errorf("tenant %d: %+v, %v", i, task, err)
		}
	}
	// A duty that works has a goroutine for a moment: more tenants never work all at once than connections let them.
	n.eventually("few goroutines", func() bool {
		return runtime.NumGoroutine()-before <= tenants*goroutinesPerTenant+shared
	})
	connected := 0
	n.eventually("few connections", func() bool {
		clients, err := n.rdb.InfoMap(n.ctx, "clients").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Sscan(clients["Clients"]["connected_clients"], &connected)
		return err == nil && connected <= tenants*connectionsPerTenant+shared
	})
	t.Logf("%d goroutines and %d connections for %d tenants", runtime.NumGoroutine()-before, connected, tenants)
	if err := n.stop(); err != nil {
		t.Error(err)
	}
	if left := n.log.lines("left: "); left != tenants {
		t.Errorf("%d tenants were left in order, want %d", left, tenants)
	}
}
