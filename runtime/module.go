package runtime

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/runtime/wasm"
)

// Kind is the interface by which the host calls a plugin.
type Kind string

// The kinds of plugins. A module that fits several kinds is an Extism plugin if it fits that kind, otherwise a handler.
const (
	// Handler is the kind of modules that export quern_handle.
	Handler Kind = "handler"
	// Extism is the kind of modules that import functions of Extism, from extism:host/env or as plugins of Extism 0.x do.
	Extism Kind = "extism"
	// Command is the kind of WASI preview 1 programs, which export _start.
	Command Kind = "command"
)

// Noun names a plugin of the kind, with the article: "a handler".
func (k Kind) Noun() string {
	if k == Extism {
		return "an Extism plugin"
	}
	return "a " + string(k)
}

// DigestOf returns "sha256:" and the 64 hex digits of the SHA-256 of data.
func DigestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// Info describes a module. A field that could not be read has its zero value.
type Info struct {
	Kind Kind
	// Entry is the export that a task calls. It is "" if Entries has several exports from which a profile has to choose.
	Entry string
	// Entries are the exports of an Extism plugin that a task can call.
	Entries []string
	// Digest is the result of DigestOf for the file's bytes.
	Digest string
	// Size is the file's size in bytes.
	Size int64
	// Functions counts the functions that the module defines.
	Functions int
	// Imports are written as MODULE.NAME, Exports as NAME. Both are in the order of the file.
	Imports, Exports []string
	// Files lists the files that the module carries, in the order of its sections.
	Files []CarriedFile
	// Charges counts the places in the module's code where fuel is charged.
	Charges int
	// MemoryMin and MemoryMax are the memory sizes that the module declares, in bytes; MemoryMax 0 means no maximum.
	// For an Extism plugin MemoryMin includes the kernel's first page.
	MemoryMin, MemoryMax int64
	// ResetMode is the way in which the module's tasks get pristine instances. ResetReason says why the module has this
	// mode.
	ResetMode   ResetMode
	ResetReason string
}

// CarriedFile describes a file that a module carries.
type CarriedFile struct {
	// Path is absolute. Size is in bytes.
	Path string
	Size int64
}

// The exports that the host calls, and their types.
const (
	handlerExport = "quern_handle" // () -> (i32)
	startExport   = "_start"       // () -> ()
	initialize    = "_initialize"  // () -> (): optional; runs before a handler's first task
)

// host is the state that the guests of all modules of an engine share.
type host struct {
	logger   hclog.Logger
	gate     *gate
	started  time.Time    // the zero of the guests' monotonic clock
	counters abi.Counters // counts the calls of quern_v1
	crash    *crash.Table // nil without a monitor
	stacks   atomic.Int64 // bytes of the call stacks of running guests

	warnUnguarded sync.Once // for the warning about memories without guard pages
}

// Module is a compiled plugin. Bind makes pools that run it.
type Module struct {
	host     *host
	code     *compile.Code
	owner    string // takes turns with other owners at loading code
	name     string // wazero's name for the module
	info     Info
	mutable  []wasm.Type // types of the globals that the guest can change
	declared uint64      // the maximum memory that the module declares, in bytes; MaxMemory if it declares none
	start    bool        // the module has a start section
	startup  []string    // the exports that the host calls before the first task, except in a command
	answers  bool        // it is an interpreter that exports quern_where
	perTask  bool        // each task needs a new instance, and pays for it, since a reset does not restore all changes
	price    int64       // fuel for making an instance
	tables   int64       // maximum size of an instance's tables, in bytes
	names    int64       // bytes of the module's names, which the compiler keeps
	bundled  []*Files    // the carried files, by section; other modules can share them
	files    *Files      // all carried files; nil if there are none

	used   atomic.Int64   // time of the last load, begin of a call or end of a call, in ns of Unix time
	builds sync.WaitGroup // builds of snapshots that are in progress

	mu    sync.Mutex
	pools map[*Pool]struct{} // pools that have or recently had a snapshot or instances; guarded by mu

	closeOnce sync.Once
	onClose   func() // removes the module from the engine
}

// Info describes the module.
func (m *Module) Info() Info { return m.info }

// numbered corrects a frame that names a function by its number, such as $12. The rewritten module imports one function
// more than the file, so that the number is too high by one.
func (m *Module) numbered(frame string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(frame, "$"))
	if err != nil || !strings.HasPrefix(frame, "$") || n <= len(m.info.Imports) {
		return frame
	}
	return "$" + strconv.Itoa(n-1)
}

// Admits returns a *RefusedError if the module's initial memory is over the limit.
func (m *Module) Admits(l Limits) error {
	limit := l.WithDefaults().Memory
	if m.info.MemoryMin <= limit {
		return nil
	}
	return refuse(
		fmt.Sprintf("the module needs %s of memory from its start, over the memory limit of %s",
			units.FormatSize(m.info.MemoryMin), units.FormatSize(limit)),
		"memory section",
		cmp.Or(l.Remedies["memory"], l.Remedies.ofMemory(m.info.MemoryMin, 0)+" or build it with a smaller initial memory"),
	)
}

// Overhead returns the maximum number of bytes that an instance takes in addition to its memory. That is the size of
// its tables, or 0 if the tables take less than wasm.PageSize.
func (m *Module) Overhead() int64 {
	if m.tables < wasm.PageSize {
		return 0
	}
	return m.tables
}

// Carried returns the files that the module carries, by section. Modules with an equal section share its files.
func (m *Module) Carried() []*Files { return m.bundled }

// Holds returns the approximate number of bytes that the module's Info takes as long as the module lives. It does not
// count the carried files.
func (m *Module) Holds() int64 {
	const header = 16 // of a string, in bytes
	var bytes int64
	for _, names := range [][]string{m.info.Imports, m.info.Exports, m.info.Entries} {
		for _, name := range names {
			bytes += header + int64(len(name))
		}
	}
	for _, file := range m.info.Files {
		bytes += header + 8 + int64(len(file.Path))
	}
	return bytes
}

// Names returns the approximate number of bytes that the compiler keeps for the names in the module. Modules with the
// same code have the same key, and share these bytes.
func (m *Module) Names() (key any, bytes int64) { return m.code, 2 * m.names }

func (m *Module) touch(now time.Time) { m.used.Store(now.UnixNano()) }
