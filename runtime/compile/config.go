package compile

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Config configures a Cache.
type Config struct {
	Dir     string        // directory of compiled modules; "" for a temporary one, which Close removes
	Version string        // wazero's version, by which entries are named: see Version
	Child   []string      // command line of a process that only calls Child; nil to compile in this process
	Time    time.Duration // maximum processor time for a module; 0 for DefaultTime
	Memory  int64         // maximum memory for a module, in bytes; 0 for DefaultMemory

	// Children is the maximum number of modules that are compiled at once, at least two. There is one more place for
	// small modules.
	Children int
	Imports  func(context.Context, wazero.Runtime) error // adds the functions that guests import
	Tick     api.GoModuleFunc                            // a guest calls it when its counter falls below zero
	Logger   hclog.Logger                                // required
}
