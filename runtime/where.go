package runtime

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/wasi"
	"github.com/quern-project/quern/runtime/wasm"
)

const (
	// whereFuel is the fuel for a call of wasm.WhereExport, an optional export of handlers: an interpreter and the SDK
	// for Go say with it where the user's code is. See sdk/ABI.md. The fuel counts towards no limit.
	whereFuel = 1_000_000
	// maxWhere is the maximum length of its answer in bytes, and maxPlace that of the place in a message.
	maxWhere = 4 << 10
	maxPlace = 240
	// orAfter begins an answer that is of some time before the guest was stopped. It is part of the place, but not of a
	// frame.
	orAfter = "or after "
)

// askWhere sets r.where to the frames of the user's code, innermost first, after a limit, a trap or the end of the
// call's context has stopped the guest with err. The guest was stopped in the middle of anything, so whatever this
// call does has no other effect: it cannot call the host, which would also let it wait beyond its deadline, and its
// instance is reset or closed.
func (r *run) askWhere(i *instance, err error) {
	_, fault := errors.AsType[*faultError](r.cause)
	if err == nil || r.exited || fault || r.module.info.Kind != Handler {
		return
	}
	f := i.guest.ExportedFunction(wasm.WhereExport)
	if f == nil {
		return
	}
	var result [1]uint64
	if i.place != nil && r.ticking {
		if result[0] = i.place.Get(); result[0] == 0 {
			return // it computed in a function that notes no place
		}
	} else if i.place != nil && r.cause == nil {
		return // a trap: it was not stopped where it notes its place, nor in a function of the host
	}
	cause, code, done, deadline, limit := r.cause, r.code, r.done, r.deadline, r.meter.limit
	r.meter.burned = r.meter.spent()
	burned := r.meter.burned
	r.done, r.deadline, r.meter.limit = nil, time.Time{}, burned+whereFuel
	r.meter.set = 0
	i.counter.Set(uint64(uint32(r.meter.refill())))
	i.running = f
	refused := make([]uint64, len(i.memories))
	for n, memory := range i.memories {
		refused[n] = memory.refused
	}
	r.asking = true
	if f.CallWithStack(i.ctx, result[:]) == nil {
		if text, ok := readText(i.memories[0].contents(), uint32(result[0])); ok {
			r.where = r.frames(bytes.TrimPrefix(text, []byte(orAfter)))
			r.orAfter = bytes.HasPrefix(text, []byte(orAfter))
		}
	}
	r.asking = false
	for n, memory := range i.memories {
		memory.refused = refused[n]
	}
	r.cause, r.code, r.exited, r.done, r.deadline, r.meter.limit = cause, code, false, done, deadline, limit
	r.meter.burned, r.meter.set = burned, int32(uint32(i.counter.Get()))
}

// readText returns the text at an address, which a NUL byte ends. Address 0 stands for none.
func readText(memory []byte, address uint32) ([]byte, bool) {
	if address == 0 || uint64(address) >= uint64(len(memory)) {
		return nil, false
	}
	text := memory[address:min(uint64(len(memory)), uint64(address)+maxWhere)]
	end := bytes.IndexByte(text, 0)
	return text[:max(end, 0)], end > 0
}

// frames returns the lines of a text of the guest, in the form of Outcome.Backtrace.
func (r *run) frames(text []byte) (frames []string) {
	for line := range strings.Lines(string(text)) {
		line = redact.Prefix(r.secrets.Text([]byte(strings.TrimSpace(line))), maxFrame)
		if line == "" {
			continue
		}
		if len(frames) == maxFrames-1 {
			return append(frames, omitted)
		}
		frames = append(frames, line)
	}
	return frames
}

// joinFrames joins as many frames as a line of a message has room for.
func joinFrames(frames []string) string {
	if len(frames) == 0 {
		return ""
	}
	text := frames[0]
	for _, frame := range frames[1:] {
		if len(text)+len(frame) > maxPlace {
			return text + " < …"
		}
		text += " < " + frame
	}
	return text
}

// location is where a guest was stopped, as a message tells it. The zero location is not known.
type location struct {
	during string // what the guest did by a function of the host, such as "while it slept or waited"; "" if nothing
	frames string // the functions, innermost first
	remark string // a guess at the cause
}

// String returns the location after the words that it explains, such as "while it slept or waited, at main.draw".
func (l location) String() string {
	var words []string
	if l.during != "" {
		words = []string{l.during}
	}
	if l.frames != "" {
		words = append(words, "at "+l.frames)
	}
	return strings.TrimSpace(strings.Join(words, ", ") + " " + l.remark)
}

// computing is the remark about a guest that was stopped at its timeout and did not wait before.
const computing = "(it computed all the time: an endless loop?)"

// explain completes the location of a guest that the host has ended. Only an end by the clock tells what the guest did
// in the host then, and suspects an endless loop if the guest computed. Time without a processor counts as computing,
// so that the outcome does not depend on the load of the machine.
func (r *run) explain(at *location) {
	limit, ok := errors.AsType[*limitError](r.cause)
	switch {
	case !ok:
	case limit.limit.Name != "timeout":
		at.during = ""
	case r.ticking && r.waited < r.limits.Timeout/10 && r.stage != abi.Initializing &&
		!strings.Contains(at.frames, "endless loop"): // the SDK for Go may know it
		at.remark = computing
	}
}

// cutImport cuts the innermost frame off a backtrace if it is a function that the guest imports, and says what the
// guest did there: few authors of handlers know these functions.
func cutImport(frames []string) (during string, rest []string) {
	if len(frames) == 0 {
		return "", frames
	}
	module, name, _ := strings.Cut(frames[0], ".")
	switch module {
	case wasi.ModuleName:
		module, _, _ = strings.Cut(name, "_")
		during = cmp.Or(wasiCalls[name], wasiCalls[module], asked)
	case abi.ModuleName:
		during = cmp.Or(abiCalls[name], asked)
	default:
		return "", frames
	}
	return during, frames[1:]
}

// wasiCalls say what a guest does in a function of WASI, by its name or by the first word of its name.
var wasiCalls = map[string]string{
	"poll_oneoff": "while it slept or waited", "sched_yield": "while it slept or waited",
	"fd_write": "while it wrote to stdout or stderr", "fd_pwrite": "while it wrote to a file",
	"fd_read": "while it read from stdin or a file", "fd_pread": "while it read from a file",
	"clock": "while it read the clock", "random": "while it made random numbers",
	"args": "while it read its arguments", "environ": "while it read its environment",
	"fd": "while it used a file", "path": "while it used a file", "sock": "while it used a socket",
	"proc": "while it ended itself",
}

// abiCalls say what a guest does in a function of quern_v1 that can take long.
var abiCalls = map[string]string{
	"sleep": "while it slept", "http": "while it waited for an HTTP response", "log": "while it wrote to its log",
	"sql": "while it waited for a database", "sql_commit": "while it waited for a database",
	"sql_step": "while it waited for a database", "sql_rollback": "while it waited for a database",
	"kv_get": kvCall, "kv_set": kvCall, "kv_delete": kvCall, "kv_increment": kvCall, "kv_swap": kvCall, "kv_list": kvCall,
	"checkpoint_save": "while it saved its checkpoint", "enqueue": "while it enqueued a task",
}

const (
	asked  = "while it asked the host"
	kvCall = "while it waited for a bucket"
)
