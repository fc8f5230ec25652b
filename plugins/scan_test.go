package plugins

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

func symlink(t testing.TB, target, link string) { check(t, os.Symlink(target, link)) }

func mkdir(t testing.TB, path string) { check(t, os.MkdirAll(path, 0o700)) }

func TestLinks(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	write(t, elsewhere+"/out.wasm", guest(t, 9))
	mkdir(t, elsewhere+"/folder")
	write(t, elsewhere+"/folder/in.wasm", guest(t, 9))
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/real.wasm", guest(t, 1))
		symlink(t, "real.wasm", dir+"/near.wasm")
		symlink(t, dir+"/real.wasm", dir+"/absolute.wasm")
		symlink(t, "near.wasm", dir+"/chain.wasm")
		mkdir(t, dir+"/.hidden/deep")
		write(t, dir+"/.hidden/deep/x", guest(t, 2))
		symlink(t, ".hidden/deep/x", dir+"/hidden.wasm")
		mkdir(t, dir+"/acme")
		symlink(t, "../real.wasm", dir+"/acme/up.wasm")
		write(t, dir+"/acme/own.wasm", guest(t, 4))
		symlink(t, dir+"/acme/own.wasm", dir+"/acme/within.wasm")
		// Out of the directory and back again: what counts is where it ends.
		symlink(t, dir+"/real.wasm", elsewhere+"/back")
		symlink(t, elsewhere+"/back", dir+"/around.wasm")

		symlink(t, elsewhere+"/out.wasm", dir+"/out.wasm")
		symlink(t, "../"+filepath.Base(elsewhere)+"/out.wasm", dir+"/dots.wasm")
		symlink(t, "/dev/zero", dir+"/zero.wasm")
		symlink(t, "nowhere", dir+"/dangling.wasm")
		symlink(t, "loop.wasm", dir+"/loop.wasm")
		symlink(t, ".hidden", dir+"/folder.wasm")
		check(t, syscall.Mkfifo(dir+"/.pipe", 0o600))
		symlink(t, ".pipe", dir+"/pipe.wasm")
		symlink(t, elsewhere+"/folder", dir+"/{blue}")
		write(t, dir+"/manifest.wasm", guest(t, 1))
		symlink(t, "/etc/hosts", dir+"/manifest.yaml")
	})
	for queue, want := range map[string]int{
		"real": 1, "near": 1, "absolute": 1, "chain": 1, "hidden": 2, "around": 1, "within": 4, "up": 0,
	} {
		if got := f.runs("acme", queue); got != output(want) && want > 0 || got != "" && want == 0 {
			t.Errorf("%s: %q", queue, got)
		}
	}
	const outside = "the link ends outside the plugin directory"
	for plugin, words := range map[string][]string{
		"out": {outside, elsewhere + "/out.wasm", "copy the file into " + f.dir}, "dots": {outside}, "zero": {outside},
		"dangling": {`the link to "nowhere" cannot be followed (no such file or directory)`},
		"loop":     {`the link to "loop.wasm" cannot be followed`, "too many links"},
		"folder":   {"it is a folder: put a regular file in its place"},
		"pipe":     {"it is a named pipe"},
		"manifest": {f.path("manifest.yaml") + ": " + outside},
	} {
		f.awaitRefusal("", plugin, words...)
	}
	f.awaitRefusal("{blue}", "in", outside)
	f.awaitRefusal("acme", "up", "the link ends outside the folder of the tenant", "copy the file into "+f.path("acme"))

	// A link that is turned is a change, and so is a change of what it ends in.
	check(t, os.Rename(f.path("hidden.wasm"), f.path("near.wasm")))
	f.awaitRun("acme", "near", output(2))
	f.awaitRun("acme", "hidden", "")
	f.write(".hidden/deep/x", guest(t, 3))
	f.awaitRun("acme", "near", output(3))
	// A link that comes to lead outside changes nothing but an error.
	symlink(t, elsewhere+"/out.wasm", f.path(".turned"))
	check(t, os.Rename(f.path(".turned"), f.path("near.wasm")))
	f.awaitRefusal("", "near", outside)
	if got := f.runs("acme", "near"); got != output(3) {
		t.Errorf("output %q", got)
	}
}

// A file that several plugins link to need not be read for each, and each follows its changes all the same.
func TestLinksToOneFile(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/real.wasm", guest(t, 1)) })
	eventually(t, func() error { // the file is so old that it cannot change unseen
		info, err := os.Stat(f.path("real.wasm"))
		if err == nil && (fingerprint{info, changeTime(info)}).young(time.Now(), settleTime) {
			err = errors.New("the file is young")
		}
		return err
	})
	plugins := []string{"real", "a", "b"}
	for _, name := range plugins[1:] {
		symlink(t, "real.wasm", f.path(name+".wasm"))
	}
	for number, change := range []func(data []byte){
		nil,
		func(data []byte) { f.replace("real.wasm", data) },
		func(data []byte) { f.write("real.wasm", data) },
	} {
		if change != nil {
			change(guest(t, number+1))
		}
		for _, name := range plugins {
			f.awaitRun("acme", name, output(number+1))
		}
	}
}

