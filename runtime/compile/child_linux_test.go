package compile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestCompileChildConfined looks at a child at work: it has nothing of the host's.
func TestCompileChildConfined(t *testing.T) {
	t.Parallel()
	inheritable, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0) // as whoever started this process may have left one
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inheritable) }()
	u := startSlow(t)
	proc := func(name string) string { return filepath.Join("/proc", fmt.Sprint(u.pid), name) }
	read := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if environ := read(proc("environ")); environ != "" {
		t.Errorf("environment: %q", environ)
	}
	if cwd, err := os.Readlink(proc("cwd")); err != nil || cwd != u.stage {
		t.Errorf("working directory: %s, %v, want %s", cwd, err, u.stage)
	}
	limits := read(proc("limits"))
	for _, want := range []string{`Max core file size +0 +0`, `Max cpu time +[1-9]\d* +[1-9]\d* `, `Max address space +[1-9]\d* +[1-9]\d* `} {
		if !regexp.MustCompile(want).MatchString(limits) {
			t.Errorf("limits without %s:\n%s", want, limits)
		}
	}
	descriptors, err := filepath.Glob(proc("fd/*"))
	if err != nil || len(descriptors) < 3 {
		t.Fatalf("descriptors: %v, %v", descriptors, err)
	}
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if err == nil && !strings.HasPrefix(target, "pipe:") && !strings.HasPrefix(target, "anon_inode:") && !strings.HasPrefix(target, "/sys/") {
			t.Errorf("%s is %s", descriptor, target)
		}
	}
	threads, err := filepath.Glob(proc("task/*/stat"))
	if err != nil || len(threads) < 2 {
		t.Fatalf("threads: %v, %v", threads, err)
	}
	for _, thread := range threads {
		const nice = 16 // by its position behind the name
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // ended meanwhile
		}
		_, fields, _ := strings.Cut(string(stat), ") ")
		if got := strings.Fields(fields)[nice]; got != "10" {
			t.Errorf("%s: nice %s", thread, got)
		}
	}
	u.cancel(nil)
	if err := u.end(t); err == nil {
		t.Error("the compilation ended well")
	}
}

// TestCompileChildOrphaned: a child does not outlive a host that is killed.
func TestCompileChildOrphaned(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	log := make(lines, 100)
	host := exec.Command(os.Args[0], childHost, dir)
	host.Stderr = log
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = host.Process.Kill()
		_ = host.Wait()
	}()
	pid := log.pid(t)
	compiling(t, dir)
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child ends with its host", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") // nobody may have asked for its status yet
	})
}
