package guest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// publishing is a Host whose publications end with an error.
type publishing struct {
	accepting
	err error
}

func (p *publishing) Publish(context.Context, *queue.Publication) error { return p.err }

// A publication that is refused does not count; one that may exist does.
func TestPublicationsAreCounted(t *testing.T) {
	t.Parallel()
	m, err := manifest.Parse("x.yaml", []byte("capabilities: {publish: {topics: [t], after: call}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	host := &publishing{err: queue.ErrQueueFull}
	_, c, _ := New(Config{}).For(Task{ID: "parent", Asked: &m.Capabilities, Permissions: manifest.NewPermissions(&m, nil, "acme", nil), Host: host})
	publish := func(want error, times int) {
		t.Helper()
		for range times {
			if _, err := c.Publish(t.Context(), service.Publication{Topic: "t", Body: make([]byte, 1000)}); !errors.Is(err, want) {
				t.Fatalf("%v, want %v", err, want)
			}
		}
	}
	publish(service.ErrQuota, manifest.MaxPublications+1)
	host.err = fmt.Errorf("%w: no connection", context.DeadlineExceeded)
	publish(service.ErrUnavailable, 1)
	host.err = nil
	publish(nil, manifest.MaxPublications-1)
	publish(service.ErrLimit, 1)
}
