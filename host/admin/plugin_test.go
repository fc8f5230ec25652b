package admin_test

import (
	"testing"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Hosts that fetch the same release are one entry, since the first of them began.
func TestPluginsBeingFetched(t *testing.T) {
	t.Parallel()
	client, err := queue.NewFromRedis(queuetest.Shared(t).Client(t), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	for _, since := range []string{"12.5", "11.5", "13.5"} {
		node := listen.New(client)
		if err := node.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		text := `[{"plugin":"mail","release":2,"state":"fetching","since":` + since + `}]`
		if _, err := node.Renew(t.Context(), map[string]string{"kind": listen.KindQuern, "plugins": text}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := admin.NewDirect(client, nil).Plugins(t.Context())
	if err != nil || len(list) != 1 || len(list[0].Nodes) != 3 || list[0].Since != 11.5 || list[0].Ready() {
		t.Errorf("%+v, %v", list, err)
	}
}
