package plugins

import (
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
)

// ceilings are those of a host; 0 is none.
func ceilings(timeout, cpu time.Duration) manifest.Ceilings {
	return manifest.Ceilings{}.With(runtime.Limits{Timeout: timeout}, "--max-timeout").With(runtime.Limits{CPU: cpu}, "--max-cpu")
}
