package rollout

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quern-project/quern/host/rollout/oci"
	"github.com/quern-project/quern/host/rollout/oci/ocitest"
	"github.com/quern-project/quern/sdk/queue/release"
)

// inRegistry are Blobs without Redis.
type inRegistry struct{ *oci.Client }

func (inRegistry) Piece(context.Context, string) ([]byte, error) { return nil, release.ErrMissing }

// What a host has already is not fetched again, unless it was damaged.
func TestArtifactsShareFiles(t *testing.T) {
	t.Parallel()
	registry := ocitest.Start(t)
	var fetched atomic.Int64
	host := registry.Front(func(response *http.Response) error {
		if r := response.Request; r.Method == http.MethodGet && response.StatusCode == http.StatusOK && strings.Contains(r.URL.Path, "/blobs/") {
			fetched.Add(1)
		}
		return nil
	})
	client, err := oci.New(oci.Config{
		Registries: []oci.Registry{{Host: host, Plain: true}}, Credentials: registry.Credentials(host, ocitest.Password),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	push := func(module string) *release.Release {
		t.Helper()
		files := []release.Content{
			{Name: "mail.wasm", Data: []byte(module)}, {Name: "mail.yaml", Data: []byte("{}")}, {Name: "data/table.csv", Data: []byte("a,b\n")},
		}
		r, err := release.New("mail", files)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := oci.Parse(release.ArtifactScheme + host + "/acme/mail:1")
		if err != nil {
			t.Fatal(err)
		}
		artifact, err := client.Push(t.Context(), ref, &r, files)
		if err != nil {
			t.Fatal(err)
		}
		r = r.InRegistry(artifact)
		return &r
	}
	c, from := NewCache(t.TempDir()), inRegistry{client}
	count := func(want int64, r *release.Release, before string) string {
		t.Helper()
		fetched.Store(0)
		folder := obtain(t, c, r, from, before)
		if got := fetched.Load(); got != want {
			t.Errorf("%d files were fetched, want %d", got, want)
		}
		return folder
	}
	first, second := push("one"), push("two")
	folder := count(3, first, "")
	count(0, first, "")
	next := count(1, second, folder)
	if err := os.RemoveAll(next); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "mail.yaml"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	count(2, second, folder)
}
