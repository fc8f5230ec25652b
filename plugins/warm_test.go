package plugins

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// remembering is a handler that answers with its version, how often it was called in this memory, and the first
// input that it was called with in it.
const remembering = `#include "quern.h"
#include <stdio.h>
static const char version[] = "` + anyVersion + `";
static char calls = '0', first[64];
static int32_t size;
QUERN_HANDLER int handle(void) {
  if (calls++ == '0') {
    size = quern_input_size();
    if (size > sizeof first) size = sizeof first;
    quern_input_read(0, first, size);
    fputs("the first call\n", stderr);
  }
  quern_output_write(version, sizeof version - 1);
  quern_output_write(" ", 1);
  quern_output_write(&calls, 1);
  quern_output_write(" ", 1);
  quern_output_write(first, size);
  return 0;
}`

// handler is remembering with the version of this number.
func handler(t testing.TB, number int) []byte {
	t.Helper()
	return numbered(runtimetest.BuildCHandler(t, remembering), number)
}

func cold(number int) string { return output(number) + " 1 task" }

func warmed(number int, by string) string { return output(number) + " 2 " + by }

// skipsWarm skips a test on a system where every task gets a new instance, and no image is warmed.
func (f *fixture) skipsWarm() {
	f.t.Helper()
	v := f.Acquire("acme", "a")
	if v == nil {
		f.t.Fatalf("%+v", f.List())
	}
	defer v.Release()
	if v.Info().ResetMode == runtime.ResetNew {
		f.t.Skip("this system resets no instance")
	}
}

func TestWarmBelongsToTheVersion(t *testing.T) {
	t.Parallel()
	const text = "limits: {input: 16B}\nwarm: {input: samples/sample}"
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", handler(t, 1))
		write(t, dir+"/a.yaml", []byte(text))
	})
	f.awaitRefusal("", "a", f.path("a.yaml")+`:2: warm.input: "samples/sample": there is no such file: `+
		"put it into the folder of the manifest, or correct the path")
	mkdir(t, f.path("samples"))
	f.write("samples/sample", []byte("one"))
	f.awaitServed("a")
	f.skipsWarm()
	f.awaitRun("acme", "a", warmed(1, "one"))
	f.awaitNoRefusal("", "a")

	// Other content is another version; who holds the old one keeps what it was warmed with.
	held := f.Acquire("acme", "a")
	defer held.Release()
	f.write("samples/sample", []byte("two"))
	f.awaitRun("acme", "a", warmed(1, "two"))
	if got := held.Run(t.Context(), runtime.Call{}); string(got.Output) != warmed(1, "one") {
		t.Errorf("the old version: %q, %+v", got.Output, got)
	}
	// An input may be empty.
	f.write("samples/sample", nil)
	f.awaitRun("acme", "a", warmed(1, ""))

	// What cannot be the input changes nothing but an error.
	for what, tt := range map[string]struct {
		put  func()
		want string
	}{
		"large": {
			func() { f.write("samples/sample", []byte("seventeen letters")) },
			`"samples/sample": it has 17 bytes, more than 16B: make it smaller, or raise limits.input`,
		},
		"pipe": {
			func() { check(t, syscall.Mkfifo(f.path("samples/sample"), 0o600)) },
			`"samples/sample": it is a named pipe: put a regular file in its place`,
		},
		"link": {
			func() { symlink(t, "/etc/hosts", f.path("samples/sample")) },
			`"samples/sample": the link ends outside the folder of the manifest, in /etc/hosts: copy the file into that folder, or link to a file in it`,
		},
	} {
		f.remove("samples/sample")
		tt.put()
		f.awaitRefusal("", "a", f.path("a.yaml")+":2: warm.input: "+tt.want)
		if got := f.runs("acme", "a"); got != warmed(1, "") {
			t.Errorf("%s: %q runs", what, got)
		}
	}
	f.remove("samples/sample")
	f.write("samples/sample", []byte("three"))
	f.awaitRun("acme", "a", warmed(1, "three"))
	f.awaitNoRefusal("", "a")

	// A new module is warmed as well, and without the section nothing is.
	f.replace("a.wasm", handler(t, 2))
	f.awaitRun("acme", "a", warmed(2, "three"))
	f.remove("a.yaml")
	f.awaitRun("acme", "a", cold(2))
}

// The files of both kinds together: each has its own bound, and a change of either is a change of the version.
func TestWarmBesideFiles(t *testing.T) {
	t.Parallel()
	const text = "capabilities: {files: [{from: model, to: /data/model}]}\nwarm: {input: sample}"
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", handler(t, 1))
		write(t, dir+"/a.yaml", []byte(text))
		write(t, dir+"/model", []byte("model"))
		write(t, dir+"/sample", []byte("sample"))
	})
	first := f.awaitFiles("a", "")
	f.write("sample", []byte("other"))
	second := f.awaitFiles("a", first)
	f.write("model", []byte("other"))
	f.write("sample", []byte("model"))
	if third := f.awaitFiles("a", second); third == first {
		t.Error("other files have the same digest")
	}

	dir := t.TempDir()
	m, err := manifest.Parse(dir+"/a.yaml", []byte(text))
	check(t, err)
	write(t, dir+"/model", nil)
	check(t, os.Truncate(dir+"/model", manifest.MaxFiles)) // sparse: it takes no room
	write(t, dir+"/sample", []byte("sample"))
	if files, warm, err := LoadFiles(dir+"/a.yaml", m); err != nil || files == nil || string(warm) != "sample" {
		t.Errorf("beside as many files as there may be: %v, %q, %v", files, warm, err)
	}
}

func TestWarmIsForHandlers(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{}, func(dir string) {
		write(t, dir+"/a.wasm", guest(t, 1))
		write(t, dir+"/a.yaml", []byte("name: a\nwarm:\n  input: sample"))
		write(t, dir+"/sample", []byte("sample"))
	})
	f.awaitRefusal("", "a", f.path("a.yaml")+":3: warm: is for handlers, and the module is a command")
	if n := strings.Count(f.logs.String(), "plugin refused"); n != 1 {
		t.Errorf("refused %d times", n)
	}
	f.replace("a.wasm", handler(t, 1))
	f.awaitServed("a")
	f.awaitNoRefusal("", "a")
}

// awaitServed waits until a version serves.
func (f *fixture) awaitServed(queue string) {
	f.t.Helper()
	eventually(f.t, func() error {
		v := f.Acquire("acme", queue)
		if v == nil {
			return fmt.Errorf("%s is not served: %+v", queue, f.List())
		}
		v.Release()
		return nil
	})
}

// TestRemedyOfStart: the remedy of a host's ceiling leaves the limit's name in the message, also where it was the
// handler's start that passed it.
func TestRemedyOfStart(t *testing.T) {
	t.Parallel()
	f := setup(t, Config{Ceilings: ceilings(time.Hour, time.Millisecond)}, func(dir string) {
		write(t, dir+"/a.wasm", runtimetest.BuildWAT(t, `(module (memory (export "memory") 1)
			(func (export "_initialize") (loop (br 0))) (func (export "quern_handle") (result i32) (i32.const 0)))`))
	})
	v := f.Acquire("acme", "a")
	defer v.Release()
	got := v.Run(t.Context(), runtime.Call{TaskID: "1"})
	want := "before its first task: cpu limit of 10s exceeded: the host allows no more, see --max-cpu"
	if got.Message != want {
		t.Errorf("%s: %q, want %q", got.Kind, got.Message, want)
	}
}
