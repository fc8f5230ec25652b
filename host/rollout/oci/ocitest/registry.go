// Package ocitest runs real OCI registries for tests, on loopback.
package ocitest

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The only user of a registry.
const (
	User     = "quern"
	Password = "pull-secret"
	hash     = "$2a$04$RDK1RE81IIVIHD5IVZE/Wu7SjeHHpi1V0vJAgAQ6aiQRpR11cmoZ." // bcrypt of Password
)

const config = `version: 0.1
storage:
  filesystem: {rootdirectory: %[1]s/data}
  delete: {enabled: true}
http: {addr: "%[2]s"}
auth:
  htpasswd: {realm: test, path: %[1]s/htpasswd}
`

// Registry is a process of Debian's docker-registry, which refuses everybody but User.
type Registry struct {
	Host   string // with the port
	t      testing.TB
	dir    string
	server *exec.Cmd
}

// Start starts a registry. It skips the test if docker-registry is not installed.
func Start(t testing.TB) *Registry {
	t.Helper()
	if _, err := exec.LookPath("docker-registry"); err != nil {
		t.Skip("left out, because docker-registry is not installed: sudo apt-get install --no-install-recommends docker-registry")
	}
	r := &Registry{Host: "127.0.0.1:0", t: t, dir: t.TempDir()}
	r.write("htpasswd", User+":"+hash+"\n")
	r.Serve()
	t.Cleanup(r.Stop)
	return r
}

func (r *Registry) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

var listening = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)`)

// Serve starts the process, after Stop on the same port and with the same data.
func (r *Registry) Serve() {
	r.t.Helper()
	r.server = exec.Command("docker-registry", "serve", r.write("config.yml", fmt.Sprintf(config, r.dir, r.Host)))
	log, err := r.server.StderrPipe()
	if err == nil {
		err = r.server.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said += lines.Text() + "\n"
		if at := listening.FindStringSubmatch(lines.Text()); at != nil {
			r.Host = at[1]
			go func() { // ends with the process
				for lines.Scan() {
				}
			}()
			return
		}
	}
	_ = r.server.Wait()
	r.t.Fatalf("the registry does not start:\n%s", said)
}

// Stop kills the process.
func (r *Registry) Stop() {
	if r.server != nil {
		_ = r.server.Process.Kill()
		_ = r.server.Wait()
		r.server = nil
	}
}

// Credentials writes a file in docker's format with a password for User at a host, and returns its path.
func (r *Registry) Credentials(host, password string) string {
	r.t.Helper()
	secret := base64.StdEncoding.EncodeToString([]byte(User + ":" + password))
	return r.write("config-"+url.PathEscape(host+password)+".json", fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, secret))
}

// Front starts a server that passes all requests to the registry, and returns its host. change may change a response.
func (r *Registry) Front(change func(*http.Response) error) string {
	r.t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.Host})
	proxy.ModifyResponse, proxy.FlushInterval = change, -1 // a body that stops is seen so far
	front := httptest.NewServer(proxy)
	r.t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// Nobody returns the address of a loopback port on which nobody listens.
func Nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
