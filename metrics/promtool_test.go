package metrics

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// promtool runs Prometheus's own checker, which comes with Debian's package prometheus.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("promtool is missing (%v): run make deps", err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolMetrics(t *testing.T) {
	t.Parallel()
	t.Run("NothingServed", func(t *testing.T) {
		t.Parallel()
		m, reg := setup(t)
		m.CollectQueues(empty)
		promtool(t, exposition(t, reg), "check", "metrics")
	})
	t.Run("Exercised", func(t *testing.T) {
		t.Parallel()
		m, reg := setup(t)
		exercise(m)
		promtool(t, exposition(t, reg), "check", "metrics")
	})
}

func TestPromtoolRules(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", "rules.yml")
	promtool(t, "", "test", "rules", "testdata/rules_test.yml")
}

// promtool cannot see that a rule asks for a family that does not exist: it would be silent for ever.
func TestRulesKnowTheCatalogue(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, row := range catalogue {
		known[row.name] = true
		if row.kind == histogram {
			known[row.name+"_bucket"] = true
		}
	}
	for _, file := range []string{"rules.yml", "testdata/rules_test.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`(?:^|[^:\w])(quern_\w+)`).FindAllSubmatch(text, -1)
		if len(names) == 0 {
			t.Errorf("%s names no family", file)
		}
		for _, name := range names {
			if !known[string(name[1])] {
				t.Errorf("%s names %s, which is not in the catalogue", file, name[1])
			}
		}
	}
}
