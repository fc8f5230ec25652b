package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

// decode checks and rewrites a file that sniff has accepted. If it refuses the file, it also returns the part of the
// module that it could read.
func decode(file []byte) (*wasm.Rewritten, *RefusedError) {
	module, err := wasm.Rewrite(file, wasm.Options{})
	if err == nil {
		return module, nil
	}
	where := ""
	if bad, ok := errors.AsType[*wasm.Error](err); ok {
		where, err = bad.Where(), bad.Err
	}
	var over *wasm.CapError
	switch {
	case errors.As(err, &over):
		return module, refuse("a module that is too large to serve: "+err.Error(), where, overRemedy(over.What))
	case errors.Is(err, wasm.ErrUnsupported):
		return module, refuse("a module of a later WebAssembly: "+err.Error(), where, buildOlder)
	case errors.Is(err, wasm.ErrReserved):
		return module, refuse("a module with a name that is not its to give: "+redact.Label(err.Error()), where,
			"name it otherwise")
	case errors.Is(err, wasm.ErrTruncated):
		return module, refuse("a truncated WebAssembly module: "+err.Error(), where, copyAgain)
	default:
		return module, refuse("a damaged WebAssembly module: "+redact.Label(err.Error()), where, copyAgain)
	}
}

// buildOlder is the remedy for modules that use proposals beyond WebAssembly 2.0.
const buildOlder = "build it for WebAssembly 2.0, without later proposals (Rust: -C target-cpu=generic; clang: -mcpu=generic)"

// overRemedy returns the remedy for a module that exceeds a cap of the decoder. The parameter what is CapError.What.
func overRemedy(what string) string {
	switch {
	case strings.HasPrefix(what, "bytes in the file"):
		return "build it without debug information, or take it apart"
	case strings.HasPrefix(what, "bytes in the module"):
		return "build it for size (C, Rust: -Os), or take it apart"
	case strings.Contains(what, "in a function") || strings.Contains(what, "of a function") || what == "locals" ||
		strings.HasPrefix(what, "blocks"):
		return "split that function, or build it without inlining so much into it (C, Rust: -Os)"
	case strings.HasPrefix(what, "pages"):
		return "declare at most " + units.FormatSize(MaxMemory) + ", the largest limits.memory"
	case strings.Contains(what, "table"):
		return "declare fewer or smaller tables"
	default:
		return "no compiler writes as many: build it again, or take it apart"
	}
}

// describe copies the imports, exports, memory sizes and counts from a decoded module.
func (i *Info) describe(o *wasm.Rewritten) {
	i.Functions, i.Charges = o.Functions, o.Charges
	for _, imported := range o.Imports {
		i.Imports = append(i.Imports, redact.Label(imported.Module+"."+imported.Name))
	}
	for _, export := range o.Exports {
		i.Exports = append(i.Exports, redact.Label(export.Name))
	}
	if len(o.Memories) > 0 {
		memory := o.Memories[0]
		i.MemoryMin = int64(memory.Min) * wasm.PageSize
		if memory.HasMax {
			i.MemoryMax = int64(memory.Max) * wasm.PageSize
		}
	}
}

// kindOf returns the kind of a module, or "" if the module has no entry point. It looks only at names; checkEntry
// refuses an entry point that is not a function.
func kindOf(o *wasm.Outline) Kind {
	_, handles := o.Export(handlerExport)
	_, starts := o.Export(startExport)
	switch {
	case slices.ContainsFunc(o.Imports, ofExtism):
		return Extism
	case handles:
		return Handler
	case starts:
		return Command
	}
	return ""
}

// ofExtism reports whether an import is from one of Extism's modules, even if Extism has no such function.
func ofExtism(i wasm.Import) bool {
	return i.Module == abi.ExtismModule || i.Module == abi.ExtismOldModule && strings.HasPrefix(i.Name,
		abi.ExtismOldPrefix)
}

// refusals returns everything that is wrong with a module. If the module has no kind, or a mistyped handler, that is
// the only refusal.
func refusals(kind Kind, o *wasm.Outline) []Refusal {
	if name := mistypedHandler(o); name != "" && kind != Handler && kind != Extism {
		return []Refusal{{What: "it exports " + redact.Label(name), Where: "exports", Remedy: "did you mean " + handlerExport + "?"}}
	}
	if kind == "" {
		return []Refusal{noEntryPoint(o)}
	}
	found := append(checkImports(kind, o), checkMemory(o)...)
	if o.Overflow != "" {
		found = append(found, Refusal{What: o.Overflow, Where: "element section", Remedy: "build it again"})
	}
	return append(found, checkEntry(kind, o)...)
}

