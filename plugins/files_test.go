package plugins

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

const grant = "capabilities: {files: [{from: models/model.bin, to: /data/model.bin}]}"

// filesDigest is that of the version that serves; "" if none does.
func (f *fixture) filesDigest(queue string) string {
	v := f.Acquire("acme", queue)
	if v == nil {
		return ""
	}
	defer v.Release()
	if (v.files == nil) != (v.content.files == "") {
		f.t.Errorf("files %v, digest %q", v.files, v.content.files)
	}
	return v.content.files
}

// awaitFiles waits until a version with other files than before serves.
func (f *fixture) awaitFiles(queue, before string) (digest string) {
	f.t.Helper()
	eventually(f.t, func() error {
		if digest = f.filesDigest(queue); digest == "" || digest == before {
			return errors.New("the version that serves is the same")
		}
		return nil
	})
	return digest
}

func TestFilesBelongToTheVersion(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", guest(t, 1))
		write(t, dir+"/a.yaml", []byte(grant))
		write(t, dir+"/plain.wasm", guest(t, 1))
	})
	// A file that is missing refuses the plugin, with the line and the remedy; it is loaded when it is there.
	f.awaitRefusal("", "a", f.path("a.yaml")+`:1: capabilities.files[0].from: "models/model.bin": there is no such file: `+
		"put it into the folder of the manifest, or correct the path")
	if got := f.runs("acme", "a"); got != "" {
		t.Errorf("a plugin without its file runs: %q", got)
	}
	mkdir(t, f.path("models"))
	f.write("models/model.bin", []byte("one"))
	first := f.awaitFiles("a", "")
	f.awaitNoRefusal("", "a")
	if digest := f.filesDigest("plain"); digest != "" {
		t.Errorf("a plugin without files has those of %s", digest)
	}

	// Other content is another version, also if it is as long as before; who holds the old one keeps it.
	held := f.Acquire("acme", "a")
	defer held.Release()
	f.seen.drain()
	f.write("models/model.bin", []byte("two"))
	second := f.awaitFiles("a", first)
	if held.content.files != first {
		t.Errorf("the held version's files changed from %s to %s", first, held.content.files)
	}
	if f.seen.count(`loaded "" a ok`) != 1 {
		t.Errorf("events %q", f.seen.drain())
	}

	// A file that goes, or becomes what will not be read, changes nothing but an error.
	f.remove("models/model.bin")
	f.awaitRefusal("", "a", "there is no such file")
	check(t, syscall.Mkfifo(f.path("models/model.bin"), 0o600))
	f.awaitRefusal("", "a", `"models/model.bin": it is a named pipe: put a regular file in its place`)
	if got := f.filesDigest("a"); got != second {
		t.Errorf("files %s serve, want %s", got, second)
	}
	f.remove("models/model.bin")
	f.write("models/model.bin", []byte("two"))
	f.awaitNoRefusal("", "a")
	if got := f.filesDigest("a"); got != second {
		t.Errorf("the same content as before has the digest %s, want %s", got, second)
	}
	// A new module and a new manifest take the files along.
	f.replace("a.wasm", guest(t, 2))
	f.awaitRun("acme", "a", output(2))
	if got := f.filesDigest("a"); got != second {
		t.Errorf("files %s after a swap of the module, want %s", got, second)
	}
	f.replace("a.yaml", []byte(`{version: 2, `+grant+`}`))
	eventually(t, func() error {
		if s, _ := f.status("", "a", StateServing); s.Version != "2" {
			return fmt.Errorf("%+v", f.List())
		}
		return nil
	})
	if got := f.filesDigest("a"); got != second {
		t.Errorf("files %s after a swap of the manifest, want %s", got, second)
	}
}

// TestFilesSettle: what has not changed for a while is neither read nor loaded again.
func TestFilesSettle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/model", []byte("one"))
	f := file{path: "model"}
	read := func() fingerprint {
		info, err := os.Lstat(dir + "/model")
		check(t, err)
		return fingerprint{info, changeTime(info)}
	}
	f.fingerprint = read()
	p := &plugin{named: namedFiles{files: []file{f}}}
	now := time.Now()
	r := loadResult{loadRequest: loadRequest{files: []file{f}}, found: identity{files: "sha256:1"}, readAt: now}
	p.learn(r)
	if p.assess(now); p.state != stateStale {
		t.Error("a file of this moment is trusted")
	}
	if o := p.request(); o.trusted.files != "" {
		t.Error("the digest of a file of this moment is trusted")
	}
	r.readAt = now.Add(settleTime)
	p.learn(r)
	if p.assess(now); p.state != stateIdle {
		t.Error("a file that is as it was is due")
	}
	if o := p.request(); o.trusted.files != "sha256:1" {
		t.Errorf("digest %q", o.trusted.files)
	}
	write(t, dir+"/model", []byte("longer"))
	p.named.files[0].fingerprint = read()
	if p.assess(now); p.state != stateChanged {
		t.Error("a file that changed is not due")
	}
	if o := p.request(); o.trusted.files != "" {
		t.Error("the digest of what the file was is trusted")
	}
}

