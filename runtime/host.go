package runtime

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/crash"
)

// host is what the guests of all modules of an engine share.
type host struct {
	logger   hclog.Logger
	gate     *gate
	started  time.Time    // the zero of the guests' monotonic clock
	counters abi.Counters // of the calls of quern_v1
	crash    *crash.Table // nil without a monitor
	stacks   atomic.Int64 // bytes of the call stacks of running guests

	warnUnguarded sync.Once // about memories without guard pages
}
