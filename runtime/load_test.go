package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/wasi"
)

const (
	i32 = "\x7f"
	i64 = "\x7e"
)

// importing is a command that imports one thing. Its types are () -> () and (i32) -> ().
func importing(module, name string, kind byte, description ...byte) []byte {
	imported := byte(0)
	if kind == runtimetest.FunctionKind {
		imported = 1
	}
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", ""), runtimetest.FunctionType(i32, "")),
		runtimetest.Section(runtimetest.ImportSection, runtimetest.Import(module, name, kind, description...)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, imported)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()),
	)
}

// exporting is a module that exports one function of type (i32) -> (i64).
func exporting(name string) []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType(i32, i64)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export(name, runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(0x42, 0)),
	)
}

// TestLoadRefusals is the golden list of what a person reads about a file that cannot be served.
func TestLoadRefusals(t *testing.T) {
	t.Parallel()
	const (
		build = "build a core module that exports _start (Go: GOOS=wasip1 GOARCH=wasm go build; Rust: --target wasm32-wasip1; C: clang --target=wasm32-wasi)"
		again = "build it again, or copy it again and rename it into place when it is whole"
		fn    = runtimetest.FunctionKind
		// What a handler may import.
		browser     = "built by AssemblyScript for the browser: call the functions of @quern/assemblyscript instead (info for console.log, now for Date.now, random for crypto), or build it with @assemblyscript/wasi-shim"
		handlers    = "a handler; Rust: #[quern::handler] above fn handle(task: quern::Task) -> Result<String, quern::Error>; AssemblyScript: export function quern_handle(): i32 { return run(FUNCTION); }"
		onlyHandler = "a handler may import only functions of quern_v1 and of wasi_snapshot_preview1"
	)
	engine := setup(t)
	tar := append(make([]byte, 257), "ustar\x00"...)
	for _, test := range []struct {
		name   string
		binary []byte
		want   string
	}{
		// No module at all.
		{"empty", nil, "the file is empty: " + again},
		{"zeroes", make([]byte, 100), "not a WebAssembly module: it begins with 00 00 00 00 instead of 00 61 73 6d: " + build},
		{"random", randomBytes(1), "not a WebAssembly module: it begins with " + hexOf(randomBytes(1)[:4]) + " instead of 00 61 73 6d: " + build},
		{"wat", []byte("  (module\n (func))"), "not a WebAssembly module but a WebAssembly text file (WAT): assemble it with wat2wasm or wasm-tools parse"},
		{"script", []byte("#!/bin/sh\necho hi\n"), "not a WebAssembly module but a script: compile it to WebAssembly: " + build},
		{"javascript", []byte("export default function () {}"), "not a WebAssembly module but source text: compile it to WebAssembly: " + build},
		{"go", []byte("package main\n"), "not a WebAssembly module but Go source text: compile it to WebAssembly: " + build},
		{"html", []byte("\ufeff<!DOCTYPE html>"), "not a WebAssembly module but an HTML or XML page: download the file itself; this may be an error page"},
		{"json", []byte(`{"message":"Not Found"}`), "not a WebAssembly module but a JSON file: download the file itself; this may be an error message"},
		{"lfs", []byte("version https://git-lfs.github.com/spec/v1\n"), "not a WebAssembly module but a Git LFS pointer: fetch the file itself with git lfs pull"},
		{"text", []byte(strings.Repeat("grüße ", 300)), "not a WebAssembly module but a text file: compile it to WebAssembly: " + build},
		{"elf", []byte("\x7fELF\x02\x01"), "not a WebAssembly module but a Linux program (ELF): compile it for WebAssembly: " + build},
		{"macho", []byte("\xcf\xfa\xed\xfe\x07"), "not a WebAssembly module but a macOS program (Mach-O): compile it for WebAssembly: " + build},
		{"pe", []byte("MZ\x90\x00"), "not a WebAssembly module but a Windows program (PE): compile it for WebAssembly: " + build},
		{"gzip", []byte("\x1f\x8b\x08\x00"), "not a WebAssembly module but a gzip file: unpack it with gunzip"},
		{"zip", []byte("PK\x03\x04\x00"), "not a WebAssembly module but a zip file: unpack it with unzip"},
		{"tar", tar, "not a WebAssembly module but a tar file: unpack it with tar -x"},
		{"archive", []byte("!<arch>\n"), "not a WebAssembly module but a static library (ar): link it into a program: " + build},

		// WebAssembly, but not a whole core module of version 1.
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), "a WebAssembly component (WASI 0.2), not a core module (header): " + build + "; or take the core module out with wasm-tools component unbundle"},
		{"version", []byte("\x00asm\x02\x00\x00\x00"), "WebAssembly version 2 of layer 0 is unknown (header): only version 1 of layer 0 can be served: " + build},
		{"header", []byte("\x00asm\x01"), "a truncated WebAssembly module: it ends after 5 bytes: " + again},
		{"magic", []byte("\x00as"), "a truncated WebAssembly module: it ends after 3 bytes: " + again},
		{"truncated", exporting("_start")[:22], "a truncated WebAssembly module: the file ends too early (export section at byte 20): " + again},
		{"between", exporting("_start")[:20], "a truncated WebAssembly module: the file ends too early: 1 of 1 functions have no body (code section at byte 20): " + again},
		{"damaged", runtimetest.Module(runtimetest.Section(runtimetest.TypeSection, []byte{0x61})), "a damaged WebAssembly module: type 0x61 is no function type (type section at byte 12): " + again},
		{"section", runtimetest.Module(runtimetest.RawSection(99, nil)), "a damaged WebAssembly module: section 99 is unknown (unknown section at byte 8): " + again},
		{"imports", []byte("\x00asm\x01\x00\x00\x00\x02\x05\xff\xff\xff\xff\x0f"), "a damaged WebAssembly module: 4294967295 imports do not fit into the 0 bytes that are left (import section at byte 15): " + again},
		{"code", command([]byte{0xff}), "a damaged WebAssembly module: instruction 0xff is unknown (function 0 at byte 41): " + again},
		{"exceptions", command([]byte{0x1f, 0x40, 0x00, 0x0b}), "a module of a later WebAssembly: exception handling: not supported (function 0 at byte 41): " + buildOlder},
		{"thrown", command([]byte{0x08, 0x00}), "a module of a later WebAssembly: exception handling: not supported (function 0 at byte 41): " + buildOlder},
		{"tags", runtimetest.Module(runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")), runtimetest.Section(13, []byte{0, 0})), "a module of a later WebAssembly: exception handling: not supported (tag section at byte 16): " + buildOlder},
		{"load of a second memory", command([]byte{0x41, 0x00, 0x28, 0x42, 0x01, 0x00, 0x1a}), "a module of a later WebAssembly: more than one memory: not supported (function 0 at byte 45): " + buildOlder},
		{"damaged alignment", command([]byte{0x41, 0x00, 0x28, 0x05, 0x00, 0x1a}), "a damaged WebAssembly module: an alignment of 2 to the power of 5 (function 0 at byte 45): " + again},
		{"threads", command([]byte{0xfe, 0x03, 0x00}), "a module of a later WebAssembly: atomic instructions (threads): not supported (function 0 at byte 41): " + buildOlder},

		// A module of a kind that cannot be served.
		{"handler", exporting("quern_handle"), "quern_handle is (i32) -> (i64) instead of () -> (i32) (export quern_handle): return 0 for complete, 75 to try again later, 65 for failed for good"},
		{"all memory", runtimetest.BuildWAT(t, `(module (memory 65536) (func (export "_start")))`), "a module that is too large to serve: 65536 pages of memory from the start, more than 32768 (memory section at byte 25): declare at most 2GiB, the largest limits.memory"},
		{"extism", importing("extism:host/env", "input_length", fn, 0), "import extism:host/env.input_length is () -> () instead of () -> (i64) (import section): declare it so"},
		{"extism without a function", extismOf(t, `(func (export "__collect")) (func (export "add") (param i32))`), "no function that a task could call (exports): export one without parameters, whose result is an i32 or nothing (Rust: #[plugin_fn]; Go: //go:wasmexport)"},
		{"extism start", extismOf(t, `(func (export "run")) (func (export "_initialize") (param i32 i32 i32))`), "_initialize is (i32, i32, i32) -> () instead of () -> () (export _initialize): leave this name to the compiler"},
		{"extism hs_init", extismOf(t, `(func (export "run")) (func (export "hs_init") (param i32 i32) (result i32) (i32.const 0))`), "hs_init is (i32, i32) -> (i32) instead of (i32, i32) -> () (export hs_init): leave this name to the compiler"},
		{"mistyped", exporting("quern_handel"), "it exports quern_handel (exports): did you mean quern_handle?"},
		{"library", exporting("add"), "no entry point (exports): export _start (a command), export quern_handle (" + handlers + ") or import from extism:host/env (an Extism plugin): " + build},
		{"reactor", exporting("_initialize"), "no entry point (exports): it exports _initialize, so it was built as a library (reactor): export quern_handle from it, or build a command (Go: without -buildmode=c-shared; C: without -mexec-model=reactor), or export _start (a command), export quern_handle (" + handlers + ") or import from extism:host/env (an Extism plugin): " + build},
		{"object file", runtimetest.BuildC(t, "int f(void) { return 1; }", "-c"), "an object file, which is not linked yet (linking section): link it (clang without -c)"},
		{"nothing", runtimetest.Module(), "no entry point (exports): export _start (a command), export quern_handle (" + handlers + ") or import from extism:host/env (an Extism plugin): " + build},

		// A command that asks for what it does not get.
		{"start", exporting("_start"), "_start is (i32) -> (i64) instead of () -> () (export _start): export the start function of a WASI command under this name"},
		{"unknown", importing("env", "puts", fn, 0), "unknown import env.puts (import section): a function that no linked library defines: link the library, and do not use --allow-undefined; a command may import only functions of wasi_snapshot_preview1"},
		{"other", importing("my:host", "call", fn, 0), "unknown import my:host.call (import section): a command may import only functions of wasi_snapshot_preview1"},
		{"escaped", importing("a\x1b[2J", "b\n", fn, 0), "unknown import a\\x1b[2J.b\\x0a (import section): a command may import only functions of wasi_snapshot_preview1"},
		{"long", importing(strings.Repeat("m", 1000), "n", fn, 0), "unknown import " + strings.Repeat("m", 200) + "… (import section): a command may import only functions of wasi_snapshot_preview1"},
		{"wasi function", importing("wasi_snapshot_preview1", "sock_open", fn, 0), "unknown import wasi_snapshot_preview1.sock_open (import section): WASI preview 1 has no such function: " + build},
		{"wasi signature", importing("wasi_snapshot_preview1", "fd_close", fn, 1), "import wasi_snapshot_preview1.fd_close is (i32) -> () instead of (i32) -> (i32) (import section): build it with a toolchain for WASI preview 1: " + build},
		{"wasi global", importing("wasi_snapshot_preview1", "fd_write", runtimetest.GlobalKind, 0x7f, 0), "import wasi_snapshot_preview1.fd_write is a global (import section): wasi_snapshot_preview1 has functions only: define the global in the module"},
		{"global", importing("env", "g", runtimetest.GlobalKind, 0x7f, 1), "unknown import env.g (import section): a command may import only functions of wasi_snapshot_preview1"},
		{"table", importing("env", "t", runtimetest.TableKind, 0x70, 0, 1), "unknown import env.t (import section): a command may import only functions of wasi_snapshot_preview1"},
		{"memory", importing("env", "memory", runtimetest.MemoryKind, 0, 1), "unknown import env.memory (import section): define the memory in the module: build it without --import-memory"},
		{"unstable", importing("wasi_unstable", "fd_write", fn, 0), "unknown import wasi_unstable.fd_write (import section): built for an older or extended WASI: build it for preview 1, without threads"},
		{"preview 2", importing("wasi:cli/run@0.2.0", "run", fn, 0), "unknown import wasi:cli/run@0.2.0.run (import section): built for WASI 0.2: " + build},
		{"wasix", importing("wasix_32v1", "thread_spawn", fn, 0), "unknown import wasix_32v1.thread_spawn (import section): built for WASIX: " + build},
		{"gojs", importing("gojs", "runtime.wasmExit", fn, 0), "unknown import gojs.runtime.wasmExit (import section): built by Go for the browser: build it with GOOS=wasip1 GOARCH=wasm"},
		{"wasm-bindgen", importing("__wbindgen_placeholder__", "__wbindgen_throw", fn, 0), "unknown import __wbindgen_placeholder__.__wbindgen_throw (import section): built by wasm-bindgen for the browser: build it with --target wasm32-wasip1 and without wasm-bindgen"},
		{"emscripten growth", importing("env", "emscripten_notify_memory_growth", fn, 0), "import env.emscripten_notify_memory_growth is () -> () instead of (i32) -> () (import section): build it with a toolchain for WASI preview 1: " + buildOf(Command)},
		{"emscripten", importing("env", "emscripten_resize_heap", fn, 0), "unknown import env.emscripten_resize_heap (import section): built by Emscripten for the browser: build it with emcc -sSTANDALONE_WASM, or with clang --target=wasm32-wasi"},
		{"assemblyscript", importing("env", "abort", fn, 0), "unknown import env.abort (import section): built by AssemblyScript for the browser: in asconfig.json write \"extends\": \"./quern/@quern/assemblyscript/asconfig.json\" if quern plugin new made the folder, else build it with @assemblyscript/wasi-shim"},
		{"assemblyscript's console", importing("env", "console.log", fn, 0), "unknown import env.console.log (import section): " + browser},
		{"assemblyscript's date", importing("env", "Date.now", fn, 0), "unknown import env.Date.now (import section): " + browser},
		{"object", importing("env", "__linear_memory", runtimetest.MemoryKind, 0, 1), "unknown import env.__linear_memory (import section): this is an object file: link it (clang without -c)"},
		{"quern_v1", importing("quern_v1", "input", fn, 0), "unknown import quern_v1.input (import section): only a handler may import it, which exports quern_handle"},
		{"later quern", importing("quern_v2", "input_size", fn, 0), "unknown import quern_v2.input_size (import section): quern_v1 is the only version there is; a command may import only functions of wasi_snapshot_preview1"},
		{"start that is a memory", exportingMemory("_start"), "_start is a memory instead of a function () -> () (export _start): export the memory under another name, and under this one a function: export the start function of a WASI command under this name"},

		// A handler that asks for what it does not get, or is none.
		{"handler of env", handlerOf(t, `(import "env" "foo" (func))`), "unknown import env.foo (import section): a function that no linked library defines: link the library, and do not use --allow-undefined; " + onlyHandler},
		{"handler of a later quern", handlerOf(t, `(import "quern_v2" "input_size" (func (result i32)))`), "unknown import quern_v2.input_size (import section): quern_v1 is the only version there is; " + onlyHandler},
		{"handler of another host", handlerOf(t, `(import "my:host" "call" (func))`), "unknown import my:host.call (import section): " + onlyHandler},
		{"handler misspelled", handlerOf(t, `(import "quern_v1" "inputsize" (func (result i32)))`), "unknown import quern_v1.inputsize (import section): import one that exists: cancelled, checkpoint_load, checkpoint_save, clock, config_get, dependency_result, enqueue, error_set, http, input_read, input_size, kv_delete, kv_get, kv_increment, kv_list, kv_set, kv_swap, log, output_write, progress, random, result_read, result_size, retry_after, secret_get, sleep, sql, sql_commit, sql_rollback, sql_step, task_number, task_text"},
		{"handler signature", handlerOf(t, `(import "quern_v1" "input_size" (func (param i32)))`), "import quern_v1.input_size is (i32) -> () instead of () -> (i32) (import section): declare it so"},
		{"handler global", handlerOf(t, `(import "quern_v1" "input_size" (global i32))`), "import quern_v1.input_size is a global (import section): quern_v1 has functions only: define the global in the module"},
		{"handler of wasi", handlerOf(t, `(import "wasi_snapshot_preview1" "sock_open" (func))`), "unknown import wasi_snapshot_preview1.sock_open (import section): WASI preview 1 has no such function: " + buildOf(Handler)},
		{"handle that is a memory", exportingMemory("quern_handle"), "quern_handle is a memory instead of a function () -> (i32) (export quern_handle): export the memory under another name, and under this one a function: return 0 for complete, 75 to try again later, 65 for failed for good"},
		{"handle that is a global", runtimetest.BuildWAT(t, `(module (memory 1) (global (export "quern_handle") i32 (i32.const 0)) (func (export "_start")))`), "quern_handle is a global instead of a function () -> (i32) (export quern_handle): export the global under another name, and under this one a function: return 0 for complete, 75 to try again later, 65 for failed for good"},
		{"handle that is a table", runtimetest.BuildWAT(t, `(module (table (export "quern_handle") 1 funcref))`), "quern_handle is a table instead of a function () -> (i32) (export quern_handle): export the table under another name, and under this one a function: return 0 for complete, 75 to try again later, 65 for failed for good"},
		{"initialize that is a memory", handlerOf(t, `(memory (export "_initialize") 1)`), "_initialize is a memory instead of a function () -> () (export _initialize): export the memory under another name, and under this one a function: export what a WASI reactor begins with under this name"},
		{"damaged handler of env", append(handlerOf(t, `(import "my:host" "call" (func))`), 99, 0), "unknown import my:host.call (import section): " + onlyHandler + "; a damaged WebAssembly module: section 99 is unknown (unknown section at byte 80): " + again},

		{"no memory", withoutMemory(), "no memory, which the functions of wasi_snapshot_preview1 read and write (memory section): declare a memory and export it as memory"},
		{"two memories", twoMemories(), "2 memories, where a plugin may have one (memory section): build it without multi-memory"},
		{"table bomb", tableBomb(), "a module that is too large to serve: 2000000 entries in tables, more than 1048576 (table section at byte 31): declare fewer or smaller tables"},
		{"elements", elementsOutside(), "element segment 0 ends at entry 3 of table 0, which has 2 (element section): build it again"},
		{"data", dataOutside(), "the module cannot be instantiated: data[0]: out of bounds memory access: build it again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			module, err := engine.Load(t.Context(), test.binary)
			var refused *RefusedError
			if module != nil || !errors.As(err, &refused) {
				t.Fatalf("Load = %v, %v, want a refusal", module, err)
			}
			if err.Error() != test.want {
				t.Errorf("refusal =\n%s\nwant\n%s", err, test.want)
			}
			if want := 1 + strings.Count(test.want, "; a damaged"); len(refused.Refusals) != want {
				t.Errorf("%d refusals, want %d", len(refused.Refusals), want)
			}
		})
	}
}

