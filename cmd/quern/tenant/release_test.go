package tenant

import (
	"errors"
	"fmt"
	"testing"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// If the list of releases cannot be read for the remedy, the error is still that of the command.
func TestRefusedReleaseOfDamagedList(t *testing.T) {
	t.Parallel()
	rdb, tenant := queuetest.Shared(t).Client(t), queuetest.Tenant()
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.HSet(t.Context(), tenant+"_release_mail", "1", "{}").Err(); err != nil {
		t.Fatal(err)
	}
	refused := fmt.Errorf("halt: %w", release.ErrNoCanary)
	got := refusedRelease(t.Context(), admin.NewDirect(client, nil), []string{"mail"}, "halted", refused)
	if !errors.Is(got, release.ErrNoCanary) {
		t.Errorf("the error is %v", got)
	}
}