// Nothing but a regular file is opened: a pipe would block, a device would do who knows what.
func TestNoRegularFile(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		check(t, syscall.Mkfifo(dir+"/pipe.wasm", 0o600))
		mkdir(t, dir+"/folder.wasm")
		write(t, dir+"/good.wasm", guest(t, 1))
		check(t, syscall.Mkfifo(dir+"/good.yaml", 0o600))
		write(t, dir+"/plain.wasm", guest(t, 1))
	})
	socket, err := net.Listen("unix", f.path("socket.wasm"))
	check(t, err)
	defer socket.Close()
	f.awaitRefusal("", "pipe", f.path("pipe.wasm")+": it is a named pipe: put a regular file in its place")
	f.awaitRefusal("", "folder", "it is a folder")
	f.awaitRefusal("", "socket", "it is a socket")
	f.awaitRefusal("", "good", f.path("good.yaml")+": it is a named pipe")

	// A pipe in the place of a good file changes nothing but an error.
	f.remove("plain.wasm")
	check(t, syscall.Mkfifo(f.path(".pipe"), 0o600))
	f.awaitRun("acme", "plain", "")
	f.write("plain.wasm", guest(t, 1))
	f.awaitRun("acme", "plain", output(1))
	check(t, os.Rename(f.path(".pipe"), f.path("plain.wasm")))
	f.awaitRefusal("", "plain", "it is a named pipe")
	if got := f.runs("acme", "plain"); got != output(1) {
		t.Errorf("output %q", got)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", nil)
		check(t, os.Truncate(dir+"/a.wasm", runtime.MaxModule+1)) // sparse: it takes no room
		write(t, dir+"/b.wasm", guest(t, 1))
		write(t, dir+"/b.yaml", nil)
		check(t, os.Truncate(dir+"/b.yaml", manifest.MaxSize+1))
	})
	f.awaitRefusal("", "a", "it has 67108865 bytes, more than 64MiB: make it smaller")
	f.awaitRefusal("", "b", f.path("b.yaml")+": it has 262145 bytes, more than 256KiB: make it smaller")
}

func TestIgnored(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		for _, name := range []string{".a.wasm", ".wasm", ".yaml", "a.txt", "a.WASM", "a.yml", "a.wasm~", "wasm"} {
			write(t, filepath.Join(dir, name), guest(t, 1))
		}
		mkdir(t, dir+"/other")
		write(t, dir+"/other/a.wasm", guest(t, 1))
		mkdir(t, dir+"/acme/acme")
		write(t, dir+"/acme/acme/a.wasm", guest(t, 1))
		write(t, dir+"/{blue}", guest(t, 1))
	})
	if got := f.List(); len(got) != 0 {
		t.Errorf("list %+v", got)
	}
	if got := strings.Count(f.logs.String(), "sub-folder ignored, it is no tenant that this host serves: folder=other"); got != 1 {
		t.Errorf("the ignored folder is logged %d times", got)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 128)
	f := setup(t, Config{}, func(dir string) {
		for _, name := range []string{"my plugin", "\xff\x1b[31m", "ü", long + "n", long, "a.b:c*!%"} {
			write(t, filepath.Join(dir, name+".wasm"), guest(t, 1))
		}
		write(t, dir+"/named.wasm", guest(t, 1))
		write(t, dir+"/named.yaml", []byte("name: other"))
	})
	for _, queue := range []string{long, "a.b:c*!%"} {
		if got := f.runs("acme", queue); got != output(1) {
			t.Errorf("queue %q: %q", queue, got)
		}
	}
	f.awaitRefusal("", "my plugin", `my plugin.wasm: the name has the byte 0x20`,
		"rename the file to 1 to 128 printable ASCII characters without a space")
	f.awaitRefusal("", `\xff\x1b[31m`, "the name has the byte 0xff")
	f.awaitRefusal("", "ü", "the name has the byte 0xc3")
	f.awaitRefusal("", long[:64]+"…", "the name has 129 bytes")
	f.awaitRefusal("", "named", `named.yaml:1: name: "other" is not the file's name: write name: named, or rename the two files to other.wasm and other.yaml`)
	if got := f.seen.count(`loaded "" \xff\x1b[31m refused`); got != 1 {
		t.Errorf("a name that is no UTF-8 is not escaped for labels: %q", f.seen.drain())
	}
}

func TestManifestAlone(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) { write(t, dir+"/a.yaml", []byte("version: 1")) })
	f.awaitRefusal("", "a", f.path("a.yaml")+" has no module beside it: add "+f.path("a.wasm")+", or remove the manifest")
	f.write("a.wasm", guest(t, 1))
	f.awaitRun("acme", "a", output(1))
	f.awaitNoRefusal("", "a")
	f.remove("a.wasm")
	f.awaitRun("acme", "a", "")
	f.awaitRefusal("", "a", "has no module beside it")
	f.remove("a.yaml")
	f.awaitNoRefusal("", "a")
}

