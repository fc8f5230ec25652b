package tenant

import (
	"errors"
	"fmt"
	"strings"
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

// A canary that is meant by a wrong number is told apart from a release that is none.
func TestRefusedNumber(t *testing.T) {
	t.Parallel()
	client, err := queue.NewFromRedis(queuetest.Shared(t).Client(t), queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		t.Fatal(err)
	}
	store := release.NewStore(client)
	for _, module := range []string{"one", "two"} {
		files := []release.Content{{Name: "mail.wasm", Data: []byte(module)}}
		r, err := release.New("mail", files)
		if err == nil {
			_, err = release.Push(t.Context(), store, r, files, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for number, want := range map[string]string{
		"1": "release 1 is not the canary of plugin mail", "2": "release 2 of plugin mail is no canary, it serves",
		"9": "plugin mail has no release 9: use one of 1, 2",
	} {
		got := refusedRelease(t.Context(), admin.NewDirect(client, nil), []string{"mail", number}, "halted", release.ErrNoCanary)
		if got == nil || !strings.HasPrefix(got.Error(), want) {
			t.Errorf("%s: %v", number, got)
		}
	}
}
