package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxTaskKey is the maximum length of a task's key in bytes.
const maxTaskKey = 256

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

// TaskKeys are the fairness key and the concurrency key of the tasks that a schedule or a subscription makes, with the
// weight and the maximum that belong to them. A zero field is not set.
type TaskKeys struct {
	FairKey        string
	FairWeight     int
	ConcurrencyKey string
	MaxConcurrent  int
}

func (k *TaskKeys) keys() []key {
	text := func(at *string) value { return checkedValue(at, textProperty("", "ada"), (*decoder).taskKey) }
	return []key{
		{
			"fair_key", "Whom the tasks are for: the keys of a queue take turns. Of a subscription also attributes.NAME.",
			text(&k.FairKey),
		},
		{
			"fair_weight", "With fair_key: how many tasks a turn of the key has. Default 1.",
			countValue(&k.FairWeight, maxWeight, "1"),
		},
		{
			"concurrency_key", "Tasks of the queue with the same key run one after another. Of a subscription also " +
				"attributes.NAME. Default as concurrency says.",
			text(&k.ConcurrencyKey),
		},
		{
			"max_concurrent", "With concurrency_key: how many of them may run at once. Default 1.",
			countValue(&k.MaxConcurrent, maxRunning, "1"),
		},
	}
}

// taskKey checks a fairness key or a concurrency key.
func (d *decoder) taskKey(n node) bool {
	remedy := fmt.Sprintf("write a text of 1 to %d bytes, such as ada", maxTaskKey)
	ok := d.text(n, remedy)
	if ok && (n.Value == "" || len(n.Value) > maxTaskKey) {
		d.wrong(n, fmt.Sprintf("has %d bytes", len(n.Value)), remedy)
		return false
	}
	return ok
}

// lonely reports a number of an entry whose key is missing.
func (d *decoder) lonely(entry node) {
	for number, key := range map[string]string{"fair_weight": "fair_key", "max_concurrent": "concurrency_key"} {
		n, there := d.values[entry.path+"."+number]
		if _, keyed := d.values[entry.path+"."+key]; there && !keyed {
			d.wrong(n, "is only for "+key, "add "+key+", or leave it out")
		}
	}
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
