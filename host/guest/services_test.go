package guest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }

// A ceiling denies what the manifest grants, in each way to use a service, and says that it is the host's; what both
// grant works.
func TestCeiling(t *testing.T) {
	t.Parallel()
	m, err := manifest.Parse("x.yaml", []byte(`capabilities:
  kv: [{bucket: open, access: rw}, {bucket: read, access: rw}, {bucket: shut, access: rw}]
  enqueue: {queues: ["mail.*"]}
  secrets: [api_key, ssh]
`))
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := manifest.ParseGrants("grants.yaml", []byte(`acme:
  capabilities: {kv: [{bucket: open, access: rw}, {bucket: read}], enqueue: {queues: [mail.done]}, secrets: [api_key]}
  secrets: {api_key: {value: of the file}, ssh: {value: key}}
`))
	if err != nil {
		t.Fatal(err)
	}
	permissions := manifest.NewPermissions(&m, hosts, "acme", nil)
	stores := map[string]*kv.Store{"acme": kv.New(queuetest.Shared(t).Client(t), queuetest.Tenant())}
	services, children, _ := New(Config{KV: stores}).For(Task{Tenant: "acme", Asked: &m.Capabilities, Permissions: permissions, Host: accepting{}})
	ctx, b := t.Context(), services.KV
	for _, bucket := range []string{"open", "read", "shut", "never"} {
		_, get := b.Get(ctx, bucket, "key")
		_, list := b.List(ctx, bucket, "", "", 10)
		set := b.Set(ctx, bucket, "key", []byte("1"), 0)
		_, increment := b.Increment(ctx, bucket, "key", 1)
		_, swap := b.Swap(ctx, bucket, "key", []byte("2"), []byte("3"), 0)
		_, deleted := b.Delete(ctx, bucket, "key")
		reads, writes := []error{get, list}, []error{set, increment, swap, deleted}
		for i, err := range append(reads, writes...) {
			told := err != nil && strings.Contains(err.Error(), `the host does not: add `) && strings.Contains(err.Error(), `bucket`) && strings.Contains(err.Error(), `"`+bucket+`"`)
			switch granted := bucket == "open" || bucket == "read" && i < len(reads); {
			case granted && err != nil && !errors.Is(err, service.ErrNotFound):
				t.Errorf("%s %d: %v", bucket, i, err)
			case !granted && !errors.Is(err, service.ErrDenied):
				t.Errorf("%s %d: %v, want denied", bucket, i, err)
			case !granted && told != (bucket != "never"): // which the manifest would have to grant first
				t.Errorf("%s %d: %v", bucket, i, err)
			}
		}
	}
	id, err := services.Enqueue.Enqueue(ctx, service.Child{Queue: "mail.done"})
	if waiting := children.Waiting(); err != nil || len(waiting) != 1 || waiting[0].ID != id || waiting[0].Queue != "mail.done" {
		t.Errorf("enqueued %q, %v: %+v", id, err, waiting)
	}
	if _, err := services.Enqueue.Enqueue(ctx, service.Child{Queue: "mail.other"}); !errors.Is(err, service.ErrDenied) ||
		!strings.Contains(err.Error(), `add "mail.other" to queues in capabilities.enqueue of "acme" in grants.yaml`) {
		t.Errorf("another queue: %v", err)
	}
	if value, err := services.Secrets.Secret(ctx, "api_key"); string(value) != "of the file" || err != nil {
		t.Errorf("api_key: %q, %v", value, err)
	}
	if _, err := services.Secrets.Secret(ctx, "ssh"); !errors.Is(err, service.ErrDenied) || !strings.Contains(err.Error(), `add "ssh" to capabilities.secrets`) {
		t.Errorf("ssh: %v", err)
	}
}

// accepting is a Host that does all that it is asked.
type accepting struct{}

func (accepting) Publish(context.Context, *queue.Publication) error { return nil }
func (accepting) Warn(string, ...any)                               {}

func (accepting) Dependencies(context.Context) ([]listen.Dependency, error) { return nil, nil }

func (accepting) Result(context.Context, string, int64) ([]byte, error) { return nil, nil }

func (accepting) Failure(context.Context, string) (*queue.Failure, error) { return nil, nil }

func (accepting) SaveCheckpoint(context.Context, []byte) error { return nil }
func (accepting) AdmitQueue(context.Context, string) error     { return nil }
func (accepting) Borrow(context.Context, int64) error          { return nil }
func (accepting) Enqueue(_ context.Context, child listen.Child) (string, error) {
	return child.ID, nil
}