func TestFilesOutside(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	write(t, elsewhere+"/secret", []byte("secret"))
	f := setup(t, Config{}, func(dir string) {
		plugin := func(name, from string) {
			write(t, dir+"/"+name+".wasm", guest(t, 1))
			write(t, dir+"/"+name+".yaml", []byte("name: "+name[strings.LastIndex(name, "/")+1:]+"\ncapabilities:\n  files:\n  - to: /data\n    from: "+from))
		}
		mkdir(t, dir+"/acme")
		write(t, dir+"/common", []byte("common"))
		symlink(t, "../common", dir+"/acme/up")
		plugin("acme/outside", "up")
		mkdir(t, dir+"/beta")
		write(t, dir+"/beta/secret", []byte("secret"))
		symlink(t, "../beta/secret", dir+"/acme/theirs")
		plugin("acme/stolen", "theirs")
		symlink(t, dir, dir+"/round")
		plugin("round", "round/round/common")
		write(t, dir+"/acme/own", []byte("own"))
		plugin("acme/own", "own")

		symlink(t, elsewhere+"/secret", dir+"/link")
		plugin("link", "link")
		symlink(t, elsewhere, dir+"/linked")
		plugin("folder", "linked/secret")
		symlink(t, "loop", dir+"/loop")
		plugin("loop", "loop")
		mkdir(t, dir+"/models")
		plugin("models", "models")
		plugin("below", "common/x")
		write(t, dir+"/large", nil)
		check(t, os.Truncate(dir+"/large", manifest.MaxFiles/2+1)) // sparse: it takes no room
		write(t, dir+"/many.wasm", guest(t, 1))
		write(t, dir+"/many.yaml", []byte("capabilities:\n  files:\n  - {from: large, to: /a}\n  - {from: large, to: /b}"))
		write(t, dir+"/two.wasm", guest(t, 1))
		write(t, dir+"/two.yaml", []byte("capabilities:\n  files:\n  - {from: one, to: /a}\n  - {from: link, to: /b}"))
	})
	for _, queue := range []string{"round", "own"} {
		if f.filesDigest(queue) == "" {
			t.Errorf("%s does not serve: %+v", queue, f.List())
		}
	}
	const outside = "the link ends outside the folder of the manifest, in "
	for _, stolen := range []string{"outside", "stolen"} {
		f.awaitRefusal("acme", stolen, outside)
	}
	at := func(name string, line int, rest string) string {
		return fmt.Sprintf("%s:%d: capabilities.files%s", f.path(name+".yaml"), line, rest)
	}
	for plugin, want := range map[string]string{
		"link":   at("link", 5, `[0].from: "link": `+outside+elsewhere+"/secret: copy the file into that folder, or link to a file in it"),
		"folder": at("folder", 5, `[0].from: "linked/secret": `+outside+elsewhere+"/secret"),
		"loop":   at("loop", 5, `[0].from: "loop": the path cannot be followed (`),
		"models": at("models", 5, `[0].from: "models": it is a folder: put a regular file in its place`),
		"below":  at("below", 5, `[0].from: "common/x": there is no such file`),
		"many":   at("many", 3, ": the files have 67108866B together: grant at most 64MiB"),
		"two": at("two", 3, `[0].from: "one": there is no such file: put it into the folder of the manifest, or correct the path; `+
			at("two", 4, `[1].from: "link": `+outside)),
	} {
		f.awaitRefusal("", plugin, want)
	}
}

