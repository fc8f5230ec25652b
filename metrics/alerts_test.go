package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// rule is an alert or a recording rule.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rules reads the rules of a file.
func rules(t *testing.T, file string) (list []rule) {
	t.Helper()
	var content struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal([]byte(read(t, file)), &content); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, group := range content.Groups {
		list = append(list, group.Rules...)
	}
	if len(list) == 0 {
		t.Fatalf("%s has no rules", file)
	}
	return list
}

// Who is woken by an alert needs to know how bad it is, what it means, and what to do.
func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	const page = "https://github.com/quern-project/quern/blob/main/cmd/quern/manual/alerts.md#"
	runbook := read(t, "../cmd/quern/manual/alerts.md")
	var names []string
	for _, alert := range rules(t, "alerts.yml") {
		names = append(names, alert.Alert)
		if s := alert.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q; want critical or warning", alert.Alert, s)
		}
		if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", alert.Alert)
		}
		if got, want := alert.Annotations["runbook_url"], page+strings.ToLower(alert.Alert); got != want {
			t.Errorf("the runbook of %s is %s, want %s", alert.Alert, got, want)
		}
	}
	var sections []string
	for _, section := range strings.Split(runbook, "\n### ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections = append(sections, name)
		for _, part := range []string{"**Look:**", "**Do:**"} {
			if !strings.Contains(text, part) {
				t.Errorf("the section of %s has no %s", name, part)
			}
		}
	}
	if !slices.Equal(sections, names) {
		t.Errorf("alerts.md has the sections\n%v\nwant one for each alert, in their order:\n%v", sections, names)
	}
}

// An alert that no test makes fire may never fire; one that no test sees quiet after that may never stop.
func TestAlertsAreTested(t *testing.T) {
	t.Parallel()
	var content struct {
		Tests []struct {
			Promql []struct {
				Expr    string
				At      time.Duration `yaml:"eval_time"`
				Samples []any         `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
			Alerts []struct {
				Name   string        `yaml:"alertname"`
				At     time.Duration `yaml:"eval_time"`
				Alerts []any         `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "testdata/alerts_test.yml")), &content); err != nil {
		t.Fatal(err)
	}
	fires, ends := map[string]bool{}, map[string]bool{}
	for _, test := range content.Tests {
		fired := map[string]time.Duration{} // when, in this test
		for _, query := range test.Promql {
			if name := regexp.MustCompile(`alertname="(\w+)", alertstate="firing"`).FindStringSubmatch(query.Expr); name != nil && len(query.Samples) > 0 && fired[name[1]] == 0 {
				fired[name[1]] = query.At
			}
		}
		for _, alert := range test.Alerts {
			if len(alert.Alerts) > 0 {
				fired[alert.Name] = alert.At
			}
		}
		for _, alert := range test.Alerts {
			if at, ok := fired[alert.Name]; ok && len(alert.Alerts) == 0 && alert.At > at {
				ends[alert.Name] = true
			}
		}
		for name := range fired {
			fires[name] = true
		}
	}
	for _, alert := range rules(t, "alerts.yml") {
		if !fires[alert.Alert] || !ends[alert.Alert] {
			t.Errorf("%s: tested to fire %v, to be quiet after that %v; want both in testdata/alerts_test.yml", alert.Alert, fires[alert.Alert], ends[alert.Alert])
		}
	}
}

// metricName finds families in expressions: not the recorded ones, which have colons.
var metricName = regexp.MustCompile(`(?:^|[^:\w])(quern_[a-z_]+[a-z])(?:[^:\w]|$)`)

// Nobody can see that a rule or a panel asks for a family that does not exist: it would be silent for ever.
func TestCatalogueIsKnown(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, row := range catalogue {
		known[row.name] = true
		if row.kind == histogram {
			known[row.name+"_bucket"], known[row.name+"_count"], known[row.name+"_sum"] = true, true, true
		}
	}
	dashboards, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(dashboards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	files := slices.Concat(dashboards, []string{
		"rules.yml", "alerts.yml", "testdata/rules_test.yml", "testdata/alerts_test.yml", "../cmd/quern/manual/metrics.md", "../cmd/quern/manual/alerts.md",
	})
	for _, file := range files {
		names := metricName.FindAllStringSubmatch(read(t, file), -1)
		if len(names) == 0 && filepath.Ext(file) != ".md" {
			t.Errorf("%s names no family", file)
		}
		for _, name := range names {
			if !known[name[1]] {
				t.Errorf("%s names %s, which is not in the catalogue", file, name[1])
			}
		}
	}
}

// Each family is in a dashboard: what is measured is to be seen.
func TestCatalogueIsShown(t *testing.T) {
	t.Parallel()
	dashboards, err := filepath.Glob("dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, file := range dashboards {
		for _, name := range metricName.FindAllStringSubmatch(read(t, file), -1) {
			shown[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name[1], "")] = true
		}
	}
	for _, row := range catalogue {
		if !shown[row.name] {
			t.Errorf("no dashboard shows %s", row.name)
		}
	}
}

// Rules of one file that use what the other records are silent if the names differ.
func TestRecordedNamesAreKnown(t *testing.T) {
	t.Parallel()
	recorded := map[string]bool{}
	for _, rule := range rules(t, "rules.yml") {
		if rule.Record != "" {
			recorded[rule.Record] = true
		}
	}
	dashboards, err := filepath.Glob("dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Concat(dashboards, []string{"rules.yml", "alerts.yml", "../cmd/quern/manual/alerts.md", "../cmd/quern/manual/metrics.md"}) {
		for _, name := range regexp.MustCompile(`\b[a-z_]+:quern_\w+(:\w+)?`).FindAllString(read(t, file), -1) {
			if !recorded[name] {
				t.Errorf("%s uses %s, which rules.yml does not record", file, name)
			}
		}
	}
}
