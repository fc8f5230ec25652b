package runtime

import (
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/runtime/wasm"
)

// The default limits.
const (
	defaultMemory = 64 << 20
	defaultInput  = 16 << 20
	defaultOutput = 16 << 20
	defaultLog    = 256 << 10
)

// MaxMemory is the maximum memory of an instance, in bytes: 2 GiB. See wasm.MaxPages for the reason.
const MaxMemory = wasm.MaxPages * wasm.PageSize

// MaxModule is the largest size of a module's file, in bytes.
const MaxModule = wasm.MaxSize

// Limits are the limits of one call. Sizes are in bytes. The zero value of each field means its default.
type Limits struct {
	// Memory bounds the guest's linear memory. Default 64 MiB; a higher value than MaxMemory means MaxMemory.
	Memory int64
	// Input bounds the task's input. Default 16 MiB.
	Input int64
	// Output bounds the result: what a command can write to stdout, or a handler's output. Default 16 MiB.
	Output int64
	// Log bounds the guest's log: what it writes to stderr, and for a handler also to stdout. Each line counts with the
	// bytes that are logged, escapes included, plus 128 bytes for what the host's log writes around the line. Default 256
	// KiB.
	Log int64
	// Timeout bounds the wall-clock time of the call. Default 0: no limit.
	Timeout time.Duration
	// CPU bounds the guest's fuel. One nanosecond stands for one unit of fuel, about one instruction, on any machine. The
	// start of a handler that serves many tasks has a separate limit: CPU, but at least 10 s. Default 0: no limit.
	CPU time.Duration
}

// WithDefaults returns a copy in which every size that is not set, or is negative, has its default.
func (l Limits) WithDefaults() Limits {
	set := func(value *int64, fallback int64) {
		if *value <= 0 {
			*value = fallback
		}
	}
	set(&l.Memory, defaultMemory)
	set(&l.Input, defaultInput)
	set(&l.Output, defaultOutput)
	set(&l.Log, defaultLog)
	l.Memory = min(l.Memory, MaxMemory)
	l.Timeout = max(l.Timeout, 0)
	l.CPU = max(l.CPU, 0)
	return l
}

// Limit names the limit that a call ran into.
type Limit struct {
	// Name is the limit's key in the manifest: memory, input, output, log, timeout or cpu.
	Name string
	// Value is the limit as people write it, such as "64MiB" or "30s".
	Value string
}

// limitError is the cause of a run that the host ended at a limit.
type limitError struct {
	limit   Limit
	message string
}

func (e *limitError) Error() string { return e.message }

const manifestRemedy = "raise limits.%s in the plugin's manifest"

func exceeded(name, value, format string) *limitError {
	message := fmt.Sprintf(format, value) + ": " + fmt.Sprintf(manifestRemedy, name)
	return &limitError{limit: Limit{Name: name, Value: value}, message: message}
}

func sizeExceeded(name string, limit int64, format string) *limitError {
	return exceeded(name, units.FormatSize(limit), format)
}

func memoryExceeded(limit int64) *limitError {
	return sizeExceeded("memory", limit, "memory limit of %s reached")
}

// startExceeded returns the error of a call that could not begin in time.
func startExceeded(after time.Duration) *limitError {
	e := exceeded("timeout", formatDuration(after), "not started within %s")
	e.message = "not started within " + e.limit.Value + ": let it do less at its start, or give the task a longer timeout"
	return e
}

// timeoutExceeded returns the error of a call that ran longer than limit. If own is true, the limit is the task's own
// timeout, which no manifest can raise, so the remedy differs.
func timeoutExceeded(limit time.Duration, own bool) *limitError {
	e := exceeded("timeout", formatDuration(limit), "timeout of %s exceeded")
	if own {
		e.message = "timeout of " + e.limit.Value + " exceeded: give the task a longer timeout, if the host's ceiling allows it"
	}
	return e
}

// zeros removes the zeros at the end of a duration, which people do not write: 2h0m0s becomes 2h.
var zeros = strings.NewReplacer("h0m0s", "h", "m0s", "m")

func formatDuration(d time.Duration) string { return zeros.Replace(d.String()) }
