package manifest

import (
	"reflect"
	"testing"
	"time"
)

func TestParseRetry(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]Retry{
		"{}":                                    {},
		"retry: {max_attempts: 1}":              {MaxAttempts: 1},
		"retry: {max_attempts: unlimited}":      {MaxAttempts: Unlimited},
		"retry: {max_age: 7d}":                  {MaxAttempts: Unlimited, MaxAge: 168 * time.Hour},
		"retry: {max_attempts: 3, max_age: 1h}": {MaxAttempts: 3, MaxAge: time.Hour},
		"retry: {max_attempts: 3, jitter: false, backoff: linear}": {MaxAttempts: 3, Jitter: new(false), Backoff: BackoffLinear},
		"retry: {max_attempts: 3, jitter: TRUE}":                   {MaxAttempts: 3, Jitter: new(true)},
		"retry: {max_attempts: 3, min: 12h}":                       {MaxAttempts: 3, Min: 12 * time.Hour},
		"retry: {max_attempts: 3, max: 1s}":                        {MaxAttempts: 3, Max: time.Second},
		"retry: {max_attempts: 3, min: 5s, max: 5s, base: 1ms}":    {MaxAttempts: 3, Min: 5 * time.Second, Max: 5 * time.Second, Base: time.Millisecond},
		"retry: {max_attempts: 3, min: 13h, max: 14h}":             {MaxAttempts: 3, Min: 13 * time.Hour, Max: 14 * time.Hour},
	} {
		m, err := Parse("x.yaml", []byte(data))
		if err != nil || !reflect.DeepEqual(m.Retry, want) {
			t.Errorf("%s: %+v, %v, want %+v", data, m.Retry, err, want)
		}
	}
}

func TestParsePolicyErrors(t *testing.T) {
	t.Parallel()
	const (
		attempts  = "write a whole number from 1 to 1000000, or unlimited"
		durations = "write a duration such as 30s, 5m, 24h or 7d, or leave the key out for "
		number    = "write a whole number from 1 to 1000000, or leave the key out for "
		endless   = "has neither max_attempts nor max_age, so tasks would be retried forever: " +
			"write max_attempts, a number or unlimited, or max_age, a duration such as 24h"
	)
	retry := func(keys string) string { return "retry: {max_attempts: 2, " + keys + "}" }
	for data, want := range map[string]string{
		"retry:":                                "x.yaml:1: retry: expected a mapping, but it is empty: write its keys, such as retry: {max_attempts: 5}, or leave it out",
		"retry: 5":                              "x.yaml:1: retry: expected a mapping, but it is a number: write its keys, such as retry: {max_attempts: 5}, or leave it out",
		"retry: {}":                             "x.yaml:1: retry: " + endless,
		"retry:\n  base: 2s\n":                  "x.yaml:2: retry: " + endless,
		"retry: {max_attempts: 0}":              `x.yaml:1: retry.max_attempts: "0" is not allowed: ` + attempts,
		"retry: {max_attempts: -1}":             `x.yaml:1: retry.max_attempts: "-1" is not allowed: ` + attempts,
		"retry: {max_attempts: forever}":        `x.yaml:1: retry.max_attempts: "forever" is not allowed: ` + attempts,
		"retry: {max_attempts: 1000001}":        `x.yaml:1: retry.max_attempts: "1000001" is not allowed: ` + attempts,
		"retry: {max_attempts: 1.5}":            `x.yaml:1: retry.max_attempts: "1.5" is not allowed: ` + attempts,
		"retry: {max_attempts: }":               "x.yaml:1: retry.max_attempts: is empty: " + attempts,
		"retry: {max_attempts: [unlimited]}":    "x.yaml:1: retry.max_attempts: is a list: " + attempts,
		"retry: {max_age: 0s}":                  `x.yaml:1: retry.max_age: "0s" is not above zero: ` + durations + "no limit",
		"retry: {max_age: 366d}":                `x.yaml:1: retry.max_age: "366d" is more than 365d: ` + durations + "no limit",
		retry("backoff: quadratic"):             `x.yaml:1: retry.backoff: "quadratic" is not allowed: write exponential or linear`,
		retry("backoff: "):                      "x.yaml:1: retry.backoff: is empty: write exponential or linear",
		retry("base: 0s"):                       `x.yaml:1: retry.base: "0s" is not above zero: ` + durations + "1s",
		retry("base: -1s"):                      `x.yaml:1: retry.base: "-1s" is not above zero: ` + durations + "1s",
		retry("base: 5"):                        `x.yaml:1: retry.base: "5" has no unit: ` + durations + "1s",
		retry("min: soon"):                      `x.yaml:1: retry.min: "soon" is not a duration: ` + durations + "1s",
		retry("max: 0s"):                        `x.yaml:1: retry.max: "0s" is not above zero: ` + durations + "12h",
		retry("min: 10s, max: 5s"):              `x.yaml:1: retry.min: "10s" is more than retry.max, which is 5s: write a min that is at most max`,
		retry("max: 5s, min: 10s"):              `x.yaml:1: retry.min: "10s" is more than retry.max, which is 5s: write a min that is at most max`,
		retry("min: 13h"):                       `x.yaml:1: retry.min: "13h" is more than retry.max, which is 12h if it is left out: write a smaller min, or a max`,
		retry("max: 999ms"):                     `x.yaml:1: retry.max: "999ms" is less than retry.min, which is 1s if it is left out: write a larger max, or a min`,
		retry("jitter: 1"):                      `x.yaml:1: retry.jitter: "1" is not allowed: write true or false`,
		retry("jitter: [true]"):                 "x.yaml:1: retry.jitter: is a list: write true or false",
		retry("jitter: yes"):                    `x.yaml:1: retry.jitter: "yes" is not allowed: write true or false`,
		retry("max_reschedules: 0"):             `x.yaml:1: retry.max_reschedules: "0" is not allowed: ` + number + "1000",
		"max_running: 0":                        `x.yaml:1: max_running: "0" is not allowed: ` + number + "no bound of its own",
		"max_running: 1000001":                  `x.yaml:1: max_running: "1000001" is not allowed: ` + number + "no bound of its own",
		"max_crashes: 0":                        `x.yaml:1: max_crashes: "0" is not allowed: ` + number + "the host's bound",
		"max_crashes: many":                     `x.yaml:1: max_crashes: "many" is not allowed: ` + number + "the host's bound",
		"on_crash: retry":                       `x.yaml:1: on_crash: "retry" is not allowed: write rerun or fail`,
		"on_crash: {}":                          "x.yaml:1: on_crash: is a mapping: write rerun or fail",
		"dead: a b":                             `x.yaml:1: dead: "a b" has the byte 0x20: write ` + WordRule,
		"dead: [a]":                             "x.yaml:1: dead: is a list: write " + WordRule,
		"dead: x":                               `x.yaml:1: dead: "x" is a queue that the plugin serves itself: name another queue, such as x.dead`,
		"dead: b\nlimits: {}\nqueues: [a, b]\n": `x.yaml:1: dead: "b" is a queue that the plugin serves itself: name another queue, such as b.dead`,
	} {
		if _, err := Parse("x.yaml", []byte(data)); err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %v", data, err, want)
		}
	}
	// The plugin's name is no queue of its own if the manifest names others.
	if m, err := Parse("x.yaml", []byte("queues: [a]\ndead: x")); err != nil || m.Dead != "x" {
		t.Errorf("%+v, %v", m, err)
	}
}
