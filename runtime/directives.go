package runtime

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// The lines of stderr that say something to the host.
const (
	progressPrefix   = "quern:progress="
	retryAfterPrefix = "quern:retry-after="
)

const (
	// maxFraction bounds the number of a line of progress, in bytes.
	maxFraction = 64
	// maxProgress bounds the message of a line of progress, in bytes.
	maxProgress = 1 << 10
	// maxRetryAfter is the longest delay that a guest may ask for.
	maxRetryAfter = 365 * 24 * time.Hour
)

// parseFraction reads the number of a line of progress, as any language may write one.
func parseFraction(text []byte) (float64, bool) {
	if len(text) > maxFraction || len(bytes.Trim(text, "0123456789.eE+-")) > 0 {
		return 0, false // ParseFloat takes more: hexadecimal numbers, underscores, infinity
	}
	fraction, err := strconv.ParseFloat(string(text), 64)
	if err != nil || fraction < 0 || fraction > 1 {
		return 0, false
	}
	return fraction + 0, true // -0 becomes 0
}

// cutRetryAfter takes the delay that the last line of stderr names off its end.
func cutRetryAfter(stderr string) (rest string, after time.Duration) {
	last := stderr[strings.LastIndexByte(stderr, '\n')+1:]
	text, found := strings.CutPrefix(last, retryAfterPrefix)
	if !found {
		return stderr, 0
	}
	after, ok := parseRetryAfter(text)
	if !ok {
		return stderr, 0
	}
	return strings.TrimSuffix(stderr, last), after
}

func parseRetryAfter(text string) (time.Duration, bool) {
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	after, err := time.ParseDuration(text)
	return after, err == nil && after >= 0 && after <= maxRetryAfter
}
