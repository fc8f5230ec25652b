package manifest

import (
	"strings"
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Breaker{
		"version: 1":                                           {},
		"breaker: {failures: 10}":                              {10, 30 * time.Second, time.Hour},
		"breaker: {failures: 1, pause: 1h}":                    {1, time.Hour, time.Hour},
		"breaker: {failures: 2, pause: 100ms, max_pause: 24h}": {2, 100 * time.Millisecond, 24 * time.Hour},
		"breaker: {failures: 2, max_pause: 30s}":               {2, 30 * time.Second, 30 * time.Second},
	} {
		m, err := Parse("p.yaml", []byte("name: p\n"+text+"\n"))
		if err != nil || m.Breaker != want {
			t.Errorf("%s: %+v: %v, want %+v", text, m.Breaker, err, want)
		}
	}
	for text, problem := range map[string]string{
		"breaker: {}":                                        "such as failures: 10",
		"breaker: {pause: 1s}":                               "such as failures: 10",
		"breaker: 10":                                        "expected a mapping",
		"breaker: {failures: 2, pause: 99ms}":                "is less than 100ms: write",
		"breaker: {failures: 0}":                             `breaker.failures: "0" is not allowed: write a whole number from 1 to 10000`,
		"breaker: {failures: 10001}":                         "from 1 to 10000",
		"breaker: {failures: 2, pause: 0s}":                  "is not above zero",
		"breaker: {failures: 2, paus: 1s}":                   `did you mean "pause"?`,
		"breaker: {failures: 2, max_pause: 25h}":             "is more than 24h: write a duration of at most 24h",
		"breaker: {failures: 2, pause: 2h}":                  "breaker.max_pause, which is 1h if it is left out: write a smaller pause",
		"breaker: {failures: 2, max_pause: 29s}":             "breaker.pause, which is 30s if it is left out: write a larger max_pause",
		"breaker: {failures: 2, pause: 2m, max_pause: 119s}": "breaker.max_pause, which is 119s: write a pause",
	} {
		if _, err := Parse("p.yaml", []byte("name: p\n"+text+"\n")); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %q", text, err, problem)
		}
	}
}