// extismOf is an Extism plugin with these fields.
func extismOf(t *testing.T, fields string) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, `(module (import "extism:host/env" "input_length" (func (result i64)))`+fields+")")
}

// handlerOf is a handler with one more field.
func handlerOf(t *testing.T, field string) []byte {
	t.Helper()
	memory := `(memory (export "memory") 1)`
	if strings.HasPrefix(field, "(memory") {
		memory = ""
	}
	return runtimetest.BuildWAT(t, `(module `+field+memory+` (func (export "quern_handle") (result i32) (i32.const 0)))`)
}

// exportingMemory is a module without functions that exports its memory under that name.
func exportingMemory(name string) []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export(name, runtimetest.MemoryKind, 0)),
	)
}

func randomBytes(seed uint64) []byte {
	b := make([]byte, 1000)
	random := rand.New(rand.NewPCG(seed, seed))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func hexOf(b []byte) string {
	pairs := make([]string, len(b))
	for i := range b {
		pairs[i] = hex.EncodeToString(b[i : i+1])
	}
	return strings.Join(pairs, " ")
}

func withoutMemory() []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", ""), runtimetest.FunctionType("", i32)),
		runtimetest.Section(runtimetest.ImportSection, runtimetest.Import(wasi.ModuleName, "sched_yield", runtimetest.FunctionKind, 1)),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 1)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()),
	)
}

