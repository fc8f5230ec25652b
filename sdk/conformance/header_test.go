package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const header = "../c/quern.h"

// clang is the C compiler that is there.
func clang(t *testing.T) string {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "../../.ci/clang")
	cmd.Stderr = &said
	name, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	return strings.TrimSpace(string(name))
}

// TestHeader: the header's own functions are what they say, in C and C++, with a C library and without.
func TestHeader(t *testing.T) {
	t.Parallel()
	engine, err := runtime.New(t.Context(), runtime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	wasi := []string{"--target=wasm32-wasi", "-mexec-model=reactor"}
	bare := []string{"--target=wasm32", "-ffreestanding", "-nostdlib", "-Wl,--no-entry"}
	compiler := clang(t)
	for name, flags := range map[string][]string{
		"C99":             slices.Concat(wasi, []string{"-O2", "-std=c99"}),
		"C99Unoptimized":  slices.Concat(wasi, []string{"-O0", "-std=c99"}),
		"C99Freestanding": slices.Concat(bare, []string{"-O2", "-std=c99"}),
		"C11Bare":         slices.Concat(bare, []string{"-O0", "-std=c11"}),
		"C++17":           slices.Concat(wasi, []string{"-O2", "-std=c++17", "-x", "c++", "-fno-exceptions"}),
		"C++17System":     slices.Concat(wasi, []string{"-O2", "-std=c++17", "-x", "c++", "-fno-exceptions", "-Wold-style-cast", "-isystem", "../c"}),
		"C++17Bare":       slices.Concat(bare, []string{"-Os", "-std=c++17", "-x", "c++"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "header.wasm")
			strict := []string{"-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Werror"}
			arguments := slices.Concat(flags, strict, []string{"-s", "-I../c", "-o", out, "testdata/header.c"})
			if said, err := exec.CommandContext(t.Context(), compiler, arguments...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			module, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(module, []byte("kv_get")) || !bytes.Contains(module, []byte("result_read")) {
				t.Error("the module does not import exactly what it calls")
			}
			loaded, err := engine.Load(t.Context(), module)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = loaded.Close(context.Background()) })
			var lines []string
			pool := loaded.Bind(runtime.Profile{})
			got := pool.Run(t.Context(), runtime.Call{
				TaskID: "the-one", Attempt: 2, Input: []byte("input"), Log: func(line string) { lines = append(lines, line) },
			})
			if got.Kind != runtime.Complete || string(got.Output) != "output" {
				t.Errorf("%s: %s, output %q", got.Kind, got.Message, got.Output)
			}
			got = pool.Run(t.Context(), runtime.Call{TaskID: "two", Attempt: 1, Input: []byte("no room")})
			if got.Kind != runtime.Trap {
				t.Errorf("an object without room: %s: %s", got.Kind, got.Message)
			}
			if len(lines) == 0 || lines[len(lines)-1] != "warning: mind the gap" {
				t.Errorf("log %q", lines)
			}
		})
	}
}

// TestHeaderIsWhole: the header has all functions and errors of the specification.
func TestHeaderIsWhole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range specified(t) {
		want := regexp.MustCompile(`QUERN_IMPORT\(` + name + `\)\s+int32_t quern_` + name + `\(`)
		if strings.HasPrefix(name, "E") {
			want = regexp.MustCompile(`QUERN_` + name + ` = ` + number(t, name) + `\b`)
		}
		if !want.Match(text) {
			t.Errorf("no %s", want)
		}
	}
}

// number is that of an error in the specification.
func number(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../ABI.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| −(\d+) \| ` + name + ` \|`).FindSubmatch(text)
	if row == nil {
		t.Fatalf("no number of %s", name)
	}
	return "-" + string(row[1])
}

// TestReadmeOfC: the handler in the header's README is built by each of its commands, and does what it seems to.
func TestReadmeOfC(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../c/README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) (blocks []string) {
		for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			blocks = append(blocks, found[1])
		}
		return blocks
	}
	absolute, err := filepath.Abs("../c")
	if err != nil {
		t.Fatal(err)
	}
	commands := block("sh")
	if len(commands) != 2 {
		t.Fatalf("%d commands", len(commands))
	}
	for i, command := range commands {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, contents := range map[string]string{"hello.c": block("c")[0], "hello.yaml": block("yaml")[0]} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(contents), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command = strings.Replace(command, "clang-14", clang(t)+" -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Werror -std=c99 -I"+absolute, 1)
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Dir = dir
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, said)
			}
			n := start(t, dir).bounded(t)
			id, err := n.client.Queue("hello").Enqueue(n.ctx, []byte("Ada"), queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			task, err := n.client.Wait(n.ctx, id)
			if err != nil || string(task.Result) != "Hello, Ada" {
				t.Errorf("result %q, %v, %s", task.Result, err, task.Error)
			}
			lines, err := manage.New(n.client).Log(n.ctx, id, 0)
			if err != nil || len(lines) != 1 || lines[0].Text != `greeting {"name":"Ada","times":1}` {
				t.Errorf("log %v, %v", lines, err)
			}
		})
	}
}
