package show

import (
	"fmt"
	"strings"
	"time"
)

func Rate(tasks int, took time.Duration) float64 {
	return float64(tasks) / max(took, time.Microsecond).Seconds()
}

// Shorten keeps the head and the tail of a text that has more bytes than most, with a mark between them.
func Shorten(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most/2], "") + mark + strings.ToValidUTF8(text[len(text)-most/2:], "")
}

// OneLine makes untrusted text one line without control characters.
func OneLine(text string) string { return Escape(strings.Join(strings.Fields(text), " ")) }

// Escape replaces control characters and bytes that are not UTF-8: no task may control a terminal. A tab becomes four blanks.
func Escape(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "    ").Replace(quoted[1 : len(quoted)-1])
}

// ShortDigest is the length of a digest for people: sha256: and twelve digits.
const ShortDigest = len(DigestPrefix) + 12

const DigestPrefix = "sha256:"
