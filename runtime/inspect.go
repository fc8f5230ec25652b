package runtime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

const (
	handlerExport = "quern_handle"
	extismModule  = "extism:host/env"
)

// decode checks a file that sniff has passed, and writes it anew. What it returns is filled as far as the
// file could be read, also beside a refusal.
func decode(file []byte) (*wasm.Rewritten, *RefusedError) {
	module, err := wasm.Rewrite(file, wasm.Options{})
	if err == nil {
		return module, nil
	}
	where := ""
	var bad *wasm.Error
	if errors.As(err, &bad) {
		where, err = bad.Where(), bad.Err
	}
	var over *wasm.CapError
	switch {
	case errors.As(err, &over):
		return module, refuse("a module that is too large to serve: "+err.Error(), where, overRemedy(over.What))
	case errors.Is(err, wasm.ErrUnsupported):
		return module, refuse("a module of a later WebAssembly: "+err.Error(), where, buildOlder)
	case errors.Is(err, wasm.ErrReserved):
		return module, refuse("a module with a name that is not its to give: "+label(err.Error()), where, "name it otherwise")
	case errors.Is(err, wasm.ErrTruncated):
		return module, refuse("a truncated WebAssembly module: "+err.Error(), where, copyAgain)
	default:
		return module, refuse("a damaged WebAssembly module: "+label(err.Error()), where, copyAgain)
	}
}

// buildOlder is the remedy for what proposals beyond WebAssembly 2.0 bring.
const buildOlder = "build it for WebAssembly 2.0, without later proposals (Rust: -C target-cpu=generic; clang: -mcpu=generic)"

// overRemedy says what to do about a module that is over a cap of the decoder.
func overRemedy(what string) string {
	switch {
	case strings.HasPrefix(what, "bytes in the file"):
		return "build it without debug information, or take it apart"
	case strings.HasPrefix(what, "bytes in the module"):
		return "build it for size (C, Rust: -Os), or take it apart"
	case strings.Contains(what, "in a function") || strings.Contains(what, "of a function") || what == "locals" || strings.HasPrefix(what, "blocks"):
		return "split that function, or build it without inlining so much into it (C, Rust: -Os)"
	case strings.HasPrefix(what, "pages"):
		return "declare at most " + units.FormatSize(MaxMemory) + ", the largest limits.memory"
	case strings.Contains(what, "table"):
		return "declare fewer or smaller tables"
	default:
		return "no compiler writes as many: build it again, or take it apart"
	}
}

// describe fills in what the outline says.
func (i *Info) describe(o *wasm.Rewritten) {
	i.Functions, i.Charges = o.Functions, o.Charges
	for _, imported := range o.Imports {
		i.Imports = append(i.Imports, label(imported.Module+"."+imported.Name))
	}
	for _, export := range o.Exports {
		i.Exports = append(i.Exports, label(export.Name))
	}
	if len(o.Memories) > 0 {
		i.MemoryMin = bytesOf(o.Memories[0].Min)
		if o.Memories[0].HasMax {
			i.MemoryMax = bytesOf(o.Memories[0].Max)
		}
	}
}

func bytesOf(pages uint32) int64 { return int64(pages) * wasm.PageSize }

// kindOf tells the kinds apart; "" is none of them. The name of an export is enough: one that is no function is refused
// as such.
func kindOf(o *wasm.Outline) Kind {
	if _, ok := o.Export(handlerExport); ok {
		return Handler
	}
	if o.ImportsFrom(extismModule) {
		return Extism
	}
	if _, ok := o.Export(entryPoints[Command]); ok {
		return Command
	}
	return ""
}

// refusals finds everything that is wrong with a module of that kind. For a kind that cannot be
// served this is one refusal: what else it imports is right for its kind.
func refusals(kind Kind, o *wasm.Outline) []Refusal {
	switch kind {
	case Command, Handler:
	case Extism:
		return []Refusal{{
			What:   "an Extism plugin, which is not supported yet",
			Where:  "imports from " + extismModule,
			Remedy: "until then " + buildCommand,
		}}
	default:
		return []Refusal{noEntryPoint(o)}
	}
	found := append(checkImports(kind, o), checkMemory(o)...)
	if o.Overflow != "" {
		found = append(found, Refusal{What: o.Overflow, Where: "element section", Remedy: "build it again"})
	}
	return append(found, checkEntry(kind, o)...)
}

