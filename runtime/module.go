package runtime

import (
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

// The kinds of plugins. A module that fits several is an Extism plugin, else a handler.
const (
	// Handler exports quern_handle.
	Handler Kind = "handler"
	// Extism imports Extism's functions: those of extism:host/env, or of its 0.x line.
	Extism Kind = "extism"
	// Command exports _start: a WASI preview 1 program.
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
	// Entry is the export that a task calls. It is "" if Entries has several from which a profile has to choose.
	Entry string
	// Entries are the exports of an Extism plugin that a task may call.
	Entries []string
	// Digest is DigestOf the file's bytes.
	Digest string
	// Size is the file's size in bytes.
	Size int64
	// Functions counts the functions that the module defines.
	Functions int
	// Imports are written module.name, Exports name, both in the order of the file.
	Imports, Exports []string
	// Files lists the files that the module carries, in the order of its sections.
	Files []CarriedFile
	// Charges counts the places in the module's code where fuel is charged.
	Charges int
	// MemoryMin and MemoryMax are the memory sizes that the module declares, in bytes; MemoryMax 0 means no maximum.
	// For an Extism plugin MemoryMin includes the kernel's first page.
	MemoryMin, MemoryMax int64
	// ResetMode is how the module's tasks get pristine instances, ResetReason why it has this mode.
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

// host holds what the guests of all modules of an engine share.
type host struct {
	logger   hclog.Logger
	gate     *gate
	started  time.Time    // the zero of the guests' monotonic clock
	counters abi.Counters // of the calls of quern_v1
	crash    *crash.Table // nil without a monitor
	stacks   atomic.Int64 // bytes of the call stacks of running guests

	warnUnguarded sync.Once // about memories without guard pages
}

// Module is a compiled plugin. See Bind.
type Module struct {
	host     *host
	code     *compile.Code
	owner    string // who takes turns with other owners at loading code
	name     string // wazero's name for the module
	info     Info
	mutable  []wasm.Type // types of the globals that the guest can change
	declared uint64      // the most memory that the module itself allows, in bytes
	start    bool        // the module has a start section
	startup  []string    // the exports that all but a command run before their first task
	perTask  bool        // a reset does not restore all changes: each task needs a new instance, and pays
	price    int64       // the fuel for making an instance
	tables   int64       // the most bytes that an instance's tables take
	names    int64       // bytes of the names in the code, which the compiler keeps
	bundled  []*Files    // the carried files, by section; other modules may share them
	files    *Files      // all carried files; nil for none

	used   atomic.Int64   // when a call began or ended last, or it was loaded, in ns of Unix time
	builds sync.WaitGroup // the builds of snapshots that are under way

	mu    sync.Mutex
	pools map[*Pool]struct{} // the pools that have a snapshot or instances, or had them lately

	closeOnce sync.Once
	onClose   func()
}

// Info describes the module.
func (m *Module) Info() Info { return m.info }

// numbered returns a frame in which a nameless function has its number in the file: the rewritten module imports one
// function more.
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
		fmt.Sprintf(manifestRemedy, "memory")+" or build it with a smaller initial memory",
	)
}

// Overhead returns the most bytes that an instance takes beside its memory: its tables, if they take at least
// wasm.PageSize, else 0.
func (m *Module) Overhead() int64 {
	if m.tables < wasm.PageSize {
		return 0
	}
	return m.tables
}

// Carried returns the files that the module carries, by section. Modules with an equal section share its files.
func (m *Module) Carried() []*Files { return m.bundled }

// Holds returns about how many bytes the module's description takes as long as the module lives, without its files.
func (m *Module) Holds() int64 {
	const header = 16 // of a text
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

// Names returns about how many bytes the compiler keeps for the names in the module. Modules with the same code share
// these bytes and have the same of.
func (m *Module) Names() (of any, bytes int64) { return m.code, 2 * m.names }

func (m *Module) touch(now time.Time) { m.used.Store(now.UnixNano()) }
