package runtime

import (
	goruntime "runtime"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/crash"
)

// Config configures an Engine. The zero value works.
type Config struct {
	// CacheDir is the folder for compiled modules. It contains executable code, so New creates it with mode 0700 and
	// refuses a folder that anyone else may access. Default "": a temporary folder, which Close removes.
	CacheDir string
	// Compiler is the command line (program and arguments) of a process that only calls compile.Child.
	// Default nil: modules are compiled in this process, where a hostile module can take any time and all memory.
	Compiler []string
	// CompileTime bounds the processor time of a compile child, rounded up to seconds. A module gets 4 s, plus 6 s for
	// each MiB of its code, but at most CompileTime. Default 0: compile.DefaultTime.
	CompileTime time.Duration
	// CompileMemory bounds the address space of a compile child in bytes, beyond what a new process takes. A module
	// gets 512 MiB, plus 64 MiB for each MiB of its code, but at most CompileMemory. All children together get at most
	// twice CompileMemory; modules wait until their share is free. Default 0: compile.DefaultMemory. Linux only.
	CompileMemory int64
	// Guests bounds how many guests compute at the same time; further guests wait for a turn. Default 0: GOMAXPROCS.
	Guests int
	// ResetMode selects the way in which tasks get pristine instances. Default "": the best mode that works on this
	// system. New fails if the selected mode does not work. Modules that a reset cannot restore get ResetNew in any case.
	ResetMode ResetMode
	// IdleUnload is the idle time after which a module's instances and code are unloaded. Default 0: 5 minutes; negative:
	// never.
	IdleUnload time.Duration
	// Crash records which guests compute, so that a monitor can name them after a crash. Default nil: no monitor.
	Crash *crash.Table
	// Logger receives events of the cache and of compilations. Default nil: no log.
	Logger hclog.Logger
}

// DefaultIdleUnload is the IdleUnload of the zero Config.
const DefaultIdleUnload = 5 * time.Minute

func (c Config) withDefaults() Config {
	if c.Guests <= 0 {
		c.Guests = goruntime.GOMAXPROCS(0)
	}
	if c.IdleUnload == 0 {
		c.IdleUnload = DefaultIdleUnload
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}
