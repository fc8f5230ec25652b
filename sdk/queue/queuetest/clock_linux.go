package queuetest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

//go:embed clock.c.txt
var clockSource []byte

// StartAhead runs a redis-server whose clock is ahead of this machine's, or behind it: a small library
// before its others tells it another time. It needs a C compiler.
func StartAhead(t testing.TB, ahead time.Duration, options ...string) *Server {
	t.Helper()
	library := filepath.Join(t.TempDir(), "clock.so")
	var err error
	for _, compiler := range []string{"cc", "gcc", "clang", "clang-14"} {
		var path string
		if path, err = exec.LookPath(compiler); err != nil {
			continue
		}
		source := filepath.Join(filepath.Dir(library), "clock.c")
		if err = os.WriteFile(source, clockSource, 0o600); err != nil {
			break
		}
		linker := "-O1" // its own
		if strings.HasPrefix(compiler, "clang") {
			linker = "-fuse-ld=lld" // the one that comes with it: there may be no other
		}
		build := exec.CommandContext(t.Context(), path, linker, "-shared", "-fPIC", "-nostdlib",
			fmt.Sprintf("-DAHEAD=%d", int64(ahead.Seconds())), "-o", library, source)
		var said []byte
		if said, err = build.CombinedOutput(); err == nil {
			return startWith(t, library, options)
		}
		err = fmt.Errorf("%s: %w\n%s", build, err, said)
	}
	t.Fatalf("a Redis with another clock needs a C compiler (apt-get install gcc): %v", err)
	return nil
}
