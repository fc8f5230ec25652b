package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/examples/internal/exampletest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// TestWeb runs both web applications on a host, and asks them for receipts.
func TestWeb(t *testing.T) {
	t.Parallel()
	quern, redis := exampletest.New(t), queuetest.Start(t).URL()
	plugins := t.TempDir() // not the example's folder, where its own test builds the plugin
	exampletest.Shell(t, "receipt", "GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o "+plugins+"/receipt.wasm .")
	exampletest.Shell(t, "receipt", "cp receipt.yaml sample.json "+plugins)
	node := quern.Start(t, redis, plugins, "--admin", "127.0.0.1:0")
	var server string
	exampletest.Eventually(t, "the host serves its API", func() bool {
		address := regexp.MustCompile(`listening: .*\badmin=(\S+)`).FindStringSubmatch(node.Log())
		if address != nil {
			server = "http://" + address[1]
		}
		return address != nil
	})
	client, err := queue.New(redis, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	other, err := client.Queue("other").Enqueue(t.Context(), []byte("secret"), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applications := map[string]*application{
		"FastAPI": newApplication(t, server, "fastapi", fastAPI(t), `running on (http://\S+)`),
		"Express": newApplication(t, server, express(t), []string{"node", "app.js"}, `listening on (http://\S+)`),
	}
	for name, a := range applications {
		said := quern.Listing(t, "web", "curl -si ", redis, "http://127.0.0.1:3000", a.url)
		if !strings.HasPrefix(said, "HTTP/1.1 202 ") || !regexp.MustCompile(`(?i)\nlocation: /receipts/\S+`).MatchString(said) {
			t.Errorf("%s: the command of the README prints\n%s", name, said)
		}
		a.receipts(t, other)
	}
	node.Kill()
	for name, a := range applications {
		if r := a.ask(t, http.MethodPost, "/receipts", sampleOrder(t)); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
			t.Errorf("%s without a host: %+v", name, r)
		}
	}
}

// fastAPI returns the command that starts the application in FastAPI.
func fastAPI(t *testing.T) []string {
	t.Helper()
	python := absolute(t, "../build/venv/bin/python")
	if err := exec.CommandContext(t.Context(), python, "-c", "import fastapi, uvicorn, httpx").Run(); err != nil {
		runtimetest.Missing(t, "no FastAPI in build/venv: run make deps")
	}
	wanted := regexp.MustCompile(`(?m)^\w+==.*$`).FindAllString(read(t, "web/fastapi/requirements.txt"), -1)
	installed := strings.Split(read(t, "../.ci/requirements.txt"), "\n")
	for _, pin := range wanted {
		if !slices.Contains(installed, pin) {
			t.Errorf("requirements.txt of the example has %s, .ci/requirements.txt another version", pin)
		}
	}
	return []string{python, "-B", "-m", "uvicorn", "app:app", "--port", "0"}
}

// express returns a folder with the application in Express, and its packages as npm would install them.
func express(t *testing.T) string {
	t.Helper()
	dir, installed := t.TempDir(), absolute(t, "../build/npm/node_modules/express")
	if _, err := os.Stat(installed); err != nil {
		runtimetest.Missing(t, "no Express in build/npm: run make deps")
	}
	pin := regexp.MustCompile(`"express": "[\d.]+"`)
	if got, want := pin.FindString(read(t, "web/express/package.json")), pin.FindString(read(t, "../.ci/npm/package.json")); got != want || got == "" {
		t.Errorf("package.json of the example has %s, .ci/npm has %s", got, want)
	}
	if err := os.CopyFS(dir, os.DirFS("web/express")); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	err := errors.Join(
		os.MkdirAll(filepath.Join(modules, "@quern"), 0o700),
		os.Symlink(installed, filepath.Join(modules, "express")),
		os.Symlink(absolute(t, "../sdk/javascript/client"), filepath.Join(modules, "@quern", "client")),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sampleOrder(t *testing.T) string {
	t.Helper()
	return read(t, "receipt/sample.json")
}

// application is a web application that runs until the test ends.
type application struct{ url string }

// newApplication starts an application in a folder below web, or in another one, and waits until it prints its address.
func newApplication(t *testing.T, server, folder string, command []string, listening string) *application {
	t.Helper()
	if !filepath.IsAbs(folder) {
		folder = filepath.Join("web", folder)
	}
	log := &exampletest.Log{}
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, log, log
	cmd.Env = append(os.Environ(), "QUERN_SERVER="+server, "QUERN_TENANT=blueque", "QUERN_TOKEN=", "PORT=0",
		"PYTHONPATH="+absolute(t, "../sdk/python/package/src"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(command, " "), log)
		}
	})
	a := &application{}
	exampletest.Eventually(t, "the application prints its address", func() bool {
		address := regexp.MustCompile(listening).FindStringSubmatch(log.String())
		if address != nil {
			a.url = address[1]
		}
		return address != nil
	})
	return a
}

type answer struct {
	status int
	header http.Header
	body   string
	fields map[string]string // if the body is an object of JSON
}

func (a *application) ask(t *testing.T, method, path, body string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := answer{status: response.StatusCode, header: response.Header, body: string(text)}
	_ = json.NewDecoder(bytes.NewReader(text)).Decode(&r.fields) // what is no object of texts has no fields
	return r
}

func (a *application) receipts(t *testing.T, other string) {
	made := a.ask(t, http.MethodPost, "/receipts", sampleOrder(t))
	path := made.header.Get("Location")
	if made.status != http.StatusAccepted || path != "/receipts/"+made.fields["id"] || made.fields["status"] != "pending" {
		t.Fatalf("%+v", made)
	}
	if done := a.await(t, path); done.fields["status"] != "complete" || done.fields["page"] != path+"/page" {
		t.Fatalf("%+v", done)
	}
	page := a.ask(t, http.MethodGet, path+"/page", "")
	if !strings.Contains(page.body, "<title>Receipt 2026-0001</title>") || !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") {
		t.Errorf("%+v", page)
	}
	wrong := a.ask(t, http.MethodPost, "/receipts", `{"number": "2", "customer": "Ada", "lines": []}`).header.Get("Location")
	if failed := a.await(t, wrong); failed.fields["status"] != "failed" || !strings.Contains(failed.fields["error"], "the order has no lines") {
		t.Errorf("%+v", failed)
	}
	for request, want := range map[string]int{
		"GET " + wrong + "/page":              http.StatusConflict,
		"GET /receipts/none":                  http.StatusNotFound,
		"GET /receipts/%2e%2e":                http.StatusNotFound,
		"GET /receipts/" + other:              http.StatusNotFound,
		"GET /receipts/" + other + "/page":    http.StatusNotFound,
		`POST /receipts {"number": 1}`:        http.StatusUnprocessableEntity,
		`POST /receipts ["number", "2", "3"]`: http.StatusUnprocessableEntity,
	} {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		if r := a.ask(t, method, path, body); r.status != want || strings.Contains(r.body, "secret") {
			t.Errorf("%s: %+v, want %d", request, r, want)
		}
	}
}

// await asks for the status of a receipt until it has ended.
func (a *application) await(t *testing.T, path string) (r answer) {
	t.Helper()
	exampletest.Eventually(t, fmt.Sprintf("the receipt %s ends", path), func() bool {
		r = a.ask(t, http.MethodGet, path, "")
		return r.status != http.StatusOK || r.fields["status"] == "complete" || r.fields["status"] == "failed"
	})
	return r
}