// What cannot be read is told with its line, all at once; what changes meanwhile is looked for again.
func TestReadGranted(t *testing.T) {
	t.Parallel()
	m, err := manifest.Parse("x.yaml", []byte("capabilities:\n  files:\n  - {from: a, to: /a}\n  - {from: b, to: /b}"))
	check(t, err)
	files := []file{{path: "a"}, {path: "b"}}
	answer := map[string]error{"a": syscall.EACCES, "b": &manifest.Fault{What: "it has 9 bytes, more than 8B", Remedy: "make it smaller"}}
	read := func(f file, _ int64) (content, error) { return content{data: []byte(f.path)}, answer[f.path] }
	_, err = readNamed("x.yaml", &m, files, read)
	want := `x.yaml:3: capabilities.files[0].from: "a" cannot be read: permission denied: let the host's user read it; ` +
		`x.yaml:4: capabilities.files[1].from: "b": it has 9 bytes, more than 8B: make it smaller`
	if !errors.Is(err, manifest.ErrRefused) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	answer = map[string]error{"b": errUnstable}
	if _, err := readNamed("x.yaml", &m, files, read); !errors.Is(err, errUnstable) || !strings.Contains(err.Error(), `"b" of capabilities.files`) {
		t.Errorf("got %v", err)
	}
	answer = nil
	both, err := readNamed("x.yaml", &m, files, read)
	check(t, err)
	if swapped, _ := readNamed("x.yaml", &m, []file{files[1], files[0]}, read); swapped.digest == both.digest {
		t.Error("the same contents at other paths have the same digest")
	}
}

func TestLoadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := manifest.Parse(dir+"/a.yaml", []byte("capabilities:\n  files: [{from: model, to: /data/model}]"))
	check(t, err)
	if _, _, err := LoadFiles(dir+"/a.yaml", m); !errors.Is(err, manifest.ErrRefused) || !strings.Contains(err.Error(), dir+"/a.yaml:2: capabilities.files[0].from") {
		t.Errorf("got %v", err)
	}
	symlink(t, "/etc/hosts", dir+"/model")
	if _, _, err := LoadFiles(dir+"/a.yaml", m); !errors.Is(err, manifest.ErrRefused) || !strings.Contains(err.Error(), "ends outside") {
		t.Errorf("got %v", err)
	}
	check(t, os.Remove(dir+"/model"))
	write(t, dir+"/model", []byte("weights"))
	if files, warm, err := LoadFiles(dir+"/a.yaml", m); err != nil || files == nil || warm != nil {
		t.Errorf("got %v, %q, %v", files, warm, err)
	}
	if files, warm, err := LoadFiles(dir+"/a.yaml", manifest.Manifest{}); err != nil || files != nil || warm != nil {
		t.Errorf("without a grant: %v, %q, %v", files, warm, err)
	}
	if files, warm, err := LoadFiles(dir+"/a.yaml", manifest.Manifest{Warm: manifest.Warm{Input: "model"}}); err != nil || files != nil || string(warm) != "weights" {
		t.Errorf("with a warm input: %v, %q, %v", files, warm, err)
	}
}

// TestGuestReadsItsFiles: what a task reads is what the version was loaded with.
func TestGuestReadsItsFiles(t *testing.T) {
	t.Parallel()
	model := bytes.Repeat([]byte("weights\x00"), 100_000)
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", runtimetest.Cat(t))
		write(t, dir+"/a.yaml", []byte(grant))
		mkdir(t, dir+"/models")
		write(t, dir+"/models/model.bin", model)
	})
	read := func(v *TenantVersion, path string) runtime.Outcome {
		return v.Run(t.Context(), runtime.Call{TaskID: "1", Input: []byte(path)})
	}
	v := f.Acquire("acme", "a")
	if v == nil {
		t.Fatalf("%+v", f.List())
	}
	defer v.Release()
	before := v.content.files
	f.write("models/model.bin", []byte("others"))
	f.awaitFiles("a", before)
	if got := read(v, "/data/model.bin"); got.Kind != runtime.Complete || !bytes.Equal(got.Output, model) {
		t.Errorf("%d bytes, %+v", len(got.Output), got.Message)
	}
	next := f.Acquire("acme", "a")
	defer next.Release()
	if got := read(next, "/data/model.bin"); got.Kind != runtime.Complete || string(got.Output) != "others" {
		t.Errorf("%q, %+v", got.Output, got.Message)
	}
	for _, path := range []string{"/data/other", "/etc/hosts", "/data/../etc/hosts", "/data", "models/model.bin", f.path("models/model.bin")} {
		if got := read(next, path); got.Kind != runtime.Failed || got.Code != 66 {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestLoadManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.yaml")

	if _, err := LoadManifest(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	write(t, path, []byte("version: 2\n"))
	if m, err := LoadManifest(path); err != nil || m.Version != "2" || m.Name != "x" {
		t.Errorf("a file: %+v, %v", m, err)
	}
	link := filepath.Join(dir, "y.yaml")
	if err := os.Symlink("x.yaml", link); err != nil {
		t.Fatal(err)
	}
	if m, err := LoadManifest(link); err != nil || m.Name != "y" {
		t.Errorf("a link: %+v, %v", m, err)
	}
	pipe := filepath.Join(dir, "z.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadManifest(pipe); err == nil || !strings.Contains(err.Error(), "it is a named pipe") {
		t.Errorf("a pipe: %v", err)
	}
}
