package main

import (
	"net"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// TestHealth: a host that lives but cannot reach Redis is healthy and not ready; without a host nothing is.
func TestHealth(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	u := newUser(t, server.URL())
	_, address := u.host(folder(t, nil))
	server.Kill()
	if r := u.run("health", "--http", address); r.status != exitDone || r.stdout != "ok\n" {
		t.Errorf("exit %d: %s%s", r.status, r.stdout, r.stderr)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	if r := u.with(map[string]string{"QUERN_HTTP": ":" + port}).run("health"); r.status != exitDone {
		t.Errorf("by QUERN_HTTP: exit %d: %s", r.status, r.stderr)
	}
	eventually(t, "it is not ready", func() bool {
		r := u.run("health", "--ready", "--http", address)
		return r.status == exitRefused && strings.Contains(r.stderr, "answers 503")
	})
	if r := u.run("health", "--http", "127.0.0.1:1"); r.status != exitRefused || !strings.Contains(r.stderr, "no host answers at 127.0.0.1:1") {
		t.Errorf("without a host: exit %d: %s", r.status, r.stderr)
	}
	if r := u.run("health", "--http", "nowhere"); r.status != exitUsage {
		t.Errorf("no address: exit %d: %s", r.status, r.stderr)
	}
}
