package snapshot

import (
	"errors"
	"runtime"
	"testing"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	want := []Mode{Scan, Pagemap, Copy, New}
	verdicts := Probe()
	if len(verdicts) != len(want) {
		t.Fatalf("%d verdicts, want %d", len(verdicts), len(want))
	}
	for i, verdict := range verdicts {
		if verdict.Mode != want[i] {
			t.Errorf("verdict %d is on mode %s, want %s", i, verdict.Mode, want[i])
		}
		switch {
		case verdict.Mode == New, verdict.Mode == Copy && runtime.GOOS == "linux":
			if verdict.Err != nil {
				t.Errorf("mode %s: %v, want it usable everywhere", verdict.Mode, verdict.Err)
			}
		case runtime.GOOS != "linux" && !errors.Is(verdict.Err, errors.ErrUnsupported):
			t.Errorf("mode %s: %v, want %v", verdict.Mode, verdict.Err, errors.ErrUnsupported)
		default:
			t.Logf("mode %s: %v", verdict.Mode, verdict.Err)
		}
	}
}

func TestResetErrMode(t *testing.T) {
	t.Parallel()
	space := reserved(t, wasmPage)
	for _, mode := range []Mode{New, "", "magic"} {
		if err := space.Reset(mode, 0); err == nil {
			t.Errorf("Reset by mode %q succeeded", mode)
		}
	}
}
