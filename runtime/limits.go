package runtime

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/runtime/wasm"
)

// The default limits.
const (
	defaultMemory = 64 << 20
	defaultInput  = 16 << 20
	defaultOutput = 16 << 20
	defaultLog    = 256 << 10
	defaultRecord = 256 << 10
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
	// Record bounds the record of the call, compressed, if its manifest asks for one. A larger record is dropped. Default
	// 256 KiB.
	Record int64
	// Timeout bounds the wall-clock time of the call. Default 0: no limit.
	Timeout time.Duration
	// CPU bounds the guest's fuel. One nanosecond stands for one unit of fuel, about one instruction, on any machine. The
	// start of a handler that serves many tasks has a separate limit: CPU, but at least 10 s. Default 0: no limit.
	CPU time.Duration
	// Remedies are the remedies of these limits in messages. Default nil: those of a manifest's limits.
	Remedies Remedies
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
	set(&l.Record, defaultRecord)
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
	limit  Limit
	what   string
	remedy string
}

func (e *limitError) Error() string { return e.what + ": " + e.remedy }

// message returns the text for people. at is where the guest was stopped, and said the guest's own report of missing
// memory, in which more lines can follow the first. Both can be empty.
func (e *limitError) message(at location, said string) string {
	what, remedy := e.what, e.remedy
	said, more, _ := strings.Cut(said, "\n")
	switch {
	case said != "" && e.limit.Name == "memory":
		what += ": " + redact.Shorten(said, maxHeadline)
		if remedy != keepLess {
			remedy = "let it keep less at a time, or " + remedy
		}
	case at != location{}:
		if what += " " + at.String(); at.during+at.frames == "" {
			break // only a remark
		}
		if remedy != keepLess {
			remedy = spend[e.limit.Name] + ", or " + remedy
		}
	}
	if more != "" {
		remedy += "\n" + more
	}
	return what + ": " + remedy
}

// spend says what a handler can do about a limit, so that it need not be raised.
var spend = map[string]string{
	"cpu":     "let it compute less there",
	"timeout": "let it end sooner there",
	"memory":  "let it keep less there",
	"output":  "let it return less",
	"log":     "let it log less",
}

// Remedies say what to do about an exceeded limit, by the limit's name. Default: to raise the limit in the manifest.
// The remedy of MaxTimeout is that of a task whose own timeout Profile.MaxTimeout has cut.
type Remedies map[string]string

// MaxTimeout is the key of a remedy.
const MaxTimeout = "max_timeout"

func (r Remedies) of(name string) string {
	return cmp.Or(r[name], "raise limits."+name+" in the plugin's manifest")
}

// ofMemory returns the remedy for a memory limit. bytes is the size that was not enough, and asked the size that the
// guest asked for; 0 if it is not known. It proposes twice as much, or four times and so on if asked is more, in whole
// pages.
func (r Remedies) ofMemory(bytes, asked int64) string {
	switch {
	case asked > MaxMemory:
		return keepLess
	case r["memory"] != "" || bytes <= 0 || bytes >= MaxMemory:
		return r.of("memory")
	}
	enough := 2 * bytes
	for enough < asked {
		enough *= 2
	}
	remedy := r.of("memory") + " to " + units.FormatSize(min((enough+wasm.PageSize-1)/wasm.PageSize*wasm.PageSize, MaxMemory))
	if enough > 2*bytes {
		remedy += ", because it asked for " + wholeMiB(asked)
	}
	return remedy
}

// wholeMiB returns a size in MiB, rounded up.
func wholeMiB(bytes int64) string { return fmt.Sprintf("%dMiB", (bytes+1<<20-1)>>20) }

// keepLess is the remedy for memory that no limit allows.
var keepLess = "let it keep less at a time, because limits.memory is at most " + units.FormatSize(MaxMemory)

// exceeded returns the error of a call that exceeded a limit. format says so, with %s for the value.
func (r Remedies) exceeded(name, value, format string) *limitError {
	return &limitError{Limit{Name: name, Value: value}, fmt.Sprintf(format, value), r.of(name)}
}

func (r Remedies) sizeExceeded(name string, limit int64, format string) *limitError {
	return r.exceeded(name, units.FormatSize(limit), format)
}

// memoryExceeded returns the error of a call that reached limits.memory. asked is as for ofMemory.
func (r Remedies) memoryExceeded(limit, asked int64) *limitError {
	e := r.sizeExceeded("memory", limit, "memory limit of %s reached")
	e.remedy = r.ofMemory(limit, asked)
	if asked > MaxMemory {
		e.what = fmt.Sprintf("memory limit of %s reached by asking for %s", e.limit.Value, wholeMiB(asked))
	}
	return e
}

// startExceeded returns the error of a call that could not begin in time.
func startExceeded(after time.Duration) *limitError {
	e := Remedies{}.exceeded("timeout", formatDuration(after), "not started within %s")
	e.remedy = "let it do less at its start, or give the task a longer timeout"
	return e
}

// timeoutExceeded returns the error of a call that ran longer than limit. own is the task's own timeout, which no
// manifest can raise; 0 if the task has none.
func (r Remedies) timeoutExceeded(limit, own time.Duration) *limitError {
	e := r.exceeded("timeout", formatDuration(limit), "timeout of %s exceeded")
	switch {
	case own > limit && r[MaxTimeout] != "":
		e.remedy = r[MaxTimeout]
	case own > 0:
		e.remedy = "give the task a longer timeout, if the host's ceiling allows it"
	}
	return e
}

// zeros removes the zeros at the end of a duration, which people do not write: 2h0m0s becomes 2h.
var zeros = strings.NewReplacer("h0m0s", "h", "m0s", "m")

func formatDuration(d time.Duration) string { return zeros.Replace(d.String()) }
