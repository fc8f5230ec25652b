package compile

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Config of a Cache.
type Config struct {
	// Dir is where compiled modules are kept. Default "": a temporary directory, which Close removes.
	Dir string
	// Version is wazero's, which names the entries: that of Version.
	Version string
	// Child is the command line of a process that only calls Child. Default nil: modules are compiled in this process.
	Child []string
	// Time and Memory are the most that a compilation may take. Default 0: DefaultTime and DefaultMemory.
	Time   time.Duration
	Memory int64
	// Children is how many large modules are compiled at once, two at least.
	Children int
	// Imports adds to a wazero runtime what guests import; Tick is called by a guest that has used up its fuel.
	Imports func(context.Context, wazero.Runtime) error
	Tick    api.GoModuleFunc
	// Logger receives events of the cache and of compilations.
	Logger hclog.Logger
}
