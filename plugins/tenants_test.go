package plugins

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
)

// TestSwappedFolders: while a tenant takes folders of its own for links to those of another one, and back, what a host reads for
// it is never the other's, nor does a host take one's file for the other's.
func TestSwappedFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, folder := range []string{"/a/d", "/b"} {
		mkdir(t, dir+folder)
		for _, name := range []string{"/x.wasm", "/x.yaml", "/secret"} {
			write(t, dir+folder+name, []byte("of "+folder[1:2]))
		}
	}
	symlink(t, "d/x.wasm", dir+"/a/x.wasm")
	symlink(t, "d/x.yaml", dir+"/a/x.yaml")
	symlink(t, "../b", dir+"/a/link")
	theirs := map[string]fs.FileInfo{}
	for _, name := range []string{"x.wasm", "x.yaml", "secret"} {
		info, err := os.Stat(dir + "/b/" + name)
		check(t, err)
		theirs[name] = info
	}
	m, err := manifest.Parse("x.yaml", []byte("warm: {input: d/secret}\ncapabilities: {files: [{from: d/secret, to: /s}]}\n"))
	check(t, err)

	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			for _, step := range [][2]string{{"d", "own"}, {"link", "d"}, {"d", "link"}, {"own", "d"}} {
				if err := os.Rename(dir+"/a/"+step[0], dir+"/a/"+step[1]); err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	read, refused := 0, 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		s, err := scanDirectory(dir, []string{"a", "b"})
		check(t, err)
		seen := s.seen[id{tenant: "a", name: "x"}]
		named := s.named("a", "a/x.yaml", &m)
		files := map[string]file{"x.wasm": seen.module, "x.yaml": seen.manifest}
		for i, f := range named.files {
			files[fmt.Sprint("secret ", i)] = f
		}
		for name, f := range files {
			if f.problem != nil || !f.exists {
				refused++
				continue
			}
			if info := theirs[strings.Fields(name)[0]]; os.SameFile(f.fingerprint.info, info) {
				t.Fatalf("%s is taken for that of b", name)
			}
			content, err := readStable(f.root, f.path, 100, f.fingerprint.size(), nil)
			switch {
			case err != nil:
				refused++
			case !bytes.Equal(content.data, []byte("of a")):
				t.Fatalf("%s is %q", name, content.data)
			default:
				read++
			}
		}
		for _, path := range []string{"d/secret", "d/x.yaml"} {
			if data, err := LoadFile(dir+"/a/x.yaml", path, 100); err == nil && string(data) != "of a" {
				t.Fatalf("%s is %q", path, data)
			}
		}
	}
	close(done)
	swapper.Wait()
	if read == 0 || refused == 0 {
		t.Errorf("%d files were read and %d refused: nothing was swapped meanwhile", read, refused)
	}
}

// TestLinksToAnotherTenant: neither module, manifest nor a file of another tenant, or of the common folder, is a tenant's.
func TestLinksToAnotherTenant(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{Tenants: []string{"a", "b"}}, func(dir string) {
		mkdir(t, dir+"/a")
		mkdir(t, dir+"/b/more")
		write(t, dir+"/b/mail.wasm", guest(t, 1))
		write(t, dir+"/b/mail.yaml", []byte("version: of-b\nconfig: {smtp_password: hunter2}\n"))
		write(t, dir+"/common.yaml", []byte("version: common\n"))
		write(t, dir+"/common.wasm", guest(t, 2))

		write(t, dir+"/a/mail.wasm", guest(t, 3))
		symlink(t, "../b/mail.yaml", dir+"/a/mail.yaml")
		symlink(t, "../b/mail.wasm", dir+"/a/module.wasm")
		symlink(t, "../common.wasm", dir+"/a/shared.wasm")
		write(t, dir+"/a/config.wasm", guest(t, 3))
		symlink(t, "../common.yaml", dir+"/a/config.yaml")
		write(t, dir+"/a/up.wasm", guest(t, 3))
		symlink(t, "..", dir+"/a/parent")
		symlink(t, "parent/b/mail.yaml", dir+"/a/up.yaml")

		symlink(t, "b/mail.yaml", dir+"/own.yaml") // by the operator, who alone writes there
		write(t, dir+"/own.wasm", guest(t, 4))
	})
	for plugin, end := range map[string]string{"mail": "b/mail.yaml", "module": "b/mail.wasm", "shared": "common.wasm", "config": "common.yaml", "up": "b/mail.yaml"} {
		status := f.awaitRefusal("a", plugin, "the link ends outside the folder of the tenant, in "+f.path(end)+": copy the file into "+f.path("a"))
		if strings.Contains(status.Error+status.Version, "hunter2") || status.Version == "of-b" {
			t.Errorf("%s tells of the other's manifest: %+v", plugin, status)
		}
	}
	for _, plugin := range []string{"mail", "up"} {
		if _, err := LoadManifest(f.path("a/" + plugin + ".yaml")); err == nil || !strings.Contains(err.Error(), "ends outside") {
			t.Errorf("check of %s: %v", plugin, err)
		}
	}
	f.awaitRun("b", "mail", output(1))
	f.awaitRun("a", "own", output(4))
}

// TestManifestsTakeTurns: a manifest that waits for its tenant's turn, or takes long, holds up nothing of another tenant.
func TestManifestsTakeTurns(t *testing.T) {
	t.Parallel()
	f := prepared(t, Config{Tenants: []string{"a", "b"}}, func(dir string) {
		mkdir(t, dir+"/a")
		mkdir(t, dir+"/b")
		write(t, dir+"/a/slow.wasm", guest(t, 1))
		write(t, dir+"/a/slow.yaml", []byte("version: 1\n#"+strings.Repeat("x", 200<<10)))
		write(t, dir+"/b/ok.wasm", guest(t, 2))
		write(t, dir+"/b/ok.yaml", []byte("version: 2\n"))
	})
	// What is left is enough for the modules and for the small manifest.
	leave, err := f.loader.readers.Acquire(t.Context(), "a", maxReading-16<<20)
	check(t, err)
	defer leave()
	f.start()
	f.awaitRun("b", "ok", output(2))
	if got := f.runs("a", "slow"); got != "" {
		t.Errorf("a large manifest was decoded out of turn: %q", got)
	}
	select {
	case <-f.Ready():
		t.Error("the directory is ready before each manifest was read")
	default:
	}
	leave()
	f.awaitRun("a", "slow", output(1))
	<-f.Ready()
}