// checkEntry finds what is wrong with the functions that the host calls.
func checkEntry(kind Kind, o *wasm.Outline) []Refusal {
	var found []Refusal
	check := func(name, want, remedy string) {
		export, ok := o.Export(name)
		refusal := Refusal{Where: "export " + name, Remedy: remedy}
		switch {
		case !ok:
			return
		case export.Kind != wasm.Function:
			refusal.What = fmt.Sprintf("%s is a %s instead of a function %s", name, export.Kind, want)
			refusal.Remedy = fmt.Sprintf("export the %s under another name, and under this one a function: %s", export.Kind, remedy)
		case export.Signature.String() != want:
			refusal.What = fmt.Sprintf("%s is %s instead of %s", name, export.Signature, want)
		default:
			return
		}
		found = append(found, refusal)
	}
	if kind == Command {
		check(entryPoints[Command], "() -> ()", "export the start function of a WASI command under this name")
		return found
	}
	handle, _ := o.Export(handlerExport)
	_, starts := o.Export(entryPoints[Command])
	if _, begins := o.Export(initialize); starts && !begins && handle.Kind == wasm.Function {
		found = append(found, Refusal{
			What:   "a handler that was built as a command",
			Where:  "exports",
			Remedy: "build it as a library (Go: -buildmode=c-shared; C: -mexec-model=reactor), or do not export " + handlerExport,
		})
	}
	check(handlerExport, "() -> (i32)", "return 0 for complete, 75 to try again later, 65 for failed for good")
	check(initialize, "() -> ()", "export what a WASI reactor begins with under this name")
	return found
}

// foreign finds the imports for which a file that cannot be read to its end could not be served either: they
// often say what it was built for.
func foreign(o *wasm.Outline) []Refusal {
	if o.ImportsFrom(extismModule) {
		return nil
	}
	kind := Command
	if kindOf(o) == Handler || o.ImportsFrom(abi.ModuleName) {
		kind = Handler
	}
	return checkImports(kind, o)
}

func noEntryPoint(o *wasm.Outline) Refusal {
	if slices.Contains(o.Custom, "linking") {
		return Refusal{What: "an object file, which is not linked yet", Where: "linking section", Remedy: "link it (clang without -c)"}
	}
	remedy := fmt.Sprintf("export %s (a command), export %s (a handler) or import from %s (an Extism plugin, "+
		"not supported yet): %s", entryPoints[Command], handlerExport, extismModule, buildCommand)
	if _, ok := o.Export("_initialize"); ok {
		remedy = "it exports _initialize, so it was built as a library (reactor): export " + handlerExport +
			" from it, or build a command (Go: without -buildmode=c-shared; C: without -mexec-model=reactor), or " + remedy
	}
	return Refusal{What: "no entry point", Where: "exports", Remedy: remedy}
}

// checkMemory finds what a module lacks that has no memory: it could hand no buffer to the functions of the host,
// which take one for granted. The compiler knows no more than one.
func checkMemory(o *wasm.Outline) []Refusal {
	var found []Refusal
	if n := len(o.Memories); n > 1 {
		found = append(found, Refusal{
			What: fmt.Sprintf("%d memories, where a plugin may have one", n), Where: "memory section", Remedy: "build it without multi-memory",
		})
	}
	for _, module := range []string{wasi.ModuleName, abi.ModuleName} {
		if len(o.Memories) == 0 && o.ImportsFrom(module) {
			found = append(found, Refusal{
				What:   "no memory, which the functions of " + module + " read and write",
				Where:  "memory section",
				Remedy: "declare a memory and export it as memory",
			})
		}
	}
	return found
}

// maxRefusals bounds how many imports are refused one by one.
const maxRefusals = 20

func checkImports(kind Kind, o *wasm.Outline) []Refusal {
	var found []Refusal
	more := 0
	for _, imported := range o.Imports {
		refusal, ok := checkImport(kind, imported)
		switch {
		case ok:
		case len(found) < maxRefusals:
			found = append(found, refusal)
		default:
			more++
		}
	}
	if more > 0 {
		found = append(found, Refusal{
			What:   fmt.Sprintf("%d more imports that a %s cannot have", more, kind),
			Where:  "import section",
			Remedy: "remove them",
		})
	}
	return found
}

