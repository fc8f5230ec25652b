package metrics

import (
	"os/exec"
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
	promtool(t, "", "check", "rules", "rules.yml", "alerts.yml")
	promtool(t, "", "test", "rules", "testdata/rules_test.yml", "testdata/alerts_test.yml")
}
