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

	"github.com/quern-project/quern/sdk/queue/seal"
)

// BytesMarker is the prefix of a marker: a text in a task's hash that stands for bytes in the companion hash
// NS_bytes_ID.
const BytesMarker = "quern:bytes:"

// EncodeValue splits a value into the text for the task's hash and the bytes for the companion hash. For bytes that are
// not UTF-8 or sealed, the text is the marker "quern:bytes:LENGTH:SHA256", because Blueque's Python client fails on such
// bytes. Other text needs no companion.
func EncodeValue(value []byte) (text string, companion []byte) {
	if utf8.Valid(value) && !bytes.HasPrefix(value, []byte(BytesMarker)) && seal.SealedBy(value) == "" {
		return string(value), nil
	}
	sum := sha256.Sum256(value)
	return fmt.Sprintf("%s%d:%s", BytesMarker, len(value), hex.EncodeToString(sum[:])), value
}

// maxMarker is the maximum length of a marker, in bytes. A longer field is not a marker.
const maxMarker = 100

// IsMarker reports whether a text looks like a marker for bytes in the companion hash.
func IsMarker(text string) bool {
	return len(text) <= maxMarker && strings.HasPrefix(text, BytesMarker)
}

// Seconds formats a time as it is stored in Redis: seconds since the epoch with six decimals. A time before the epoch
// becomes the epoch, and the zero time "".
func Seconds(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	micros := max(0, t.UnixMicro())
	return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
}

// maxSeconds is the maximum of a time, so that a wrong number (for example, of milliseconds) does not overflow into the
// past.
const maxSeconds = 1e12

// ParseSeconds parses a time that Redis, Python or a person wrote. It returns the zero time if the text is not a
// plausible time.
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

// ParseETA parses the score of the next scheduled task; "" means that there is none. A score below 1, which people
// write for "now", becomes a time long ago.
func ParseETA(text string) time.Time {
	if f, err := strconv.ParseFloat(text, 64); err == nil && f < 1 {
		return time.Unix(1, 0)
	}
	return ParseSeconds(text)
}

// Longest is the maximum of every duration, so that sums of durations do not overflow.
const Longest = 100 * 365 * 24 * time.Hour

// ParseDuration converts a number of seconds. It returns 0 if the number is not plausible.
func ParseDuration(seconds float64) time.Duration {
	if !(seconds > 0 && seconds <= Longest.Seconds()) {
		return 0
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// SecondsDuration is ParseDuration for a text. It returns 0 if the text is not a number.
func SecondsDuration(text string) time.Duration {
	value, _ := strconv.ParseFloat(text, 64)
	return ParseDuration(value)
}

// DurationText formats a duration as it is stored in Redis, in seconds; "" for 0 or less.
func DurationText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// ValidText replaces invalid UTF-8 by U+FFFD.
func ValidText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// Head returns the first n bytes of a text, or fewer, so that no character is cut.
func Head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Tail returns the last n bytes of a text, or fewer, so that no character is cut.
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

// AppendFields appends pairs of a field's name and its text, except pairs with an empty text.
func AppendFields(args []any, pairs ...string) []any {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			args = append(args, pairs[i], pairs[i+1])
		}
	}
	return args
}

// Optional returns text if the condition is true, else "".
func Optional(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// HashOf converts the reply to HMGET for these fields into a map. It leaves out missing fields.
func HashOf(fields []string, values []any) map[string]string {
	hash := make(map[string]string, len(fields))
	for i, value := range values {
		if text, ok := value.(string); ok {
			hash[fields[i]] = text
		}
	}
	return hash
}

// BornAt returns the part of a claim that distinguishes a task from others of the same ID. created is that field of the
// task's hash.
func BornAt(created string) string { return "@" + created }

// StartedAt returns the part of a claim that distinguishes a start from other starts with the same run number: a server
// that has lost its last second of data counts the same run again. clock is the time of the start by Redis's clock.
func StartedAt(clock string) string { return "@" + clock }

// StateOf returns the state of a task, in the form that the function altered in prelude.lua compares. The parameters
// are fields of the task's hash.
func StateOf(created, run, status, updated string) string {
	if status == "reserved" || status == "started" {
		updated = "" // a progress report changes the field
	}
	return created + " " + run + " " + status + " " + updated
}

// DigestPrefix is the prefix of a digest. In the hashes of tasks, digests lack the prefix, because Redis stores a hash
// compactly only if no field has more than 64 bytes. Older hosts wrote the prefix there too.
const DigestPrefix = "sha256:"

// TraceID returns the trace ID of a W3C traceparent. It returns "" if text does not have the form
// VERSION-TRACE-PARENT-FLAGS in hexadecimal digits, or trace or parent is all 0. Versions after 00 can be longer; ff is
// not a version.
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
	case rest != "" && (text[:2] == "00" || rest[0] != '-' || len(rest) > 200 ||
		strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz-") != ""):
		return ""
	}
	return trace
}

// VersionText names a version of a plugin: "DIGEST", with "@RELEASE" if it is a release, and "/VERSION" if it has a name.
func VersionText(digest string, release int, version string) string {
	if release > 0 {
		digest += "@" + strconv.Itoa(release)
	}
	if version != "" {
		digest += "/" + version
	}
	return digest
}

// ParseVersion reads what VersionText returns.
func ParseVersion(text string) (digest string, release int, version string) {
	text, version, _ = strings.Cut(text, "/")
	digest, number, _ := strings.Cut(text, "@")
	return digest, int(AsInt(number)), version
}

// UsageFields are the fields of NS_usage_N, in the order of the counts in listen.Usage. Times are in microseconds.
var UsageFields = []string{
	"runs", "complete", "failed", "retried", "fuel", "cpu", "took", "bytes_in", "bytes_out", "log_bytes",
}

// TallyField returns the field of the count what for subject: a queue or a plugin's version, or "" for all queues
// together.
func TallyField(what, subject string) string { return strings.TrimSuffix(what+" "+subject, " ") }
