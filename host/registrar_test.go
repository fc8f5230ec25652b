package host

import (
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// A host that Redis knows nothing of any more, as after a failover to an older state, registers anew for what it serves.
func TestRegistersAnew(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"listeners_echo", "queues"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			n := start(t, settings{lease: time.Second, guests: map[string][]byte{"echo": runtimetest.Echo(t)}})
			n.serving("echo")
			n.rdb.Del(n.ctx, n.tenant+"_"+lost)
			n.eventually("it listens again", func() bool {
				queues, err := n.client.Queues(n.ctx)
				serves, hasErr := n.client.Queue("echo").HasListener(n.ctx)
				_, known := queues["echo"]
				return err == nil && hasErr == nil && serves && known
			})
			nodes, err := listen.NewFleet(n.client).Nodes(n.ctx)
			if err != nil || len(nodes) != 1 || !slices.Equal(nodes[0].Queues, []string{"echo"}) {
				t.Errorf("%+v, %v", nodes, err)
			}
		})
	}
}
