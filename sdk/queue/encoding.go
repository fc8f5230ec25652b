package queue

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// bytesMarker begins the text that stands in a task's hash for bytes which live in its companion.
const bytesMarker = "quern:bytes:"

// encodeValue splits a value into the text of the hash field and the bytes of the companion hash.
// Blueque's Python client decodes every field as UTF-8 and fails on one that is not; so the field
// of other bytes holds "quern:bytes:LENGTH:SHA256" instead. Text goes as it is, with no companion.
func encodeValue(value []byte) (text string, companion []byte) {
	if utf8.Valid(value) && !strings.HasPrefix(string(value), bytesMarker) {
		return string(value), nil
	}
	sum := sha256.Sum256(value)
	return fmt.Sprintf("%s%d:%s", bytesMarker, len(value), hex.EncodeToString(sum[:])), value
}

// isMarker tells whether text may stand for bytes in the companion hash.
func isMarker(text string) bool { return strings.HasPrefix(text, bytesMarker) }

// seconds writes a time as Redis holds it: seconds since the epoch with six decimals. What was before
// the epoch is written as the epoch: it is past in any case.
func seconds(t time.Time) string {
	micros := max(0, t.UnixMicro())
	return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6)
}

// maxSeconds is the latest time that is believed, so that a wrong one (milliseconds, say) does not
// overflow into the past, where everything seems due.
const maxSeconds = 1e12

// parseSeconds reads a time that Redis, Python or a person wrote; what is no time of this world is
// none.
func parseSeconds(text string) time.Time {
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

// parseETA reads the score of the next scheduled task, "" if there is none. One before the epoch,
// which somebody wrote by hand for "now", is due like any other.
func parseETA(text string) time.Time {
	if f, err := strconv.ParseFloat(text, 64); err == nil && f < 1 {
		return time.Unix(1, 0)
	}
	return parseSeconds(text)
}

// The scripts answer with strings, integers and nested lists; these read them without panicking on
// an answer of another shape.

func asString(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func asInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// parseDuration reads a number of seconds; what is no duration of this world is none.
func parseDuration(seconds float64) time.Duration {
	if !(seconds > 0 && seconds <= longest.Seconds()) {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// secondsDuration reads the seconds that a field holds.
func secondsDuration(text string) time.Duration {
	value, _ := strconv.ParseFloat(text, 64)
	return parseDuration(value)
}

// durationText writes a duration as Redis holds it, in seconds.
func durationText(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
