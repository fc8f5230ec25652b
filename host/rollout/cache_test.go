package rollout

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/release"
)

// pieces are Blobs in memory, which count what was read.
type pieces struct {
	NoArtifacts
	byDigest map[string][]byte
	read     int
}

func (p *pieces) Piece(_ context.Context, digest string) ([]byte, error) {
	p.read++
	data, ok := p.byDigest[digest]
	if !ok {
		return nil, release.ErrMissing
	}
	return data, nil
}

// add makes a release of a module, with a manifest and a file that it names, whose pieces can be read.
func (p *pieces) add(t *testing.T, module []byte) *release.Release {
	t.Helper()
	files := []release.Content{{Name: "mail.wasm", Data: module}, {Name: "mail.yaml", Data: []byte("{}")}, {Name: "data/table.csv", Data: []byte("a,b\n")}}
	r, err := release.New("mail", files)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range r.Files {
		for j, digest := range f.Pieces {
			from := j * release.PieceBytes
			p.byDigest[digest] = files[i].Data[from:min(from+release.PieceBytes, len(files[i].Data))]
		}
	}
	return &r
}

func obtain(t *testing.T, c *Cache, r *release.Release, from Blobs, before string) string {
	t.Helper()
	folder, err := c.obtain(t.Context(), r, from, before)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(folder, r); err != nil {
		t.Error(err)
	}
	return folder
}

func TestCache(t *testing.T) {
	t.Parallel()
	from := &pieces{byDigest: map[string][]byte{}}
	large := bytes.Repeat([]byte("0123456789abcdef"), 3*release.PieceBytes/16)
	first := from.add(t, large)
	dir := t.TempDir()
	folder := obtain(t, NewCache(dir), first, from, "")
	if from.read != 5 {
		t.Errorf("%d pieces were read, want 3 of the module and one of each other file", from.read)
	}

	// A host that was killed has left half a release beside it. Another start needs nothing, and a day later it is gone.
	stage := filepath.Join(dir, stagePrefix+"1")
	if err := os.MkdirAll(stage, 0o700); err != nil {
		t.Fatal(err)
	}
	from.read = 0
	c := NewCache(dir)
	if again := obtain(t, c, first, from, ""); again != folder || from.read != 0 {
		t.Errorf("%s was fetched to %s with %d pieces", folder, again, from.read)
	}
	if err := c.use([]string{folder}, time.Now().Add(2*stageTime)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stage); err == nil {
		t.Error("what a killed host has left stays")
	}
	obtain(t, c, first, from, "")

	// The next release reads only what is new.
	changed := bytes.Clone(large)
	changed[len(changed)-1]++
	second := from.add(t, changed)
	from.read = 0
	next := obtain(t, c, second, from, folder)
	if from.read != 1 {
		t.Errorf("%d pieces were read, want the one that differs", from.read)
	}

	// A folder that no host uses is removed in the end, and one in use is not.
	if err := c.use([]string{next}, time.Now().Add(2*unusedTime)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("an unused release stays")
	}
	obtain(t, c, second, &pieces{}, "")
}

// Whatever was done to a folder on disk, a release serves only as it was pushed.
func TestDamagedCache(t *testing.T) {
	t.Parallel()
	from := &pieces{byDigest: map[string][]byte{}}
	r := from.add(t, []byte("module"))
	for name, spoil := range map[string]func(folder string) error{
		"Changed":   func(f string) error { return os.WriteFile(filepath.Join(f, "mail.wasm"), []byte("modulo"), 0o600) },
		"Truncated": func(f string) error { return os.Truncate(filepath.Join(f, "mail.wasm"), 3) },
		"Missing":   func(f string) error { return os.Remove(filepath.Join(f, "data", "table.csv")) },
		"More":      func(f string) error { return os.WriteFile(filepath.Join(f, "other.wasm"), nil, 0o600) },
		"Renamed": func(f string) error {
			return os.Rename(filepath.Join(f, "mail.yaml"), filepath.Join(f, "x"))
		},
		"Gone": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := NewCache(t.TempDir())
			own := &pieces{byDigest: from.byDigest}
			folder := obtain(t, c, r, own, "")
			if err := spoil(folder); err != nil {
				t.Fatal(err)
			}
			if again := obtain(t, c, r, own, ""); again != folder {
				t.Errorf("fetched to %s", again)
			}
		})
	}
}

func TestLyingRelease(t *testing.T) {
	t.Parallel()
	from := &pieces{byDigest: map[string][]byte{}}
	r, other := from.add(t, []byte("module")), from.add(t, []byte("others"))
	r.Files[0].Pieces = other.Files[0].Pieces
	dir := t.TempDir()
	if _, err := NewCache(dir).obtain(t.Context(), r, from, ""); err == nil || !strings.Contains(err.Error(), "push it again") {
		t.Errorf("obtained: %v", err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestTemporaryCache(t *testing.T) {
	t.Parallel()
	from := &pieces{byDigest: map[string][]byte{}}
	c := NewCache("")
	folder := obtain(t, c, from.add(t, []byte("module")), from, "")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("a temporary cache stays")
	}
}