// mistypedHandler returns the name of an export that can only be meant as that of a handler; "" if there is none.
func mistypedHandler(o *wasm.Outline) string {
	for _, e := range o.Exports {
		if e.Kind == wasm.Function && strings.HasPrefix(e.Name, "quern_h") && e.Name != handlerExport {
			return e.Name
		}
	}
	return ""
}

// checkEntry checks that the exports which the host calls are functions of the right type.
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
			refusal.Remedy = fmt.Sprintf("export the %s under another name, and under this one a function: %s", export.Kind,
				remedy)
		case export.Signature.String() != want:
			refusal.What = fmt.Sprintf("%s is %s instead of %s", name, export.Signature, want)
		default:
			return
		}
		found = append(found, refusal)
	}
	switch kind {
	case Extism:
		for _, start := range extismStarts {
			check(start.name, start.signature, "leave this name to the compiler")
		}
		if names, _ := entries(o); len(names) == 0 {
			found = append(found, Refusal{
				What: "no function that a task could call", Where: "exports",
				Remedy: "export one without parameters, whose result is an i32 or nothing (Rust: #[plugin_fn]; Go: //go:wasmexport)",
			})
		}
		return found
	case Command:
		check(startExport, "() -> ()", "export the start function of a WASI command under this name")
		return found
	}
	handle, _ := o.Export(handlerExport)
	_, starts := o.Export(startExport)
	if _, begins := o.Export(initialize); starts && !begins && handle.Kind == wasm.Function {
		found = append(found, Refusal{
			What:  "a handler that was built as a command",
			Where: "exports",
			Remedy: "build it as a library (Go: -buildmode=c-shared; C: -mexec-model=reactor), or do not export " +
				handlerExport,
		})
	}
	check(handlerExport, "() -> (i32)", "return 0 for complete, 75 to try again later, 65 for failed for good")
	check(initialize, "() -> ()", "export what a WASI reactor begins with under this name")
	if kind == Handler {
		if where, ok := o.Export(wasm.WhereExport); !ok || where.Kind != wasm.Function ||
			where.Signature.String() != "(i32) -> (i32)" {
			check(wasm.WhereExport, "() -> (i32)", "return the address of a text that ends with a NUL byte")
		}
	}
	return found
}

// entries returns the exports of an Extism plugin that a task can call: functions without parameters whose result is an
// i32 or nothing, except functions that a toolchain adds. own is the export that tasks call unless the manifest names
// another. It is quern_handle, else the only export other than _start, else _start if that is the only one, else "".
func entries(o *wasm.Outline) (names []string, own string) {
	for _, e := range o.Exports {
		added := e.Name == initialize || e.Name == "hs_exit" || strings.HasPrefix(e.Name, "__") ||
			strings.HasPrefix(e.Name, "asyncify_")
		if !added && e.Kind == wasm.Function && (e.Signature.String() == "() -> (i32)" ||
			e.Signature.String() == "() -> ()") {
			names = append(names, e.Name)
		}
	}
	others := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == startExport })
	switch {
	case slices.Contains(names, handlerExport):
		own = handlerExport
	case len(others) == 1:
		own = others[0]
	case len(names) == 1:
		own = names[0]
	}
	return names, own
}

// describeEntry sets Entry and Entries. For an Extism plugin, it also adds the kernel's memory to MemoryMin. The module
// must have no refusals.
func (i *Info) describeEntry(o *wasm.Outline) {
	switch i.Kind {
	case Handler:
		i.Entry = handlerExport
	case Command:
		i.Entry = startExport
	case Extism:
		i.MemoryMin += wasm.PageSize // the kernel's first page
		i.Entries, i.Entry = entries(o)
	}
}

// extismStarts are the exports that the host calls before the first task of an Extism plugin, in the order of the
// calls. The host skips __wasm_call_ctors if there is an _initialize, which calls the constructors itself.
var extismStarts = []struct{ name, signature string }{
	{initialize, "() -> ()"},
	{"__wasm_call_ctors", "() -> ()"},
	{"hs_init", "(i32, i32) -> ()"}, // starts the runtime of Haskell
}

// startup lists the exports that the host calls before a module's first task.
func startup(kind Kind, o *wasm.Outline) (names []string) {
	for n, start := range extismStarts {
		if _, ok := o.Export(start.name); ok && (n == 0 || kind == Extism && (n > 1 || len(names) == 0)) {
			names = append(names, start.name)
		}
	}
	return names
}

