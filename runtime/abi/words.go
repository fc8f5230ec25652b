package abi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/redact"
)

const (
	// maxFields is the maximum size of the fields of a log line, in bytes.
	maxFields = 3 << 10
	// maxWords is the number of bytes to which a guest's text is cut before the host gets it: the 64 KiB that the host
	// shows, and room for a secret that begins in them. The host replaces secrets before it shortens the text, so it
	// would not show the bytes that are cut off.
	maxWords = 64<<10 + redact.MaxReach
	// rounding is how far a fraction of progress may be outside 0 to 1 without a warning.
	rounding    = 1e-6
	useFraction = "use 0 to 1, such as 0.5"
)

// levels are the prefixes of log lines by level; info has none.
var levels = []string{"trace: ", "debug: ", "", "warning: ", "error: "}

// CutLevel splits a log line into its level and its text. The function log writes the level as a prefix, and so do SDKs
// on the stderr of a command.
func CutLevel(line string) (level int, text string) {
	for level, prefix := range levels {
		if text, ok := strings.CutPrefix(line, prefix); ok && prefix != "" {
			return level, text
		}
	}
	return slices.Index(levels, ""), line
}

// log implements log(level, message, length, fields, length). It logs one line with the level, the message and the
// fields.
func (s *System) log(mem api.Memory, a []uint64) errno {
	in := s.reader(mem, a)
	level, message, fields := int32(uint32(in.number())), in.beginning(maxWords), in.bytes(maxFields)
	switch {
	case in.wrong != errnoSuccess:
		return in.wrong
	case level < 0 || int(level) >= len(levels):
		return s.invalid("level %d: use 0 to %d", level, len(levels)-1)
	}
	var behind string
	if len(fields) > 0 {
		s.charge(jsonPrice * len(fields))
		var object map[string]json.RawMessage
		var compact bytes.Buffer
		if err := json.Unmarshal(fields, &object); err != nil || json.Compact(&compact, fields) != nil {
			return s.invalid("fields: want a JSON object")
		}
		if len(object) > 0 {
			behind = " " + compact.String()
		}
	}
	s.Reporter.Log(levels[level]+string(message), behind)
	return errnoSuccess
}

// progress implements progress(fraction, message, length). The fraction is clamped to 0 to 1. The first one that is not
// just a rounding error away is logged: it may be a percentage.
func (s *System) progress(mem api.Memory, a []uint64) errno {
	fraction := api.DecodeF64(a[0])
	in := s.reader(mem, a[1:])
	message := in.beginning(maxWords)
	switch {
	case in.wrong != errnoSuccess:
		return in.wrong
	case math.IsNaN(fraction):
		return s.invalid("NaN: " + useFraction)
	case (fraction < -rounding || fraction > 1+rounding) && !s.strayed:
		s.strayed = true
		s.Reporter.Log(fmt.Sprintf("warning: progress %.6g: %s", fraction, useFraction), "")
	}
	s.Reporter.Progress(min(max(fraction, 0), 1), string(message))
	return errnoSuccess
}
