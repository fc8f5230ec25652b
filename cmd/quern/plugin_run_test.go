package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// warmed is a handler that counts its calls in its memory, and traps if its input has five bytes.
const warmed = `(module
	(import "quern_v1" "input_size" (func $input_size (result i32)))
	(import "quern_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
	(memory (export "memory") 1)
	(data (i32.const 0) "0")
	(func (export "quern_handle") (result i32)
		(i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const 1)))
		(if (i32.eq (call $input_size) (i32.const 5)) (then unreachable))
		(call $output_write (i32.const 0) (i32.const 1))))`

// A run finds the handler as a task on a host does: warmed, where its rung keeps an image. That it is not is told.
func TestPluginRunWarm(t *testing.T) {
	t.Parallel()
	u := newUser(t, "")
	module := runtimetest.BuildWAT(t, warmed)
	dir := folder(t, map[string][]byte{"good": module, "bad": module, "plain": module})
	write(t, filepath.Join(dir, "good.yaml"), "name: good\nwarm: {input: good.bin}\n")
	write(t, filepath.Join(dir, "bad.yaml"), "name: bad\nwarm: {input: bad.bin}\n")
	write(t, filepath.Join(dir, "good.bin"), "warm")
	write(t, filepath.Join(dir, "bad.bin"), "traps")
	rungs := []runtime.Rung{runtime.RungNew}
	if best := bestRung(); best != runtime.RungNew {
		rungs = append(rungs, best)
	}
	for _, rung := range rungs {
		run := func(name string) result {
			return u.run("plugin", "run", filepath.Join(dir, name+".wasm"), "--rung", string(rung))
		}
		warm, warnings := "2", 1
		if rung == runtime.RungNew {
			warm, warnings = "1", 0
		}
		if got := run("plain"); got != (result{exitDone, "1", ""}) {
			t.Errorf("%s: without warm: %+v", rung, got)
		}
		if got := run("good"); got != (result{exitDone, warm, ""}) {
			t.Errorf("%s: %+v, want %s", rung, got, warm)
		}
		got := run("bad")
		if got.status != exitDone || got.stdout != "1" || strings.Count(got.stderr, "\n") != warnings ||
			strings.Count(got.stderr, "the image stays cold: the warm call failed: ") != warnings ||
			strings.Count(got.stderr, " plugin=bad ") != warnings || strings.Count(got.stderr, "trap: unreachable") != warnings {
			t.Errorf("%s: of a warm call that traps: %+v, want %d lines of why", rung, got, warnings)
		}
		for _, output := range []string{"text", "json"} {
			view := u.must("plugin", "check", filepath.Join(dir, "good.wasm"), "--rung", string(rung), "-o", output)
			if noted := strings.Contains(view, "warm has no effect on the rung new"); noted != (rung == runtime.RungNew) {
				t.Errorf("check on %s: %s", rung, view)
			}
		}
	}
	if view := u.must("plugin", "check", filepath.Join(dir, "plain.wasm"), "--rung", "new", "-o", "json"); strings.Contains(view, "notes") {
		t.Errorf("check without warm: %s", view)
	}
}
