package runtime

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/redact"
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
