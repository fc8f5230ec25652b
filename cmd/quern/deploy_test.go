package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// modulePath is where `go install` finds the program.
const modulePath = "github.com/quern-project/quern"

// script runs a program of .ci, which needs jq.
func script(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Fatal("there is no jq: make deps brings it")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", ".ci", name), args...)
	cmd.Env = append(os.Environ(), "GZIP_LEVEL=1") // the slow ones prove no more
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, &stderr)
	}
	return out
}

// builds is how often something is built to compare the results. The short version builds it once.
func builds() int {
	if testing.Short() {
		return 1
	}
	return 2
}

// gunzip is done by a process, without the race detector.
func gunzip(t *testing.T, packed []byte) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gzip", "-dc")
	cmd.Stdin = bytes.NewReader(packed)
	content, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// unpacked are the files of a tar file by path, folders without content.
func unpacked(t *testing.T, archive io.Reader) (headers map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	headers, contents = make(map[string]*tar.Header), make(map[string][]byte)
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Clean(header.Name)
		headers[name] = header
		if contents[name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

// descriptor names a blob of an image.
type descriptor struct {
	MediaType, Digest string
	Size              int64
	Platform          struct{ OS, Architecture string }
}

// TestImage: the image is a valid one of OCI, the same at each build, for a user who is not root, and its program runs in it.
func TestImage(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	if testing.Short() {
		t.Skip("packs the program several times")
	}
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	images := make([][]byte, builds())
	for i := range images {
		dir := t.TempDir()
		script(t, "image", dir, runtime.GOARCH+"="+program)
		if images[i], err = os.ReadFile(filepath.Join(dir, "quern-image.tar")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(images[0], images[len(images)-1]) {
		t.Error("two images of the same program differ")
	}
	_, files := unpacked(t, bytes.NewReader(images[0]))
	if layout := string(files["oci-layout"]); layout != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %q", layout)
	}
	blob := func(d descriptor, into any) []byte {
		t.Helper()
		algorithm, digest, _ := strings.Cut(d.Digest, ":")
		content := files["blobs/"+algorithm+"/"+digest]
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != digest || int64(len(content)) != d.Size {
			t.Fatalf("%s %s is not what it names", d.MediaType, d.Digest)
		}
		if into != nil {
			decode(t, content, into)
		}
		return content
	}
	var outer, index struct{ Manifests []descriptor }
	decode(t, files["index.json"], &outer)
	blob(outer.Manifests[0], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("manifests: %+v", index.Manifests)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob(index.Manifests[0], &manifest)
	var config struct {
		Architecture, OS string
		Config           struct {
			User            string
			Env, Entrypoint []string
			Cmd             []string
			Healthcheck     struct{ Test []string }
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	blob(manifest.Config, &config)
	layer := gunzip(t, blob(manifest.Layers[0], nil))
	if sum := sha256.Sum256(layer); len(config.Rootfs.DiffIDs) != 1 || config.Rootfs.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Error("the layer is not that of the configuration")
	}
	if config.Architecture != runtime.GOARCH || config.OS != "linux" || config.Config.User != "65532:65532" {
		t.Errorf("%s/%s as %q", config.OS, config.Architecture, config.Config.User)
	}

	// The Dockerfile says the same.
	dockerfile := string(read(t, "cmd/quern/deploy/Dockerfile"))
	for _, line := range []string{
		"\nUSER " + config.Config.User + "\n", "\nENV " + strings.Join(config.Config.Env, " ") + "\n",
		"\nENTRYPOINT [\"" + strings.Join(config.Config.Entrypoint, `", "`) + "\"]\n", "\nCMD [\"" + strings.Join(config.Config.Cmd, `", "`) + "\"]\n",
		"\nHEALTHCHECK CMD [\"" + strings.Join(config.Config.Healthcheck.Test[1:], `", "`) + "\"]\n",
	} {
		if !strings.Contains(dockerfile, line) {
			t.Errorf("the Dockerfile has no line %q", line)
		}
	}

	headers, contents := unpacked(t, bytes.NewReader(layer))
	for path, mode := range map[string]int64{
		"usr/local/bin/quern": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644, "plugins": 0o755, "tmp": 0o1777, "var/cache/quern": 0o700,
	} {
		owner := 0
		if mode == 0o700 {
			owner = 65532
		}
		if header := headers[path]; header == nil || header.Mode&0o7777 != mode || header.Uid != owner {
			t.Errorf("%s: %+v, want mode %o and owner %d", path, header, mode, owner)
		}
	}
	root := t.TempDir()
	write(t, filepath.Join(root, "quern"), string(contents["usr/local/bin/quern"]))
	runAlone(t, root)
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// distributed is a folder of builds, whose dist has the archive of this platform.
func distributed(t *testing.T) string {
	t.Helper()
	engines := absolute(t, "../../build/engines")
	for _, needed := range []string{"python.wasm", "javascript.wasm", "downloads"} {
		if _, err := os.Stat(filepath.Join(engines, needed)); err != nil {
			runtimetest.Missing(t, "make engines brings what is packed: "+err.Error())
		}
	}
	build := t.TempDir()
	if err := os.Symlink(engines, filepath.Join(build, "engines")); err != nil {
		t.Fatal(err)
	}
	script(t, "dist", build, runtime.GOOS+"/"+runtime.GOARCH)
	return build
}

// TestDist: an archive has the program, the engines, and a license for each module; its sum stands beside it, and another is the same.
func TestDist(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	platform := runtime.GOOS + "-" + runtime.GOARCH
	sums := make([]string, builds())
	var archive []byte
	for i := range sums {
		build := distributed(t)
		list, err := os.ReadFile(filepath.Join(build, "dist", "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(list)
		sum, name, _ := strings.Cut(strings.TrimSpace(sums[i]), "  ")
		if archive, err = os.ReadFile(filepath.Join(build, "dist", name)); err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(archive); hex.EncodeToString(got[:]) != sum || !strings.HasSuffix(name, "-"+platform+".tar.gz") {
			t.Errorf("%s has the sum %x, want %s", name, got, sum)
		}
	}
	if last := sums[len(sums)-1]; sums[0] != last {
		t.Errorf("two archives of the same sources:\n%s%s", sums[0], last)
	}
	headers, contents := unpacked(t, bytes.NewReader(gunzip(t, archive)))
	packed := make(map[string]*tar.Header)
	var sbom []byte
	for path, header := range headers {
		_, below, _ := strings.Cut(path, "/")
		packed[below] = header
		if below == "sbom.cdx.json" {
			sbom = contents[path]
		}
		if filepath.Ext(below) == ".md" && !strings.Contains(below, "/") {
			for _, link := range regexp.MustCompile(`(?:\]\(|src=")([^)"#]+)`).FindAllSubmatch(contents[path], -1) {
				if _, err := url.ParseRequestURI(string(link[1])); err != nil {
					t.Errorf("%s: the archive does not have what it links to: %v", below, err)
				}
			}
		}
	}
	for _, path := range []string{
		"quern", "LICENSE", "engines/python.wasm", "engines/javascript.wasm", "engines/python/lib/python311.zip", "licenses/Go.txt", "licenses/CPython.txt",
	} {
		if packed[path] == nil || packed[path].Size == 0 {
			t.Errorf("%s is not there", path)
		}
	}
	if header := packed["quern"]; header != nil && header.Mode != 0o755 {
		t.Errorf("the program has mode %o", header.Mode)
	}
	var bom struct{ Components []struct{ Name, Purl string } }
	decode(t, sbom, &bom)
	for _, c := range bom.Components {
		if strings.HasPrefix(c.Purl, "pkg:golang/") && c.Name != "std" && packed["licenses/"+c.Name] == nil {
			t.Errorf("module %s has no license", c.Name)
		}
	}
}

// TestPackages: pip and npm install the program with its engines from files alone, and it builds and runs a first handler.
func TestPackages(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	if testing.Short() {
		t.Skip("packs the program several times")
	}
	build, platform := distributed(t), runtime.GOOS+"/"+runtime.GOARCH
	sums := make([]string, builds())
	for i := range sums {
		sums[i] = string(script(t, "packages", build, platform))
	}
	if last := sums[len(sums)-1]; sums[0] != last {
		t.Errorf("two packages of the same program:\n%s%s", sums[0], last)
	}
	dist := filepath.Join(build, "dist")
	packages, err := filepath.Glob(filepath.Join(dist, "quern*-*.*.*.tgz"))
	if err != nil || len(packages) != 4 {
		t.Fatalf("npm packages %v: %v", packages, err)
	}
	python := filepath.Join(t.TempDir(), "venv")
	node := t.TempDir()
	for _, install := range [][]string{
		{absolute(t, "../../build/venv/bin/python"), "-m", "venv", python},
		{filepath.Join(python, "bin", "pip"), "install", "--quiet", "--no-index", "--find-links", dist, "quern"},
		append([]string{"npm", "install", "--prefix", node, "--offline", "--no-audit", "--no-fund", "--cache", filepath.Join(node, "cache")}, packages...),
	} {
		if said, err := exec.CommandContext(t.Context(), install[0], install[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", install, err, said)
		}
	}
	for language, program := range map[string]string{
		"python": filepath.Join(python, "bin", "quern"), "typescript": filepath.Join(node, "node_modules", ".bin", "quern"),
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			quern := func(input string, args ...string) (string, int) {
				cmd := exec.CommandContext(t.Context(), program, args...)
				cmd.Dir, cmd.Stdin = home, strings.NewReader(input)
				cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
				said, _ := cmd.CombinedOutput()
				return string(said), cmd.ProcessState.ExitCode()
			}
			if said, status := quern("", "plugin", "new", "hello", "--lang", language); status != 0 {
				t.Fatalf("new: exit %d: %s", status, said)
			}
			if about, err := os.ReadFile(filepath.Join(home, "hello", "package.json")); err == nil && !strings.Contains(string(about), `"quern": "^`) {
				t.Errorf("npm has brought the program, and a clone of the plugin has none:\n%s", about)
			}
			if said, status := quern("", "plugin", "build", "hello"); status != 0 {
				t.Fatalf("build: exit %d: %s", status, said)
			}
			if said, status := quern("Ada", "plugin", "run", "hello/hello.wasm"); status != 0 || !strings.Contains(said, "Hello, Ada!") {
				t.Errorf("run: exit %d: %s", status, said)
			}
			if said, status := quern("", "plugin", "build", "nothing"); status != exitUsage {
				t.Errorf("build of nothing: exit %d, want %d: %s", status, exitUsage, said)
			}

			// A signal to what was installed ends the program in order.
			u := newUser(t, queuetest.Start(t).URL())
			plugins, address := folder(t, map[string][]byte{"echo": runtimetest.Echo(t)}), freeAddress(t)
			host := u.prepare("serve", "--plugins", plugins, "--http", address)
			host.Path, host.Args[0] = program, program
			var log bytes.Buffer
			host.Stderr = &log
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = host.Process.Kill() }()
			awaitStatus(t, "http://"+address+"/readyz", http.StatusOK)
			if err := host.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := host.Wait(); err != nil || !strings.Contains(log.String(), "left: tenant=") {
				t.Errorf("serve after SIGTERM: %v: %s", err, &log)
			}
		})
	}
}

// TestSBOM: the list has every module in the binary, and both engines.
func TestSBOM(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	decode(t, script(t, "sbom", program), &bom)
	found := make(map[string]bool)
	for _, c := range bom.Components {
		found[c.Name] = c.Version != "" && strings.HasSuffix(c.Purl, "@"+strings.TrimPrefix(c.Version, "go"))
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "dep" {
			modules++
			if !found[words[1]] {
				t.Errorf("module %s is not listed", words[1])
			}
		}
	}
	for _, name := range []string{"std", "CPython", "SQLite", "expat", "QuickJS-ng", "core-js-pure"} {
		if !found[name] {
			t.Errorf("%s is not listed", name)
		}
	}
	if bom.BOMFormat != "CycloneDX" || modules == 0 {
		t.Errorf("format %q, %d modules", bom.BOMFormat, modules)
	}
}

// TestInstallFromTag: `go install PACKAGE@TAG` finds all that it builds in what was committed, and links the tag in.
func TestInstallFromTag(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	if testing.Short() {
		t.Skip("all dependencies are unpacked again")
	}
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "git", "-C", repository, "rev-parse", "HEAD").Run(); err != nil {
		runtimetest.Missing(t, "this is no repository of git: "+err.Error())
	}
	dir := t.TempDir()
	clone := filepath.Join(dir, "clone")
	try := func(environment []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), environment...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	try(nil, "git", "clone", "--quiet", "--bare", repository, clone)
	try(nil, "git", "-C", clone, "tag", "--force", "v0.0.99")
	downloads := strings.TrimSpace(try(nil, "go", "env", "GOMODCACHE"))
	plan := try([]string{
		// The repository is this one, and what it needs is here already.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + modulePath,
		"GONOPROXY=" + modulePath, "GONOSUMDB=*", "GOPROXY=file://" + filepath.Join(downloads, "cache", "download"),
		"GOMODCACHE=" + filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0",
	}, "go", "install", "-n", modulePath+"/cmd/quern@v0.0.99") // finds all files, and compiles nothing
	if !strings.Contains(plan, `mod\t`+modulePath+`\tv0.0.99\t`) {
		t.Errorf("the tag is not linked in:\n%s", plan)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
