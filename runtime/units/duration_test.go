package units

import (
	"errors"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "90s": 90 * time.Second, "0d": 0} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("%s is %s: %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "7", "-1d", "1.5d", "1d-1h", "99999999d", "7days"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
	for _, text := range []string{"99999d", "1000000h", "10000000h", "1h99999999999999999999999s"} {
		if _, err := ParseDuration(text); !errors.Is(err, ErrTooLong) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
