package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// BytesMarker begins a field of a task's hash whose bytes live in the companion hash.
const BytesMarker = "quern:bytes:"

// EncodeValue splits a value into the text of the hash field and the bytes of the companion hash. Bytes that are not UTF-8 get
// the field "quern:bytes:LENGTH:SHA256", because Blueque's Python client fails on them; text needs no companion.
func EncodeValue(value []byte) (text string, companion []byte) {
	if utf8.Valid(value) && !bytes.HasPrefix(value, []byte(BytesMarker)) {
		return string(value), nil
	}
	sum := sha256.Sum256(value)
	return fmt.Sprintf("%s%d:%s", BytesMarker, len(value), hex.EncodeToString(sum[:])), value
}

// maxMarker is longer than any marker, in bytes: more is text.
const maxMarker = 100

// IsMarker reports whether a text stands for bytes that are kept beside it.
func IsMarker(text string) bool {
	return len(text) <= maxMarker && strings.HasPrefix(text, BytesMarker)
}

// Seconds writes a time as Redis holds it: seconds since the epoch with six decimals; the epoch for an earlier one, "" for none.
func Seconds(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	micros := max(0, t.UnixMicro())
	return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
}

// maxSeconds bounds a time, so that a wrong one (milliseconds, say) does not overflow into the past.
const maxSeconds = 1e12

// ParseSeconds reads a time that Redis, Python or a person wrote; zero if it is not a plausible one.
func ParseSeconds(text string) time.Time {
	whole, fraction, _ := strings.Cut(text, ".")
	sec, err := strconv.ParseUint(whole, 10, 64)
	if err != nil || strings.Trim(fraction, "0123456789") != "" {
		f, err := strconv.ParseFloat(text, 64) // with an exponent
		if err != nil || !(f >= 1 && f <= maxSeconds) {
			return time.Time{}
		}
		return time.UnixMicro(int64(f * 1e6))
	}
	micros, err := strconv.ParseUint((fraction + "000000")[:6], 10, 64)
	if err != nil || sec == 0 || sec > maxSeconds {
		return time.Time{}
	}
	return time.UnixMicro(int64(sec*1e6 + micros)) //nolint:gosec // bounded by maxSeconds
}

// ParseETA reads the score of the next scheduled task, "" for none. Below 1, written by hand for "now", it is long ago.
func ParseETA(text string) time.Time {
	if f, err := strconv.ParseFloat(text, 64); err == nil && f < 1 {
		return time.Unix(1, 0)
	}
	return ParseSeconds(text)
}

// Longest bounds every duration, so that sums of them do not overflow.
const Longest = 100 * 365 * 24 * time.Hour

// ParseDuration reads a number of seconds; 0 if it is not a plausible one.
func ParseDuration(seconds float64) time.Duration {
	if !(seconds > 0 && seconds <= Longest.Seconds()) {
		return 0
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// SecondsDuration is ParseDuration of a text, 0 for one that is no number.
func SecondsDuration(text string) time.Duration {
	value, _ := strconv.ParseFloat(text, 64)
	return ParseDuration(value)
}

// DurationText writes a duration as Redis holds it, in seconds; "" for none.
func DurationText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// ValidText makes text UTF-8.
func ValidText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// Head and Tail cut text to at most n bytes at a character's edge.
func Head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Tail is the last n bytes of a text, from the beginning of a character.
func Tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	from := len(text) - n
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:]
}

// AppendFields appends names and texts in turn, without those whose text is empty.
func AppendFields(args []any, pairs ...string) []any {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			args = append(args, pairs[i], pairs[i+1])
		}
	}
	return args
}

// Optional is the text if there is one to send, else "".
func Optional(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// HashOf are the fields of a hash that are there.
func HashOf(fields []string, values []any) map[string]string {
	hash := make(map[string]string, len(fields))
	for i, value := range values {
		if text, ok := value.(string); ok {
			hash[fields[i]] = text
		}
	}
	return hash
}

// BornAt tells a task from others of its ID, by the text of its created field.
func BornAt(created string) string { return "@" + created }

// StartedAt tells a reserve that started a task from others of its run, by the text of Redis's clock: a server that has lost its last
// second counts the same run again.
func StartedAt(clock string) string { return "@" + clock }

// StateOf is the state of a task as altered in prelude.lua compares it, of the texts in its hash.
func StateOf(created, run, status, updated string) string {
	if status == "reserved" || status == "started" {
		updated = "" // progress moves it
	}
	return created + " " + run + " " + status + " " + updated
}

// DigestPrefix begins a digest. Hashes leave it out (older hosts did not), because Redis keeps only fields of up to 64 bytes in
// little memory.
const DigestPrefix = "sha256:"

// TraceID is the trace that a W3C traceparent names, "" if text has not the form 00-TRACE-PARENT-FLAGS in hexadecimal digits, of
// which trace and parent are not all 0. Versions after 00 may be longer, and ff is none.
func TraceID(text string) string {
	const hex, size = "0123456789abcdef", len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(text) < size {
		return ""
	}
	for i := range size {
		if dash := i == 2 || i == 35 || i == 52; dash != (text[i] == '-') || !dash && strings.IndexByte(hex, text[i]) < 0 {
			return ""
		}
	}
	trace, rest := text[3:35], text[size:]
	switch {
	case text[:2] == "ff", strings.Trim(trace, "0") == "", strings.Trim(text[36:52], "0") == "":
		return ""
	case rest != "" && (text[:2] == "00" || rest[0] != '-' || len(rest) > 200 || strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz-") != ""):
		return ""
	}
	return trace
}

// TallyField names a count of something for a queue or a version; of is "" for all queues together.
func TallyField(what, of string) string { return strings.TrimSuffix(what+" "+of, " ") }
