package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image/jpeg"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/examples/internal/exampletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	t.Parallel()
	quern, plugins, photos, out := exampletest.New(t).Path, buildPlugin(t), t.TempDir(), t.TempDir()
	for _, name := range []string{"dandelions.jpg", "dogs.jpg"} { // all five would take their time
		photo, err := os.ReadFile(filepath.Join("../photos", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(photos, name), string(photo), 0o644)
	}
	var stdout, stderr bytes.Buffer
	args := []string{"-quern", quern, "-plugins", plugins, "-photos", photos, "-out", out, "-repeat", "2", "-timeout", "5m"}
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &stdout, &stderr)
	}

	for _, name := range []string{"dandelions", "dogs"} {
		path := filepath.Join(out, name+".jpg")
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := jpeg.Decode(file)
		file.Close()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		size := picture.Bounds().Size()
		if max(size.X, size.Y) != 320 {
			t.Errorf("%s is %v, want the longer side 320", path, size)
		}
		if line := fmt.Sprintf("%s %d x %d, ", path, size.X, size.Y); !strings.Contains(spaces(stdout.String()), line) {
			t.Errorf("no %q in\n%s", line, &stdout)
		}
	}
	for _, want := range []string{
		`2 photographs, 2 times each: 4 tasks for the queue "thumbnails"`,
		"4 of 4 finished", "/metrics:", "quern_tasks_total{", `outcome="complete"`,
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", &stderr)
	}
	if left, err := os.ReadDir(filepath.Join(out, "run", "quern")); err != nil || len(left) > 0 {
		t.Errorf("the host left %v (%v): it did not end by itself", left, err)
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	plugins, empty, notPhotos := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(plugins, "thumbnails.wasm"), "", 0o644)
	write(t, filepath.Join(notPhotos, "a.jpg"), "hello", 0o644)
	ends := filepath.Join(t.TempDir(), "quern")
	write(t, ends, "#!/bin/sh\necho the port is taken >&2\nexit 3\n", 0o755)

	tests := map[string]struct {
		args   []string
		want   string
		stderr string
	}{
		"ErrNoQuern":     {[]string{"-quern", filepath.Join(empty, "quern"), "-plugins", plugins}, "make build", ""},
		"ErrNoPlugin":    {[]string{"-quern", ends, "-plugins", empty}, "make plugins", ""},
		"ErrNoPhotos":    {[]string{"-photos", empty}, "no photographs", ""},
		"ErrNotPhotos":   {[]string{"-photos", notPhotos}, "a.jpg", ""},
		"ErrHostEnds":    {[]string{"-quern", ends, "-plugins", plugins}, "ended too early", "the port is taken"},
		"ErrRepeat":      {[]string{"-repeat", "0"}, "-repeat is 0", ""},
		"ErrArgument":    {[]string{"photo.jpg"}, `unexpected argument "photo.jpg"`, ""},
		"ErrUnknownFlag": {[]string{"-size", "5"}, "-size", "-plugins"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"-photos", "../photos", "-out", t.TempDir()}, tt.args...)
			var stderr bytes.Buffer
			err := run(t.Context(), args, io.Discard, &stderr)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("stderr %q, want %q in it", &stderr, tt.stderr)
			}
		})
	}
}

func TestRunHelp(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("error %v, want that of flag's help", err)
	}
}

// TestRunInterrupted holds that a host which is not ready yet is ended, and not left behind.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	plugins, out := t.TempDir(), t.TempDir()
	write(t, filepath.Join(plugins, "thumbnails.wasm"), "", 0o644)
	quern := filepath.Join(t.TempDir(), "quern")
	write(t, quern, "#!/bin/sh\ntrap 'kill $!; echo asked to end; exit 0' TERM\nsleep 60 &\necho begun\nwait\n", 0o755)

	ctx, interrupt := context.WithCancelCause(t.Context())
	go func() {
		defer interrupt(errors.New("interrupted"))
		waitForText(ctx, filepath.Join(out, "quern.log"), "begun")
	}()
	err := run(ctx, []string{"-photos", "../photos", "-quern", quern, "-plugins", plugins, "-out", out}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v, want the interruption", err)
	}
	if log, err := os.ReadFile(filepath.Join(out, "quern.log")); err != nil || !bytes.Contains(log, []byte("asked to end")) {
		t.Errorf("log %q (%v): the host was not asked to end", log, err)
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	b := newBar(&lines, 2)
	b.step()
	b.step()
	b.end()
	const half, full = "[####################....................] 1 of 2 finished", "[########################################] 2 of 2 finished"
	if want := half + "\n" + full + "\n"; lines.String() != want {
		t.Errorf("%q, want %q", &lines, want)
	}

	var redrawn bytes.Buffer
	b = &bar{out: &redrawn, redraws: true, total: 2}
	b.step()
	b.step()
	b.end()
	if want := "\r" + half + "\r" + full + "\n"; redrawn.String() != want {
		t.Errorf("%q, want %q", &redrawn, want)
	}
}

func TestWithoutSettings(t *testing.T) {
	t.Parallel()
	got := withoutSettings([]string{"PATH=/bin", "QUERN_REDIS=redis://db", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// buildPlugin builds the plugin as the Makefile does and returns a plugin directory with it.
func buildPlugin(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", filepath.Join(folder, "thumbnails.wasm"), "..")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	manifest, err := os.ReadFile("../thumbnails.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "thumbnails.yaml"), string(manifest), 0o644)
	return folder
}

// waitForText waits until the file holds the text, or ctx ends.
func waitForText(ctx context.Context, path, text string) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), text) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// write writes a file while no other test starts a process: that would have the file open for a
// moment too, and a program that is open for writing cannot be started.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// spaces makes every run of spaces one.
func spaces(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' }), " ")
}
