package runtime

import (
	"strings"

	"github.com/quern-project/quern/runtime/redact"
)

// firstLine is the first line of a text that is not blank.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// maxLabel bounds a label, in bytes.
const maxLabel = 200

// label makes a name from a file, or a text with such a name, fit for a message.
func label(name string) string {
	return redact.Escape([]byte(redact.Shorten(name, maxLabel)))
}