// foreign checks the imports of a file that cannot be read to its end. They often show for which other host the file
// was built.
func foreign(o *wasm.Outline) []Refusal {
	kind := cmp.Or(kindOf(o), Command)
	if kind == Command && o.ImportsFrom(abi.ModuleName) {
		kind = Handler
	}
	return checkImports(kind, o)
}

func noEntryPoint(o *wasm.Outline) Refusal {
	if slices.Contains(o.Custom, "linking") {
		return Refusal{
			What: "an object file, which is not linked yet", Where: "linking section",
			Remedy: "link it (clang without -c)",
		}
	}
	remedy := fmt.Sprintf("export %s (a command), export %s (a handler; Rust: #[quern::handler] above fn handle(task: quern::Task) -> "+
		"Result<String, quern::Error>; AssemblyScript: export function %[2]s(): i32 { return run(FUNCTION); }) or import from %s (an Extism plugin): %s",
		startExport, handlerExport, abi.ExtismModule, buildCommand)
	if _, ok := o.Export("_initialize"); ok {
		remedy = "it exports _initialize, so it was built as a library (reactor): export " + handlerExport +
			" from it, or build a command (Go: without -buildmode=c-shared; C: without -mexec-model=reactor), or " + remedy
	}
	return Refusal{What: "no entry point", Where: "exports", Remedy: remedy}
}

// checkMemory refuses a module without a memory if it imports host functions, which need one for their buffers. It also
// refuses a second memory, which the compiler does not support.
func checkMemory(o *wasm.Outline) []Refusal {
	var found []Refusal
	if n := len(o.Memories); n > 1 {
		found = append(found, Refusal{
			What: fmt.Sprintf("%d memories, where a plugin may have one", n), Where: "memory section",
			Remedy: "build it without multi-memory",
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

// maxRefusals is the maximum number of refused imports that are listed one by one.
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
			What:   fmt.Sprintf("%d more imports that %s cannot have", more, kind.Noun()),
			Where:  "import section",
			Remedy: "remove them",
		})
	}
	return found
}

// checkImport accepts only functions that have the right signature: those of WASI preview 1, those of quern_v1 in a
// handler, those of Extism in an Extism plugin, and Emscripten's in a command or handler. ok reports whether it accepts
// i.
func checkImport(kind Kind, i wasm.Import) (refusal Refusal, ok bool) {
	name, own := redact.Label(i.Module+"."+i.Name), i.Module == abi.ModuleName || ofExtism(i)
	refusal = Refusal{What: "unknown import " + name, Where: "import section", Remedy: importRemedy(kind, i)}
	functions := signatures()[i.Module]
	want, known := functions[i.Name]
	switch {
	case functions == nil, i.Module == abi.ModuleName && kind != Handler,
		i.Module == abi.EmscriptenModule && !ofExtism(i) && (!known || kind == Extism):
	case i.Kind != wasm.Function:
		refusal.What = fmt.Sprintf("import %s is a %s", name, i.Kind)
		refusal.Remedy = i.Module + " has functions only: define the " + i.Kind.String() + " in the module"
	case !known && own:
		refusal.Remedy = "import one that exists: " + strings.Join(slices.Sorted(maps.Keys(functions)), ", ")
	case !known:
	case want.String() == i.Signature.String():
		return Refusal{}, true
	default:
		refusal.What = fmt.Sprintf("import %s is %s instead of %s", name, i.Signature, want)
		refusal.Remedy = "build it with a toolchain for WASI preview 1: " + buildOf(kind)
		if own {
			refusal.Remedy = "declare it so"
		}
	}
	return refusal, false
}

// buildOf returns the remedy for a module that was built for another host: how to build a module of this kind.
func buildOf(kind Kind) string {
	if kind == Handler {
		return "build a library that exports " + handlerExport +
			" (Go: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared; " +
			"Rust: --target wasm32-wasip1 --crate-type cdylib; C: clang --target=wasm32-wasi -mexec-model=reactor)"
	}
	return buildCommand
}

