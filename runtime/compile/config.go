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
	Dir     string        // of compiled modules; "" for a temporary one, which Close removes
	Version string        // of wazero, which names the entries: see Version
	Child   []string      // command line of a process that only calls Child; nil compiles in this process
	Time    time.Duration // the most processor time for a module; 0 for DefaultTime
	Memory  int64         // the most memory for a module, in bytes; 0 for DefaultMemory

	// how many compile at once, at least two; small modules have one more
	Children int
	Imports  func(context.Context, wazero.Runtime) error // adds what guests import
	Tick     api.GoModuleFunc                            // is called by a guest that has used up its fuel
	Logger   hclog.Logger                                // required
}
