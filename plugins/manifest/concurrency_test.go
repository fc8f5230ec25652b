package manifest

import (
	"strings"
	"testing"
)

func TestConcurrency(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		perHost int
		key     string
		max     int
	}{
		"concurrency: 8":            {8, "", 0},
		"concurrency: {key: queue}": {0, "queue", 1},
		"concurrency: {key: labels.customer, max: 3, per_host: 20}": {20, "labels.customer", 3},
		"concurrency: {key: fair_key, max: 1000000}":                {0, "fair_key", 1_000_000},
	} {
		m, err := Parse("p.yaml", []byte("name: p\n"+text+"\n"))
		if err != nil || m.Concurrency != want.perHost || m.ConcurrencyKey != want.key || m.MaxConcurrent != want.max {
			t.Errorf("%s: %d, %q, %d: %v", text, m.Concurrency, m.ConcurrencyKey, m.MaxConcurrent, err)
		}
	}
	m, err := Parse("p.yaml", []byte(`name: p
schedule: [{cron: "@daily", fair_key: ada, fair_weight: 3, concurrency_key: bert, max_concurrent: 2}]
subscribe: [{topic: orders, concurrency_key: attributes.customer}]
`))
	if err != nil || m.Schedule[0].TaskKeys != (TaskKeys{"ada", 3, "bert", 2}) || m.Subscribe[0].ConcurrencyKey != "attributes.customer" {
		t.Errorf("%+v: %v", m, err)
	}
	for text, problem := range map[string]string{
		`schedule: [{cron: "@daily", fair_weight: 3}]`:            "add fair_key",
		"subscribe: [{topic: orders, max_concurrent: 3}]":         "add concurrency_key",
		`subscribe: [{topic: orders, fair_key: ""}]`:              "has 0 bytes",
		"subscribe: [{topic: o, fair_key: a, fair_weight: 1001}]": "from 1 to 1000",
		"concurrency: {max: 2}":                                   "key: labels.customer",
		"concurrency: {key: customer}":                            "labels.customer",
		"concurrency: {key: labels.}":                             "labels.customer",
		"concurrency: {key: queue, max: 0}":                       "concurrency.max",
		"concurrency: {key: queue, maximum: 1}":                   `"max"`,
		"concurrency: {key: [queue]}":                             "labels.customer",
		"concurrency: {key: queue, per_host: 0}":                  "concurrency.per_host",
		"concurrency: none":                                       "whole number",
	} {
		if _, err := Parse("p.yaml", []byte("name: p\n"+text+"\n")); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
