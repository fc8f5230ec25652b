package sdk

import (
	"io"
	"strings"
)

// Level says how much a line of the log matters.
type Level int

// The levels.
const (
	Trace Level = iota
	Debug
	Info
	Warning
	Error
)

// The most that a line has, in bytes: of text, and of names and values as JSON.
const (
	maxText   = 4 << 10
	maxFields = 3 << 10
)

// Log writes one line to the task's log, with names and values behind it. The text has at most 4 KiB, names and values 3 KiB; what
// is longer, and a name without a value, is [ErrTooBig] or [ErrInvalid]. In a command, on the developer's own machine, and while a
// module starts it is a line of standard error.
func Log(level Level, text string, namesAndValues ...string) error {
	if len(namesAndValues)%2 != 0 {
		return ErrInvalid
	}
	fields := fieldsOf(namesAndValues)
	if said, err := hostLog(level, text, fields); said {
		return err
	}
	return writeLine(stderr(), level, text, fields)
}

// writeLine is Log without a host: the line that the host would make of it.
func writeLine(stderr io.Writer, level Level, text, fields string) error {
	switch {
	case len(text) > maxText || len(fields) > maxFields:
		return ErrTooBig
	case level < Trace || level > Error:
		return ErrInvalid
	}
	line := [...]string{"trace: ", "debug: ", "", "warning: ", "error: "}[level] + text
	if strings.HasPrefix(line, "quern:") {
		line = " " + line // such lines at the very left are a command's words to its host
	}
	if fields != "" {
		line += " " + fields
	}
	_, err := io.WriteString(stderr, strings.NewReplacer("\n", `\x0a`, "\r", `\x0d`).Replace(line)+"\n")
	return err
}

// fieldsOf writes a JSON object. It is written here because encoding/json would be most of a small plugin.
func fieldsOf(namesAndValues []string) string {
	if len(namesAndValues) == 0 {
		return ""
	}
	object := []byte{'{'}
	for i := 0; i < len(namesAndValues); i += 2 {
		object = appendJSON(appendName(object, namesAndValues[i]), namesAndValues[i+1])
	}
	return string(append(object, '}'))
}
