package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/redact"
)

const (
	// whereExport is an optional export of handlers: an interpreter says with it where the user's code is. See
	// sdk/ABI.md.
	whereExport = "quern_where" // () -> (i32)
	// whereFuel is the fuel for a call of that export. It counts towards no limit.
	whereFuel = 1_000_000
	// maxWhere is the maximum length of its answer in bytes, and maxPlace that of the place in a message.
	maxWhere = 4 << 10
	maxPlace = 240
)

// askWhere sets r.where to the frames of the user's code, innermost first, after a limit or a trap has stopped the
// guest with err. The guest was stopped in the middle of anything, so whatever this call does has no other effect: it
// cannot call the host, which would also let it wait beyond its deadline, and its instance is reset or closed.
func (r *run) askWhere(i *instance, err error) {
	_, limited := errors.AsType[*limitError](r.cause)
	if err == nil || r.exited || r.cause != nil && !limited || r.module.info.Kind != Handler {
		return
	}
	f := i.guest.ExportedFunction(whereExport)
	if f == nil {
		return
	}
	cause, code, deadline, limit := r.cause, r.code, r.deadline, r.meter.limit
	r.meter.burned = r.meter.spent()
	burned := r.meter.burned
	r.deadline, r.meter.limit = time.Time{}, burned+whereFuel
	r.meter.set = 0
	i.counter.Set(uint64(uint32(r.meter.refill())))
	i.running = f
	refused := make([]bool, len(i.memories))
	for n, memory := range i.memories {
		refused[n] = memory.refused
	}
	r.asking = true
	var result [1]uint64
	if f.CallWithStack(i.ctx, result[:]) == nil {
		if text, ok := readText(i.memories[0].contents(), uint32(result[0])); ok {
			r.where = r.frames(text)
		}
	}
	r.asking = false
	for n, memory := range i.memories {
		memory.refused = refused[n]
	}
	r.cause, r.code, r.exited, r.deadline, r.meter.limit = cause, code, false, deadline, limit
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
	text := frames[0]
	for _, frame := range frames[1:] {
		if len(text)+len(frame) > maxPlace {
			return text + " < …"
		}
		text += " < " + frame
	}
	return text
}

// locate adds the place where the guest was stopped to an outcome.
func (o *Outcome) locate(frames []string) {
	o.Backtrace = frames
	what, remedy, found := cutRemedy(o.Message)
	switch {
	case o.Kind == Trap:
		o.Message += " [" + joinFrames(frames) + "]"
	case found:
		o.Message = fmt.Sprintf("%s at %s: %s, or %s", what, joinFrames(frames), spend[o.Limit.Name], remedy)
	}
}

// spend says what a handler can do about a limit, so that it need not be raised.
var spend = map[string]string{
	"cpu":     "let it compute less there",
	"timeout": "let it end sooner there",
	"memory":  "let it keep less there",
	"output":  "let it return less",
	"log":     "let it log less",
}

// cutRemedy cuts the message of a limit, of one line, before its remedy.
func cutRemedy(message string) (what, remedy string, found bool) {
	last := strings.LastIndex(message, ": ")
	if last < 0 {
		return message, "", false
	}
	return message[:last], message[last+2:], true
}

// explainMemory adds the guest's own report to the outcome of a guest that failed because it was denied memory.
func (r *run) explainMemory(outcome Outcome) Outcome {
	said, ok := r.abi.Error()
	if !ok || outcome.Limit.Name != "memory" {
		return outcome
	}
	text := strings.TrimSpace(redact.Prefix(r.secrets.Lines(r.secrets.Head([]byte(said), maxError)), maxError))
	first, rest, _ := strings.Cut(text, "\n")
	if what, remedy, found := cutRemedy(outcome.Message); found && first != "" {
		outcome.Message = fmt.Sprintf("%s: %s: let it keep less at a time, or %s", what,
			redact.Shorten(first, maxHeadline), remedy)
		if rest != "" {
			outcome.Message += "\n" + rest
		}
	}
	return outcome
}
