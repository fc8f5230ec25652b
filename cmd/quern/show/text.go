package show

import (
	"fmt"
	"strings"
	"time"
)

// Rate is how many tasks a second were done.
func Rate(tasks int, took time.Duration) float64 {
	return float64(tasks) / max(took, time.Microsecond).Seconds()
}

// Shorten keeps the head and the tail of a text longer than most bytes, with a mark between them.
func Shorten(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most/2], "") + mark + strings.ToValidUTF8(text[len(text)-most/2:], "")
}

// OneLine makes untrusted text one line without control characters.
func OneLine(text string) string { return Escape(strings.Join(strings.Fields(text), " ")) }

// Escape replaces control characters and bytes that are not UTF-8: no task may control a terminal. A tab becomes four
// blanks.
func Escape(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "    ").Replace(quoted[1 : len(quoted)-1])
}

// DigestPrefix begins a digest.
const DigestPrefix = "sha256:"

// Digest is a digest for people: its first twelve digits.
func Digest(digest string) string { return digest[:min(len(DigestPrefix)+12, len(digest))] }
