package abi

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// What a guest may say at once, in bytes: a line of the log is not cut for it.
const (
	maxMessage  = 4 << 10
	maxFields   = 3 << 10
	maxProgress = 1 << 10
)

// levels are those of log. A line of the level that says nothing of itself stands as it is.
var levels = []string{"trace: ", "debug: ", "", "warning: ", "error: "}

// log is log(level, message, length, fields, length). The line is the message with its level in front, and the fields
// behind it.
func (s *System) log(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	level, message, fields := int32(uint32(in.number())), in.bytes(maxMessage), in.bytes(maxFields)
	switch {
	case in.wrong != errnoSuccess:
		return in.wrong
	case level < 0 || int(level) >= len(levels):
		return s.invalid("level %d: use 0 to %d", level, len(levels)-1)
	}
	var line strings.Builder
	line.WriteString(levels[level])
	line.Write(message)
	if len(fields) > 0 {
		s.charge(jsonPrice * len(fields))
		var object map[string]json.RawMessage
		var compact bytes.Buffer
		if err := json.Unmarshal(fields, &object); err != nil || json.Compact(&compact, fields) != nil {
			return s.invalid("fields: want a JSON object")
		}
		if len(object) > 0 {
			line.WriteByte(' ')
			line.Write(compact.Bytes())
		}
	}
	s.host.Log(line.String())
	return errnoSuccess
}

// progress is progress(fraction, message, length). A fraction beside the range is its end.
func (s *System) progress(mem api.Memory, a []uint64) errno {
	fraction := api.DecodeF64(a[0])
	in := s.reader(mem, a[1:])
	message := in.bytes(maxProgress)
	switch {
	case in.wrong != errnoSuccess:
		return in.wrong
	case math.IsNaN(fraction):
		return s.invalid("a fraction that is no number")
	}
	s.host.Progress(min(max(fraction, 0), 1), string(message))
	return errnoSuccess
}
