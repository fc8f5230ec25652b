package compile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/quern-project/quern/runtime/units"
)

// TestLimitsOfCompilation: the budget and the refusals are those of LIMITS.md.
func TestLimitsOfCompilation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../LIMITS.md")
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 10
	// Set, it does not depend on the race detector.
	b := newCompiler(Config{Time: baseTime + timePerMiB*size>>20}).cfg.budget(size)
	for name, test := range map[string]struct{ end, fallback string }{
		"time":   {endTime, fmt.Sprintf("%s, and %s for each MiB of code, up to %s", baseTime, timePerMiB, DefaultTime)},
		"memory": {endMemory, fmt.Sprintf("%s, and %s for each MiB of code, up to %s", units.FormatSize(baseMemory), units.FormatSize(memoryPerMiB), units.FormatSize(DefaultMemory))},
	} {
		reason, _, _ := strings.Cut(b.refusal(verdict{End: test.end}).Error(), ": ")
		_, row, _ := strings.Cut(string(text), "\n| `compile "+name+"` |")
		row, _, _ = strings.Cut(row, "\n")
		for _, want := range []string{test.fallback, "refused", reason} {
			if !strings.Contains(row, "| "+want+" |") {
				t.Errorf("the row of compile %s in LIMITS.md lacks %q: %s", name, want, row)
			}
		}
	}
}
