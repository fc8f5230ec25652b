package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// TestProducers runs the tests of the clients for producers on a server with tokens and a host.
func TestProducers(t *testing.T) {
	t.Parallel()
	ofProcesses(t)
	_, url, tenant, tokens := secured(t)
	redis := queuetest.Shared(t).URL()
	plugins := folder(t, map[string][]byte{"echo": echoUnlessEmpty(t)})
	newUser(t, redis).host(plugins, "--tenants", tenant)
	environment := append(os.Environ(), "PRODUCER_URL="+url, "PRODUCER_TOKEN="+tokens["operator"], "PRODUCER_TENANT="+tenant,
		"PRODUCER_REDIS="+redis, "PYTHONPATH="+absolute(t, "../../sdk/python/package/src"), "PYTHONDONTWRITEBYTECODE=1")
	for name, test := range map[string]struct {
		folder  string
		command []string
		passed  string
	}{
		"Python": {
			"../../sdk/python/package/producers",
			[]string{absolute(t, "../../build/venv/bin/python"), "-m", "pytest", "-p", "no:cacheprovider", "-q", "."},
			` passed`,
		},
		"JavaScript": {"../../sdk/javascript/client", []string{"node", "--test", "--test-reporter=tap", "test.mjs"}, `(?m)^# pass 9$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), test.command[0], test.command[1:]...)
			cmd.Dir, cmd.Env = test.folder, environment
			said, err := cmd.CombinedOutput()
			if err != nil || !regexp.MustCompile(test.passed).Match(said) {
				t.Errorf("%v: run make deps if it is not installed\n%s", err, said)
			}
		})
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// echoUnlessEmpty is a command that writes what it reads, and fails if that is nothing.
func echoUnlessEmpty(t *testing.T) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, `(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start") (local $any i32)
    (loop $more
      (i32.store (i32.const 0) (i32.const 65536))
      (i32.store (i32.const 4) (i32.const 65536))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (if (i32.load (i32.const 8)) (then
        (local.set $any (i32.const 1))
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (br $more))))
    (if (i32.eqz (local.get $any)) (then unreachable))))`)
}
