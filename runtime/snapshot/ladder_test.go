package snapshot

import (
	"errors"
	"runtime"
	"testing"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	want := []Rung{Scan, Pagemap, Copy, New}
	verdicts := Probe()
	if len(verdicts) != len(want) {
		t.Fatalf("%d verdicts, want %d", len(verdicts), len(want))
	}
	for i, verdict := range verdicts {
		if verdict.Rung != want[i] {
			t.Errorf("verdict %d is on rung %s, want %s", i, verdict.Rung, want[i])
		}
		switch {
		case verdict.Rung == New, verdict.Rung == Copy && runtime.GOOS == "linux":
			if verdict.Err != nil {
				t.Errorf("rung %s: %v, want it usable everywhere", verdict.Rung, verdict.Err)
			}
		case runtime.GOOS != "linux" && !errors.Is(verdict.Err, errors.ErrUnsupported):
			t.Errorf("rung %s: %v, want %v", verdict.Rung, verdict.Err, errors.ErrUnsupported)
		default:
			t.Logf("rung %s: %v", verdict.Rung, verdict.Err)
		}
	}
}

func TestResetErrRung(t *testing.T) {
	t.Parallel()
	space := reserved(t, wasmPage)
	for _, rung := range []Rung{New, "", "magic"} {
		if err := space.Reset(rung, 0); err == nil {
			t.Errorf("Reset by rung %q succeeded", rung)
		}
	}
}
