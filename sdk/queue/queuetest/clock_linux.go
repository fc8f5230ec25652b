package queuetest

import (
	_ "embed"
	"encoding/binary"
	"errors"
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

// Clock sets the clock of a server that StartAhead has started.
type Clock struct{ file string }

// Set makes the server's clock run ahead of this machine's clock by a number of whole seconds, or behind it if ahead is
// negative.
func (c *Clock) Set(t testing.TB, ahead time.Duration) {
	t.Helper()
	file, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o600) // not truncated: the server has mapped it
	if err == nil {
		_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(ahead.Seconds()))), 0)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// StartAhead runs a redis-server whose clock is ahead of this machine's clock, or behind it if ahead is negative.
// Clock.Set changes that. The server's time comes from a preloaded library, which needs a C compiler to build.
func StartAhead(t testing.TB, ahead time.Duration, options ...string) (*Server, *Clock) {
	t.Helper()
	library := filepath.Join(t.TempDir(), "clock.so")
	clock := &Clock{file: filepath.Join(filepath.Dir(library), "ahead")}
	clock.Set(t, ahead)
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
		linker := "-O1" // no linker option: the compiler uses its default linker
		if strings.HasPrefix(compiler, "clang") {
			linker = "-fuse-ld=lld" // clang's own linker, because there may be no other
		}
		build := exec.CommandContext(t.Context(), path, linker, "-shared", "-fPIC", "-nostdlib",
			fmt.Sprintf("-DFILE=%q", clock.file), "-o", library, source)
		var said []byte
		if said, err = build.CombinedOutput(); err == nil {
			return startFor(t, newest, library, options), clock
		}
		err = fmt.Errorf("%s: %w\n%s", build, err, said)
	}
	t.Fatalf("a Redis with another clock needs a C compiler (apt-get install gcc): %v", err)
	return nil, nil
}
