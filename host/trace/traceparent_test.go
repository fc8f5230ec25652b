package trace_test

import (
	"strings"
	"testing"

	"github.com/quern-project/quern/host/trace"
)

const aTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Only a whole traceparent whose flags say so names a trace that was sampled.
func TestSampledID(t *testing.T) {
	t.Parallel()
	const id = "0af7651916cd43dd8448eb211c80319c"
	for text, want := range map[string]string{
		aTraceparent:                      id,
		aTraceparent[:53] + "03":          id,
		"01" + aTraceparent[2:] + "-more": id,
		aTraceparent[:53] + "02":          "", // not sampled
		aTraceparent[:54]:                 "",
		"":                                "",
		strings.Repeat("-", 60):           "",
	} {
		if got := trace.SampledID(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add(aTraceparent)
	f.Add("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more-9")
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0")
	f.Fuzz(func(t *testing.T, text string) {
		if trace.ID(text) == "" {
			if trace.SampledID(text) != "" {
				t.Errorf("%q is none, and sampled", text)
			}
			return
		}
		if strings.Count(text[:55], "-") != 3 || text != strings.ToLower(text) {
			t.Errorf("%q is valid", text)
		}
	})
}