// checkImport refuses what is not a function of WASI preview 1, or for a handler of quern_v1, with its very
// signature.
func checkImport(kind Kind, i wasm.Import) (Refusal, bool) {
	functions, remedy := wasiFunctions(), "build it with a toolchain for WASI preview 1: "+buildOf(kind)
	if kind == Handler && i.Module == abi.ModuleName {
		functions, remedy = abiFunctions(), "declare it so"
	}
	name := label(i.Module + "." + i.Name)
	refusal := Refusal{
		What:   "unknown import " + name,
		Where:  "import section",
		Remedy: importRemedy(kind, i),
	}
	if i.Module != wasi.ModuleName && (kind != Handler || i.Module != abi.ModuleName) {
		return refusal, false
	}
	if i.Kind != wasm.Function {
		refusal.What = fmt.Sprintf("import %s is a %s", name, i.Kind)
		refusal.Remedy = i.Module + " has functions only: define the " + i.Kind.String() + " in the module"
		return refusal, false
	}
	want, ok := functions[i.Name]
	if !ok {
		if i.Module == abi.ModuleName {
			refusal.Remedy = "import one that exists: " + strings.Join(slices.Sorted(maps.Keys(abiFunctions())), ", ")
		}
		return refusal, false
	}
	if want.String() != i.Signature.String() {
		refusal.What = fmt.Sprintf("import %s is %s instead of %s", name, i.Signature, want)
		refusal.Remedy = remedy
		return refusal, false
	}
	return Refusal{}, true
}

// buildOf is the remedy for a module of that kind that was built for another host.
func buildOf(kind Kind) string {
	if kind == Handler {
		return "build a library that exports " + handlerExport + " (Go: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared; " +
			"Rust: --target wasm32-wasip1 --crate-type cdylib; C: clang --target=wasm32-wasi -mexec-model=reactor)"
	}
	return buildCommand
}

// importRemedy recognizes the toolchains whose modules are made for another host.
func importRemedy(kind Kind, i wasm.Import) string {
	only := "a command may import only functions of " + wasi.ModuleName
	if kind == Handler {
		only = "a handler may import only functions of " + abi.ModuleName + " and of " + wasi.ModuleName
	}
	switch {
	case i.Module == wasi.ModuleName:
		return "WASI preview 1 has no such function: " + buildOf(kind)
	case i.Module == abi.ModuleName:
		return "only a handler may import it, which exports " + handlerExport
	case strings.HasPrefix(i.Module, "quern_"):
		return abi.ModuleName + " is the only version there is; " + only
	case i.Module == "wasi_unstable" || i.Module == "wasi":
		return "built for an older or extended WASI: build it for preview 1, without threads"
	case strings.HasPrefix(i.Module, "wasi:") || strings.HasPrefix(i.Module, "cm32p2|"):
		return "built for WASI 0.2: " + buildOf(kind)
	case strings.HasPrefix(i.Module, "wasix"):
		return "built for WASIX: " + buildOf(kind)
	case i.Module == "gojs" || i.Module == "go":
		return "built by Go for the browser: build it with GOOS=wasip1 GOARCH=wasm"
	case i.Module == "wbg" || strings.HasPrefix(i.Module, "__wbindgen") || strings.HasSuffix(i.Module, "_bg.js"):
		return "built by wasm-bindgen for the browser: build it with --target wasm32-wasip1 and without wasm-bindgen"
	case i.Module == "env" && i.Name == "__linear_memory":
		return "this is an object file: link it (clang without -c)"
	case i.Module == "env" && i.Kind == wasm.Memory:
		return "define the memory in the module: build it without --import-memory"
	case i.Module == "env" && isEmscripten(i.Name):
		return "built by Emscripten for the browser: build it with emcc -sSTANDALONE_WASM, or with clang --target=wasm32-wasi"
	case i.Module == "env" && (i.Name == "abort" || i.Name == "seed" || i.Name == "trace"):
		return "built by AssemblyScript for the browser: build it with @assemblyscript/wasi-shim"
	case i.Module == "env" && i.Kind == wasm.Function:
		return "a function that no linked library defines: link the library, and do not use --allow-undefined; " + only
	default:
		return only
	}
}

func isEmscripten(name string) bool {
	known := []string{"emscripten_", "_emscripten_", "invoke_", "__syscall_", "__cxa_", "___cxa_", "_embind_"}
	return slices.ContainsFunc(known, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// wasiFunctions and abiFunctions are the functions that guests may import, with their signatures.
var (
	wasiFunctions = sync.OnceValue(func() map[string]wasm.Signature {
		signatures := map[string]wasm.Signature{}
		for _, f := range wasi.Functions() {
			signatures[f.Name] = signatureOf(f.Params, f.Results)
		}
		return signatures
	})
	abiFunctions = sync.OnceValue(func() map[string]wasm.Signature {
		signatures := map[string]wasm.Signature{}
		for _, f := range abi.Functions() {
			signatures[f.Name] = signatureOf(f.Params, f.Results)
		}
		return signatures
	})
)

func signatureOf(params, results []api.ValueType) (s wasm.Signature) {
	for _, t := range params {
		s.Params = append(s.Params, wasm.Type(t))
	}
	for _, t := range results {
		s.Results = append(s.Results, wasm.Type(t))
	}
	return s
}
