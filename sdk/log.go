package sdk

import (
	"io"
	"strings"
)

// Level is the severity of a log line.
type Level int

// The levels.
const (
	Trace Level = iota
	Debug
	Info
	Warning
	Error
)

// maxFields is the maximum size of a log line's names and values, written as JSON, in bytes.
const maxFields = 3 << 10

// Log writes one line to the task's log: the text, which the host cuts to 64 KiB, followed by pairs of a name and a
// value. It returns [ErrTooBig] if names and values are longer than 3 KiB, and [ErrInvalid] for a name without a value.
// In a command, on the developer's machine, and while a module starts, the line goes to standard error.
func Log(level Level, text string, namesAndValues ...string) error {
	if len(namesAndValues)%2 != 0 {
		return ErrInvalid
	}
	// A JSON object, made by hand: package encoding/json would be most of the size of a small plugin.
	var fields []byte
	if len(namesAndValues) > 0 {
		fields = append(fields, '{')
		for i := 0; i < len(namesAndValues); i += 2 {
			fields = appendJSON(appendName(fields, namesAndValues[i]), namesAndValues[i+1])
		}
		fields = append(fields, '}')
	}
	return logLine(level, text, string(fields))
}

// writeLine writes to standard error the line that a host would write to the log.
func writeLine(stderr io.Writer, level Level, text, fields string) error {
	switch {
	case len(fields) > maxFields:
		return ErrTooBig
	case level < Trace || level > Error:
		return ErrInvalid
	}
	line := [...]string{"trace: ", "debug: ", "", "warning: ", "error: "}[level] + text
	if strings.HasPrefix(line, "quern:") {
		line = " " + line // without the space, the host would take the line for a message of the command to the host
	}
	if fields != "" {
		line += " " + fields
	}
	_, err := io.WriteString(stderr, strings.NewReplacer("\n", `\x0a`, "\r", `\x0d`).Replace(line)+"\n")
	return err
}
