package abi

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/redact"
)

// resultRead implements result_read(off, ptr, cap).
func (s *System) resultRead(mem api.Memory, a []uint64) errno { return read(s, mem, s.slot, a) }

// resultSize implements result_size().
func (s *System) resultSize(api.Memory, []uint64) errno { return length(len(s.slot)) }

// inputSize implements input_size().
func (s *System) inputSize(api.Memory, []uint64) errno { return length(len(s.Input)) }

// inputRead implements input_read(off, ptr, cap).
func (s *System) inputRead(mem api.Memory, a []uint64) errno { return read(s, mem, s.Input, a) }

// length returns n, a number of bytes, or ETOOBIG if n does not fit into a result.
func length(n int) errno {
	if n > math.MaxInt32 {
		return errnoTooBig
	}
	return errno(n)
}

// outputWrite implements output_write(ptr, len). Output that exceeds the limit is charged as well.
func (s *System) outputWrite(mem api.Memory, a []uint64) errno {
	p, ok := view(mem, a[0], a[1])
	if !ok {
		return errnoFault
	}
	s.spend(len(p))
	if len(p) > 0 && !s.Host.Output(p) {
		return errnoTooBig
	}
	return errnoSuccess
}

// maxError is the number of bytes to which the text of error_set is cut; the host shows 4 KiB of it. For the rest, see
// maxWords.
const maxError = 4<<10 + redact.MaxReach

// errorSet implements error_set(ptr, len). The last call counts.
func (s *System) errorSet(mem api.Memory, a []uint64) errno {
	text, ok := view(mem, a[0], a[1])
	if !ok {
		return errnoFault
	}
	text = redact.Prefix(text, maxError)
	s.spend(len(text))
	s.failure, s.failed = append(s.failure[:0], text...), true
	return errnoSuccess
}

// Error returns the text of the last error_set, and whether error_set was called. The text is untrusted and has at most
// maxError bytes.
func (s *System) Error() (text string, said bool) { return string(s.failure), s.failed }

// Denial returns the function that was last refused, and why, if it answered EDENIED; else "".
func (s *System) Denial() string { return s.denial }

// setRetryAfter implements retry_after(ms). The last call counts. Below 0 it is the delay -ms of all tasks with the
// task's key.
func (s *System) setRetryAfter(_ api.Memory, a []uint64) errno {
	ms := int64(a[0])
	most := maxDelay.Milliseconds()
	s.holdKey, s.retryAfter = ms < 0, (time.Duration(min(max(ms, -most), most)) * time.Millisecond).Abs()
	return errnoSuccess
}

// taskText implements task_text(field), which fills the slot.
func (s *System) taskText(mem api.Memory, a []uint64) errno {
	t := &s.Task
	fields := [...]string{t.ID, t.Queue, t.Tenant, t.Plugin, t.PreviousError, t.Parent, t.Key, t.Traceparent}
	switch field := uint32(a[0]); {
	case field < uint32(len(fields)):
		return s.fill(fields[field])
	case field == uint32(len(fields)):
		return s.fill(FormatHeaders(t.Headers))
	case field == uint32(len(fields))+1:
		return s.dependencies(s.reader(mem, nil))
	case field == uint32(len(fields))+2:
		return s.fill(s.refusal)
	}
	return s.invalid("field %d: see the table of fields", int32(uint32(a[0])))
}

// FormatHeaders writes headers as guests read them: each as a line "name: value", sorted by name.
func FormatHeaders(headers map[string]string) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		text.WriteString(name + ": " + headers[name] + "\n")
	}
	return text.String()
}

// fill puts a text into the slot and returns its length.
func (s *System) fill(text string) errno {
	answer := length(len(text))
	if answer >= 0 {
		s.slot, s.filled = text, true
	}
	return answer
}

// taskNumber implements task_number(field, result number).
func (s *System) taskNumber(mem api.Memory, a []uint64) errno {
	var number int64
	switch uint32(a[0]) {
	case 0:
		number = int64(s.Task.Attempt)
	case 1:
		number = int64(s.Task.MaxAttempts)
	case 2:
		if !s.Task.Deadline.IsZero() {
			number = s.Task.Deadline.UnixMilli()
		}
		number = s.Tape.Deadline(number)
	case 3:
		number = s.Host.FuelLeft()
	case 4:
		number = int64(s.Task.Reschedules)
	default:
		return s.invalid("field %d: see the table of fields", int32(uint32(a[0])))
	}
	return put64(mem, a[1], number)
}

// cancelled implements cancelled().
func (s *System) cancelled(api.Memory, []uint64) errno {
	now := int64(0)
	select {
	case <-s.Ending:
		now = 1
	default:
	}
	return errno(s.Tape.Ending(now))
}
