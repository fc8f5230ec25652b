package runtime

import (
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/runtime/wasm"
)

// The limits of a call that sets none.
const (
	defaultMemory = 64 << 20
	defaultInput  = 16 << 20
	defaultOutput = 16 << 20
	defaultLog    = 256 << 10
)

// MaxMemory is the most memory that an instance gets, in bytes: 2 GiB. See wasm.MaxPages for the reason.
const MaxMemory = wasm.MaxPages * wasm.PageSize

// MaxModule is the most that the file of a module may have, in bytes.
const MaxModule = wasm.MaxSize

// Limits bound one call. Sizes are in bytes, and the zero value of each means its default.
type Limits struct {
	// Memory bounds the guest's linear memory. Default 64 MiB; more than MaxMemory means that.
	Memory int64
	// Input bounds what is handed to the guest, to a command on stdin. Default 16 MiB.
	Input int64
	// Output bounds the result: what a command may write to stdout, a handler to its output. Default 16 MiB.
	Output int64
	// Log bounds what the guest may write to stderr, a handler to stderr and stdout together: each line as it is logged,
	// escapes included, and 128 bytes for what the host's log writes around it. Default 256 KiB.
	Log int64
	// Timeout bounds the wall-clock time of the call. Default 0, which is none.
	Timeout time.Duration
	// CPU bounds the fuel that the guest burns: a nanosecond is one unit, about one instruction, on every
	// machine the same. Default 0, which is none.
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

// limitError ends a guest as the cause of its run.
type limitError struct {
	limit   Limit
	message string
}

func (e *limitError) Error() string { return e.message }

const manifestRemedy = "raise limits.%s in the plugin's manifest"

func exceeded(name, value, what string) *limitError {
	return &limitError{
		limit:   Limit{Name: name, Value: value},
		message: what + ": " + fmt.Sprintf(manifestRemedy, name),
	}
}

func sizeExceeded(name string, limit int64, what string) *limitError {
	value := units.FormatSize(limit)
	return exceeded(name, value, fmt.Sprintf(what, value))
}

func memoryExceeded(limit int64) *limitError {
	return sizeExceeded("memory", limit, "memory limit of %s reached")
}

func inputExceeded(limit, size int64) *limitError {
	return sizeExceeded("input", limit, "input of "+units.FormatSize(size)+" is over the input limit of %s")
}

func outputExceeded(limit int64) *limitError {
	return sizeExceeded("output", limit, "output limit of %s exceeded on stdout")
}

// outputReached is the limit of a handler that was told that its output is full, and failed then.
func outputReached(limit int64) *limitError {
	return sizeExceeded("output", limit, "output limit of %s reached")
}

func logExceeded(limit int64) *limitError {
	return sizeExceeded("log", limit, "log limit of %s exceeded")
}

// timeoutExceeded names another remedy for a task's own timeout, which no manifest raises.
func timeoutExceeded(limit time.Duration, own bool) *limitError {
	value := formatDuration(limit)
	e := exceeded("timeout", value, fmt.Sprintf("timeout of %s exceeded", value))
	if own {
		e.message = fmt.Sprintf("timeout of %s exceeded: give the task a longer timeout, if the host's ceiling allows it", value)
	}
	return e
}

func cpuExceeded(limit time.Duration) *limitError {
	value := formatDuration(limit)
	return exceeded("cpu", value, fmt.Sprintf("cpu limit of %s exceeded", value))
}

// formatDuration writes 2h0m0s as people do, 2h.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
