package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// tenantUnit is the unit of systemd for a tenant's host.
func tenantUnit(t *testing.T) string {
	t.Helper()
	return string(read(t, "cmd/quern/deploy/quern@.service"))
}

func TestTenantUnitIsValid(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("this system has no systemd: ", err)
	}
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(t.TempDir(), "quern@.service"), strings.ReplaceAll(tenantUnit(t), "/usr/local/bin/quern", program))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", strings.Replace(file, "@", "@acme", 1)).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	// Exposure is 0 for nothing to 100 for everything; what serves the network without a list of addresses is above 10.
	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=20", "--no-pager", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The unit's command serves its tenant, with folders of this test in place of the machine's.
func TestTenantUnitServes(t *testing.T) {
	t.Parallel()
	tenant, root := queuetest.Tenant(), t.TempDir()
	command := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/quern (serve .*)$`).FindStringSubmatch(tenantUnit(t))
	if command == nil {
		t.Fatal("the unit has no command")
	}
	args := strings.Fields(strings.ReplaceAll(command[1], "%i", tenant))
	for i, arg := range args {
		if strings.HasPrefix(arg, "/") {
			args[i] = root + arg
		}
	}
	write(t, root+"/etc/quern/"+tenant+"/quern.yaml", "http: 127.0.0.1:0\nmemory: 512MiB\nmax-timeout: 10m\n")
	write(t, root+"/etc/quern/"+tenant+"/redis", queuetest.Shared(t).URL()+"\n")
	write(t, root+"/etc/quern/"+tenant+"/secrets/"+tenant+"/key", "value")
	write(t, root+"/srv/quern/"+tenant+"/handlers/echo.wasm", string(runtimetest.Echo(t)))
	c := newUser(t, "").spawn(args...)
	said := c.stderr.await(t, regexp.MustCompile(`(serving queue: .*queue=echo\n|confine "require": .*\n)`))
	if strings.HasPrefix(said, "confine ") {
		t.Skip("this system lacks what confines a host: " + said)
	}
	u := newUser(t, queuetest.Shared(t).URL()).with(map[string]string{"QUERN_TENANT": tenant})
	if r := u.feed("hello", "enqueue", "echo", "-", "--wait"); r.stdout != "hello" {
		t.Errorf("exit %d: %s%s", r.status, r.stdout, r.stderr)
	}
}
