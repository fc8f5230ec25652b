package manifest

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// labelPrefix begins the values of concurrency.key that name a label.
const labelPrefix = "labels."

// concurrencyValue describes the number of tasks at a time on one host, or a mapping with more.
func (m *Manifest) concurrencyValue() value {
	count := func() value { return countValue(&m.Concurrency, maxConcurrency, "no bound of its own") }
	keys := []key{
		{"key", "What the tasks that run one after another have in common: labels.NAME, a label; fair_key or key; or " +
			"queue, all tasks of a queue.", checkedValue(
			&m.ConcurrencyKey, textProperty(`^(queue|key|fair_key|labels\..+)$`, "labels.customer"), (*decoder).concurrencyKey,
		).require("write what the tasks have in common, such as key: labels.customer, or key: queue for all of a queue")},
		{"max", "How many of them may run at once, on all hosts. Default 1.", countValue(&m.MaxConcurrent, maxRunning, "1")},
		{"per_host", "Tasks at a time on one host. Default: the host's slots.", count()},
	}
	number, mapping := count(), objectProperty(keys)
	return value{schema: &property{AnyOf: []*property{number.schema, mapping}}, read: func(d *decoder, n node) {
		if n.Kind != yaml.MappingNode {
			number.read(d, n)
			return
		}
		d.entry(n, keys)
		m.MaxConcurrent = cmp.Or(m.MaxConcurrent, 1)
	}}
}

// concurrencyKey checks what tasks have in common.
func (d *decoder) concurrencyKey(n node) bool {
	const remedy = "write queue, key, fair_key, or labels. and the name of a label, such as labels.customer"
	if !d.text(n, remedy) {
		return false
	}
	label, isLabel := strings.CutPrefix(n.Value, labelPrefix)
	if !slices.Contains([]string{"queue", "key", "fair_key"}, n.Value) && (!isLabel || label == "") {
		d.bad(n, "is nothing that tasks have in common", remedy)
		return false
	}
	return true
}
