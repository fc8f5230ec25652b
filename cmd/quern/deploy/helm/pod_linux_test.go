package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) { queuetest.Exit(m) }

// idle is a WASI program that ends at once: a handler whose tasks complete.
const idle = "\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x05\x03\x01\x00\x01" +
	"\x07\x13\x02\x06_start\x00\x00\x06memory\x02\x00" + "\x0a\x04\x01\x02\x00\x0b"

var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "quern")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/quern", "./cmd/quern")
	cmd.Dir, cmd.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir + "/quern", nil
})

// output is what a process prints, which the test reads meanwhile.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(2 * time.Minute); !holds(); {
		select {
		case <-deadline:
			t.Fatalf("not within two minutes: %s", what)
		case <-tick.C:
		}
	}
}

// mount lays out files as a kubelet does: as links into a folder that a link names, which it turns at once.
func mount(t testing.TB, dir string, files map[string]string, items []any) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "..2026_11_30"), 0o755))
	must(t, os.Symlink("..2026_11_30", filepath.Join(dir, "..data")))
	paths := map[string]string{}
	for name := range files {
		paths[name] = name
	}
	if items != nil {
		clear(paths)
		for _, item := range items {
			paths[at(item, "key").(string)] = at(item, "path").(string)
		}
	}
	for key, path := range paths {
		content, ok := files[key]
		if !ok {
			t.Fatalf("%s: there is no key %s", dir, key)
		}
		must(t, os.WriteFile(filepath.Join(dir, "..data", path), []byte(content), 0o440))
		must(t, os.Symlink(filepath.Join("..data", path), filepath.Join(dir, path)))
	}
}

// pod is the container of a Deployment as a process, below a root of its own.
type pod struct {
	*exec.Cmd
	log     output
	address string // where it listens
	ready   string // the path of its readiness probe
}

// start runs the container. given has the Secrets and ConfigMaps that the chart does not make.
func start(t testing.TB, objects map[string]object, deployment string, given map[string]map[string]string) *pod {
	t.Helper()
	quern, err := program()
	must(t, err)
	root := t.TempDir()
	spec := at(objects["Deployment/"+deployment], "spec", "template", "spec")
	container := at(spec, "containers", 0)
	places := map[any]string{}
	for _, one := range at(container, "volumeMounts").([]any) {
		places[at(one, "name")] = filepath.Join(root, at(one, "mountPath").(string))
	}
	for _, volume := range at(spec, "volumes").([]any) {
		dir := places[at(volume, "name")]
		switch {
		case at(volume, "emptyDir") != nil:
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.Chmod(dir, 0o777|os.ModeSetgid)) // as with an fsGroup
		case at(volume, "secret") != nil:
			items, _ := at(volume, "secret", "items").([]any)
			mount(t, dir, given[at(volume, "secret", "secretName").(string)], items)
		default:
			name := at(volume, "configMap", "name").(string)
			files := given[name]
			data, _ := at(objects["ConfigMap/"+name], "data").(object)
			for key, content := range data {
				if files == nil {
					files = map[string]string{}
				}
				files[key] = content.(string)
			}
			mount(t, dir, files, nil)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &pod{address: listener.Addr().String(), ready: at(container, "readinessProbe", "httpGet", "path").(string)}
	must(t, listener.Close())
	var args []string
	for _, arg := range at(container, "args").([]any) {
		args = append(args, strings.NewReplacer("=/", "="+root+"/", "0.0.0.0:9464", p.address, "0.0.0.0:9465", p.address).Replace(arg.(string)))
	}
	p.Cmd = exec.CommandContext(t.Context(), quern, args...)
	p.Env = []string{"TMPDIR=" + root + "/tmp", "HOME=/nonexistent"}
	p.Stderr = &p.log
	must(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", strings.Join(args, " "), p.log.String())
		}
	})
	return p
}

// ask returns the status and the body of an answer, 0 if there is none.
func (p *pod) ask(t testing.TB, method, path, token, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.address+path, strings.NewReader(body))
	must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// The pods of the chart do their work as processes: the API tells a scaler of a task that waits for a host, a host starts
// and runs it, and ends on SIGTERM.
func TestPodsRun(t *testing.T) {
	quern, err := program()
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(quern)) })
	redis := queuetest.Start(t)
	tokens, entries := map[string]string{}, "tokens:\n"
	for _, role := range []string{"viewer", "operator"} {
		cmd := exec.CommandContext(t.Context(), quern, "admin", "token", role, "--role", role)
		var entry bytes.Buffer
		cmd.Stderr = &entry
		token, err := cmd.Output()
		must(t, err)
		tokens[role], entries = strings.TrimSpace(string(token)), entries+entry.String()
	}
	objects, _, err := render(t, text(t, "examples/one-tenant.yaml"),
		"host: {plugins: {source: configMap, configMap: plugins}, grants: {acme: {capabilities: {}, secrets: {}}}}")
	must(t, err)
	given := map[string]map[string]string{
		"acme-redis": {"url": redis.URL()}, "acme-secrets": {"api_key": "secret"}, "quern-tokens": {"tokens.yaml": entries},
		"plugins": {"mail.wasm": idle, "mail.yaml": "version: 1.0.0\n"},
	}
	admin := start(t, objects, "quern-admin", given)
	load := func() (of struct{ Waiting, Load int }) {
		status, body := admin.ask(t, http.MethodGet, "/v1/tenants/acme/queues/mail/load", tokens["viewer"], "")
		if err := json.Unmarshal([]byte(body), &of); status != http.StatusOK || err != nil {
			of.Load = -1
		}
		return of
	}
	eventually(t, "an idle queue", func() bool { return load().Load == 0 })
	status, body := admin.ask(t, http.MethodPost, "/v1/tenants/acme/queues/mail/tasks?id=one", tokens["operator"], "x")
	if status/100 != 2 {
		t.Fatal(status, body)
	}
	if got := load(); got.Load != 1 || got.Waiting != 1 {
		t.Errorf("%+v before there is a host", got)
	}

	host := start(t, objects, "quern-host", given)
	for _, p := range []*pod{admin, host} {
		eventually(t, p.Args[1]+" is ready", func() bool {
			status, _ := p.ask(t, http.MethodGet, p.ready, "", "")
			return status == http.StatusOK
		})
	}
	eventually(t, "a complete task", func() bool {
		_, body := admin.ask(t, http.MethodGet, "/v1/tenants/acme/tasks/one", tokens["viewer"], "")
		return strings.Contains(body, `"status":"complete"`)
	})
	eventually(t, "nothing left to do", func() bool { return load().Load == 0 })
	for _, p := range []*pod{host, admin} {
		must(t, p.Process.Signal(syscall.SIGTERM))
		if err := p.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", p.Args[1], err, p.log.String())
		}
	}
	if !strings.Contains(host.log.String(), `"@message"`) {
		t.Errorf("the log is not JSON, as the settings have it:\n%s", host.log.String())
	}
}