// importRemedy returns the remedy for an import that is refused. It recognizes toolchains that build for another host.
func importRemedy(kind Kind, i wasm.Import) string {
	only := "a command may import only functions of " + wasi.ModuleName
	switch kind {
	case Handler:
		only = "a handler may import only functions of " + abi.ModuleName + " and of " + wasi.ModuleName
	case Extism:
		only = "it is a function of the program that the plugin was written for, or of another module; an Extism plugin may import only functions of " +
			abi.ExtismModule + " and of " + wasi.ModuleName
	}
	switch {
	case i.Module == wasi.ModuleName:
		return "WASI preview 1 has no such function: " + buildOf(kind)
	case i.Module == abi.ModuleName:
		return "only a handler may import it, which exports " + handlerExport
	case strings.HasPrefix(i.Module, "quern_"):
		return abi.ModuleName + " is the only version there is; " + only
	case strings.HasPrefix(i.Module, "wasi:") || strings.HasPrefix(i.Module, "cm32p2|"):
		return "built for WASI 0.2: " + buildOf(kind)
	case strings.HasPrefix(i.Module, "wasix"):
		return "built for WASIX: " + buildOf(kind)
	}
	for _, t := range toolchains {
		if t.imports.MatchString(i.Module + " " + i.Name) {
			return t.remedy
		}
	}
	switch {
	case i.Module == "env" && i.Kind == wasm.Memory:
		return "define the memory in the module: build it without --import-memory"
	case i.Module == "env" && i.Kind == wasm.Function:
		return "a function that no linked library defines: link the library, and do not use --allow-undefined; " + only
	default:
		return only
	}
}

// toolchains recognizes toolchains for other hosts by the imports of a module. imports matches an import that is
// written as MODULE NAME.
var toolchains = []struct {
	imports *regexp.Regexp
	remedy  string
}{
	{regexp.MustCompile(`^wasi(_unstable)? `), "built for an older or extended WASI: build it for preview 1, without threads"},
	{regexp.MustCompile(`^go(js)? `), "built by Go for the browser: build it with GOOS=wasip1 GOARCH=wasm"},
	{
		regexp.MustCompile(`^wbg |^__wbindgen|_bg\.js `),
		"built by wasm-bindgen for the browser: build it with --target wasm32-wasip1 and without wasm-bindgen",
	},
	{regexp.MustCompile(`^env __linear_memory$`), "this is an object file: link it (clang without -c)"},
	{
		regexp.MustCompile(`^env (_?emscripten_|invoke_|__syscall_|___?cxa_|_embind_)`),
		"built by Emscripten for the browser: build it with emcc -sSTANDALONE_WASM, or with clang --target=wasm32-wasi",
	},
	{
		regexp.MustCompile(`^env (abort|seed|trace)$`),
		`built by AssemblyScript for the browser: in asconfig.json write "extends": "./quern/@quern/assemblyscript/asconfig.json" ` +
			"if quern plugin new made the folder, else build it with @assemblyscript/wasi-shim",
	},
	{
		regexp.MustCompile(`^env (console|crypto|Date|document|Math|Object|performance|process|Reflect|window)\.`),
		"built by AssemblyScript for the browser: call the functions of @quern/assemblyscript instead (info for console.log, now for Date.now, " +
			"random for crypto), or build it with @assemblyscript/wasi-shim",
	},
}

// signatures returns the signatures of the functions that guests may import, by module and name.
var signatures = sync.OnceValue(func() map[string]map[string]wasm.Signature {
	preview1, own := map[string]wasm.Signature{}, map[string]wasm.Signature{}
	for _, f := range wasi.Functions() {
		preview1[f.Name] = signatureOf(f.Params, f.Results)
	}
	for _, f := range abi.Functions() {
		own[f.Name] = signatureOf(f.Params, f.Results)
	}
	all := map[string]map[string]wasm.Signature{
		wasi.ModuleName: preview1, abi.ModuleName: own, abi.ExtismModule: {},
		abi.ExtismOldModule: {},
	}
	kernel, err := wasm.Rewrite(abi.Kernel, wasm.Options{})
	if err != nil {
		panic(err) // the kernel is built in
	}
	for _, e := range kernel.Exports {
		switch {
		case e.Kind != wasm.Function || strings.HasPrefix(e.Name, "quern_"): // for the host, not for plugins
		case strings.HasPrefix(e.Name, abi.ExtismOldPrefix):
			all[abi.ExtismOldModule][e.Name] = *e.Signature
		default:
			all[abi.ExtismModule][e.Name] = *e.Signature
		}
	}
	all[abi.EmscriptenModule][abi.EmscriptenGrowth] = signatureOf([]api.ValueType{api.ValueTypeI32}, nil)
	return all
})

func signatureOf(params, results []api.ValueType) (s wasm.Signature) {
	for _, t := range params {
		s.Params = append(s.Params, wasm.Type(t))
	}
	for _, t := range results {
		s.Results = append(s.Results, wasm.Type(t))
	}
	return s
}
