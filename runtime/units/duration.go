package units

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxDays is the maximum of a duration, in days. It is 100 years: a longer duration is a mistake.
const maxDays = 36500

// ErrTooLong is returned for a duration of more than maxDays.
var ErrTooLong = fmt.Errorf("use %dd at most", maxDays)

// overflowing matches durations, also those that time.ParseDuration refuses because they are too long.
var overflowing = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)

// ParseDuration parses a duration as time.ParseDuration does. Whole days can come before the rest: "7d", "1d12h".
func ParseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil && overflowing.MatchString(text):
			return 0, ErrTooLong
		case err != nil:
			return 0, err
		}
		return within(d)
	}
	count, err := strconv.ParseUint(days, 10, 64)
	if err == nil && count > maxDays || errors.Is(err, strconv.ErrRange) {
		return 0, ErrTooLong
	}
	part := time.Duration(0)
	if err == nil && rest != "" {
		part, err = time.ParseDuration(rest)
	}
	if err != nil || part < 0 {
		return 0, fmt.Errorf("%q is not a duration: write one such as 30s, 5m, 24h or 7d", text)
	}
	return within(time.Duration(count)*24*time.Hour + part)
}

func within(d time.Duration) (time.Duration, error) {
	if d > maxDays*24*time.Hour {
		return 0, ErrTooLong
	}
	return d, nil
}
