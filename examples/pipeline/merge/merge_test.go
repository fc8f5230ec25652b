package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/sdktest"
	"github.com/quern-project/quern/sdk/typed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMerge(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Bucket("parts").Set("doc r 1", "3 20 100").Set("doc r 2", "1 5 30").Set("doc r 3", "1 1 1").Set("doc s 1", "8 8 8").Set("other r 1", "9 9 9").ReadOnly()
	const want = `{"document":"doc","parts":3,"lines":5,"words":26,"bytes":131}`
	for range 2 { // it takes nothing away
		if r := h.Run(typed.JSON(merge), sdktest.Task{Input: []byte(`{"document": "doc", "run": "r", "parts": 3}`)}); string(r.Result) != want {
			t.Error(r, string(r.Result))
		}
	}
}

func TestMergeErrors(t *testing.T) {
	t.Parallel()
	for input, tt := range map[string]struct {
		outcome sdktest.Outcome
		want    string
	}{
		`{}`:                              {sdktest.Fatal, "not enqueued by count"},
		`{"document": "doc", "run": "r"}`: {sdktest.Fatal, "not enqueued by count"},
		`{"document": "doc", "parts": 1}`: {sdktest.Fatal, "not enqueued by count"},
		`{"document": "doc", "run": "r", "parts": 2}`: {sdktest.Failed, "not found"},
		`{"document": "bad", "run": "r", "parts": 1}`: {sdktest.Fatal, `part 1 is "3 x": `},
	} {
		h := sdktest.New(t)
		h.Bucket("parts").Set("doc r 1", "3 20 100").Set("bad r 1", "3 x")
		r := h.Run(typed.JSON(merge), sdktest.Task{Input: []byte(input)})
		if r.Outcome != tt.outcome || !strings.Contains(r.Err.Error(), tt.want) {
			t.Errorf("%s: %v, want %v with %q", input, r, tt.outcome, tt.want)
		}
	}
}

// While Redis is away no attempt is used up.
func TestMergeAway(t *testing.T) {
	t.Parallel()
	h := sdktest.New(t)
	h.Fault = func(string) error { return sdk.ErrUnavailable }
	r := h.Run(typed.JSON(merge), sdktest.Task{Input: []byte(`{"document": "doc", "run": "r", "parts": 1}`)})
	if r.Outcome != sdktest.Retry || !strings.Contains(r.Err.Error(), "read part 1: ") {
		t.Error(r)
	}
}