func TestTenants(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", guest(t, 1))
		mkdir(t, dir+"/{blue}")
		write(t, dir+"/{blue}/a.wasm", guest(t, 2))
		write(t, dir+"/{blue}/b.wasm", guest(t, 3))
	})
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, b := range f.Bindings() {
			got = append(got, fmt.Sprintf("%s %s %s", b.Tenant, b.Queue, f.runs(b.Tenant, b.Queue)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect("acme a "+output(1), "{blue} a "+output(2), "{blue} b "+output(3))

	// A tenant's folder may come later, and a plugin of its own beats the common one by any file name.
	mkdir(t, f.path("acme"))
	f.write("acme/z.yaml", []byte("queues: [a]"))
	f.write("acme/z.wasm", guest(t, 4))
	f.awaitRun("acme", "a", output(4))
	expect("acme a "+output(4), "{blue} a "+output(2), "{blue} b "+output(3))
	if _, refused := f.status("acme", "z", StateRefused); refused || len(f.List()) != 4 {
		t.Errorf("list %+v", f.List())
	}

	// When it goes, the common one serves again.
	f.remove("acme")
	f.awaitRun("acme", "a", output(1))
	f.remove("{blue}/a.wasm")
	f.awaitRun("{blue}", "a", output(1))
	expect("acme a "+output(1), "{blue} a "+output(1), "{blue} b "+output(3))
}

func TestDirectoryComesAndGoes(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := base + "/deep/handlers"
	f := setup(t, Config{Dir: dir}, nil)
	if !strings.Contains(f.logs.String(), "the plugin directory does not exist, waiting for it: dir="+dir) {
		t.Error("a missing directory is not logged")
	}
	mkdir(t, dir)
	f.write("a.wasm", guest(t, 1))
	f.awaitRun("acme", "a", output(1))
	f.write("a.wasm", guest(t, 2)) // seen by the watch that was set meanwhile
	f.awaitRun("acme", "a", output(2))

	check(t, os.RemoveAll(dir))
	f.awaitRun("acme", "a", "")
	mkdir(t, dir)
	f.write("a.wasm", guest(t, 3))
	f.awaitRun("acme", "a", output(3))

	// What is no directory says nothing about the plugins.
	check(t, os.Rename(dir, base+"/aside"))
	write(t, dir, []byte("a file"))
	eventually(t, func() error {
		if !strings.Contains(f.logs.String(), "cannot read the plugin directory") {
			return fmt.Errorf("nothing is logged:\n%s", f.logs)
		}
		return nil
	})
	check(t, os.Remove(dir))
	check(t, os.Rename(base+"/aside", dir))
	f.write("a.wasm", guest(t, 4))
	f.awaitRun("acme", "a", output(4))
}

// The directory itself may be a link that is turned to the next release.
func TestDirectoryIsALink(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for i := range 2 {
		release := fmt.Sprintf("%s/release%d", base, i)
		mkdir(t, release)
		write(t, release+"/a.wasm", guest(t, i))
	}
	symlink(t, "release0", base+"/current")
	f := setup(t, Config{Dir: base + "/current"}, nil)
	f.awaitRun("acme", "a", output(0))
	symlink(t, "release1", base+"/next")
	check(t, os.Rename(base+"/next", base+"/current"))
	f.awaitRun("acme", "a", output(1))
	f.write("a.wasm", guest(t, 2))
	f.awaitRun("acme", "a", output(2))
}

// Kubernetes mounts a ConfigMap as links into a folder that a link names, which it turns at once.
func TestKubernetesSwap(t *testing.T) {
	t.Parallel()
	release := func(dir string, number int) {
		folder := fmt.Sprintf("..2026_%d", number)
		mkdir(t, filepath.Join(dir, folder))
		write(t, filepath.Join(dir, folder, "a.wasm"), guest(t, number))
		write(t, filepath.Join(dir, folder, "a.yaml"), fmt.Appendf(nil, "version: %d", number))
		symlink(t, folder, dir+"/..data_tmp")
		check(t, os.Rename(dir+"/..data_tmp", dir+"/..data"))
	}
	f := setup(t, Config{}, func(dir string) {
		release(dir, 1)
		symlink(t, "..data/a.wasm", dir+"/a.wasm")
		symlink(t, "..data/a.yaml", dir+"/a.yaml")
	})
	f.awaitRun("acme", "a", output(1))
	for number := 2; number < 5; number++ {
		release(f.dir, number)
		f.remove(fmt.Sprintf("..2026_%d", number-1))
		f.awaitRun("acme", "a", output(number))
		eventually(t, func() error {
			if s, _ := f.status("", "a", StateServing); s.Version != fmt.Sprint(number) {
				return fmt.Errorf("version %q, want %d", s.Version, number)
			}
			return nil
		})
	}
	if got := f.seen.count(`loaded "" a refused`) + f.seen.count(`loaded "" a gone`); got != 0 {
		t.Errorf("%q", f.seen.drain())
	}
}