func twoMemories() []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("memory", runtimetest.MemoryKind, 0), runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()),
	)
}

func tableBomb() []byte {
	table := append([]byte{0x70, 0}, runtimetest.Number(1_000_000)...)
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.TableSection, table, table),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()),
	)
}

// elementsOutside has an element segment behind the end of its table, and one that fits.
func elementsOutside() []byte {
	return runtimetest.Module(
		runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.TableSection, []byte{0x70, 0, 2}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
		runtimetest.Section(9, []byte{0, 0x41, 2, 0x0b, 1, 0}, []byte{0, 0x41, 0, 0x0b, 1, 0}),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body()),
	)
}

// dataOutside has a data segment behind the end of its memory.
func dataOutside() []byte {
	at := []byte{0, 0x41, 0xff, 0xff, 0x03, 0x0b} // i32.const 65535, end
	return append(command(nil), runtimetest.Section(runtimetest.DataSection, append(at, runtimetest.Name("xx")...))...)
}

// TestLoadAllRefusals: every reason is told at once, and a flood of them is cut.
func TestLoadAllRefusals(t *testing.T) {
	t.Parallel()
	var imports [][]byte
	for range 25 {
		imports = append(imports, runtimetest.Import("env", "f", runtimetest.FunctionKind, 0))
	}
	_, err := setup(t).Load(t.Context(), command(nil, imports...))
	var refused *RefusedError
	if !errors.As(err, &refused) || len(refused.Refusals) != maxRefusals+1 {
		t.Fatalf("Load = %v, want %d refusals", err, maxRefusals+1)
	}
	if got := refused.Refusals[maxRefusals].What; got != "5 more imports that a command cannot have" {
		t.Errorf("last refusal = %q", got)
	}
	if strings.Count(err.Error(), "; ") < maxRefusals {
		t.Errorf("refusals are not joined: %s", err)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	binary := runtimetest.Echo(t)
	sum := sha256.Sum256(binary)
	info, err := engine.Inspect(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Kind != Command || info.Digest != "sha256:"+hex.EncodeToString(sum[:]) || info.Size != int64(len(binary)) {
		t.Errorf("info = %+v", info)
	}
	if info.Functions < 10 || info.MemoryMin < 64<<10 || info.MemoryMax != 0 {
		t.Errorf("info = %+v", info)
	}
	if !slices.Contains(info.Imports, "wasi_snapshot_preview1.fd_read") || !slices.Equal(info.Exports, []string{"memory", "_start"}) {
		t.Errorf("imports = %v, exports = %v", info.Imports, info.Exports)
	}
	if module := loadInto(t, engine, binary); module.Info().Digest != info.Digest {
		t.Errorf("Load and Inspect disagree: %+v, %+v", module.Info(), info)
	}
	t.Run("ErrRefused", func(t *testing.T) {
		t.Parallel()
		for kind, binary := range map[Kind][]byte{
			Handler: exporting("quern_handle"),
			Extism:  importing("extism:host/env", "input_length", runtimetest.FunctionKind, 0),
			Command: importing("env", "puts", runtimetest.FunctionKind, 0),
			"":      exporting("add"),
		} {
			info, err := engine.Inspect(t.Context(), binary)
			if err == nil || info.Kind != kind || info.Functions != 1 || info.Digest == "" || len(info.Exports) != 1 {
				t.Errorf("Inspect = %+v, %v, want what is known of a refused %q", info, err, kind)
			}
		}
	})
}

// TestLoadManyAtOnce loads the same file at once: it is compiled by one call at a time.
func TestLoadManyAtOnce(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	binary := runtimetest.Exit(t)
	var group sync.WaitGroup
	for code := range 8 {
		group.Go(func() {
			module, err := engine.Load(context.Background(), binary)
			if err != nil {
				t.Error(err)
				return
			}
			if got := call(t, module, string(rune('1'+code)), Limits{}); got.Code != code+1 {
				t.Errorf("outcome = %+v, want exit status %d", got, code+1)
			}
			if err := errors.Join(module.Close(context.Background()), module.Close(context.Background())); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	binary := command(nil)
	t.Run("ErrContext", func(t *testing.T) {
		t.Parallel()
		errGone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		_, err := setup(t).Load(ctx, binary)
		var refused *RefusedError
		if !errors.Is(err, errGone) || errors.As(err, &refused) {
			t.Errorf("Load = %v, want the cause and no refusal", err)
		}
	})
	t.Run("ErrClosed", func(t *testing.T) {
		t.Parallel()
		engine := setup(t)
		if err := errors.Join(engine.Close(t.Context()), engine.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Load(t.Context(), binary); !errors.Is(err, compile.ErrClosed) {
			t.Errorf("Load = %v, want ErrClosed", err)
		}
	})
}

// FuzzLoad: no file makes the checks before the compiler panic, or pass what is neither a command nor a handler.
func FuzzLoad(f *testing.F) {
	for _, seed := range [][]byte{
		nil, command(nil), exporting("_start"), importing("env", "f", runtimetest.FunctionKind, 0), tableBomb(), withoutMemory(),
		[]byte("(module)"), []byte("\x00asm\x0d\x00\x01\x00"), bytes.Repeat([]byte("ü"), 600),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if refused := sniff(file); refused != nil {
			checkRefusals(t, refused.Refusals)
			return
		}
		module, refused := decode(file)
		if refused != nil {
			checkRefusals(t, refused.Refusals)
			return
		}
		outline := &module.Outline
		var info Info
		info.describe(module)
		if info.MemoryMin < 0 || info.MemoryMax < 0 {
			t.Errorf("info = %+v", info)
		}
		found := refusals(kindOf(outline), outline)
		checkRefusals(t, found)
		if kind := kindOf(outline); len(found) == 0 && kind != Command && kind != Handler {
			t.Errorf("a %q passed", kind)
		}
	})
}

// checkRefusals: a refusal is one line that fits on a screen.
func checkRefusals(t *testing.T, refusals []Refusal) {
	t.Helper()
	for _, r := range refusals {
		if r.What == "" || r.Remedy == "" || len(r.String()) > 4*redact.MaxLabel+1000 || redact.Escape([]byte(r.String())) != r.String() {
			t.Errorf("refusal = %q", r)
		}
	}
}
