package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Subscription is an entry of the section subscribe. Each publication of the topic that matches the entry makes a task
// of the plugin.
type Subscription struct {
	// Topic is a name, or a pattern with one * for any text.
	Topic string
	// Queue is the queue that gets the tasks; the plugin must serve it. Default: the first queue that the plugin
	// serves.
	Queue string
	// Attributes has a pattern for each attribute, by the attribute's name. Data has a value for each JSON pointer into
	// the payload. A publication matches if all of them match.
	Attributes map[string]string
	Data       map[string]any
	// TaskKeys are the keys of the tasks. A key "attributes.NAME" stands for an attribute of the publication.
	TaskKeys
}

const (
	maxSubscriptions = 100 // subscriptions of one plugin
	maxFilter        = 32  // attributes and pointers of one subscription
	attributePattern = "^[a-z0-9]{1,64}$"
	webhookQueues    = "webhook."
)

func (s *Subscription) keys() []key {
	return append([]key{
		{
			"topic", "The topic: a name, or one in which a * stands for any text.",
			checkedValue(&s.Topic, textProperty(queuePattern, "orders", "orders.*"), (*decoder).wordPattern).
				require("write the topic, such as topic: orders"),
		},
		{
			"queue", "The queue that gets the tasks, one that the plugin serves. Default the first of them.",
			wordValue(&s.Queue, "orders"),
		},
		{"filter", "What publications must be like. Default: all of the topic.", section(
			key{"attributes", "Patterns, with at most one * for any text, by the name of an attribute.", value{
				read: func(d *decoder, n node) { s.Attributes = d.attributes(n) },
				schema: &property{
					Type: "object", Additional: textProperty(""), PropertyNames: &property{Pattern: attributePattern},
				},
			}},
			key{"data", "Values by the JSON pointer to what must equal them in the payload.", value{
				read:   func(d *decoder, n node) { s.Data = d.pointers(n) },
				schema: &property{Type: "object", Additional: &property{}, PropertyNames: &property{Pattern: "^(/.*)?$"}},
			}},
		)},
	}, s.TaskKeys.keys()...)
}

func (d *decoder) attributes(n node) map[string]string {
	attributes := map[string]string{}
	d.entries(n, func(name string, keyNode, value node) {
		ok := d.text(value, "write a text, or one with a * for any text")
		switch {
		case name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
			d.bad(keyNode, "is no name of an attribute", "use a-z and 0-9")
		case ok && value.Value == "":
			d.wrong(value, "is empty", "write a text, or * for any")
		case ok && d.pattern(value):
			attributes[name] = value.Value
		}
	})
	return attributes
}

func (d *decoder) pointers(n node) map[string]any {
	data := map[string]any{}
	d.entries(n, func(name string, keyNode, value node) {
		switch is, err := valueOf(value.Node); {
		case name != "" && name[0] != '/':
			d.bad(keyNode, "is no JSON pointer", "write one such as /customer/country")
		case err != nil:
			d.wrong(value, "is no JSON value: it "+err.Error(),
				"write a text, a number, true or false, or lists and mappings with texts as keys of these")
		default:
			data[name] = is
		}
	})
	return data
}

// valueOf returns a value as encoding/json would decode it. Numbers keep all digits.
func valueOf(n *yaml.Node) (value any, err error) {
	text, err := asJSON(n)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func (d *decoder) subscriptions(n node) (all []Subscription) {
	d.list(n, maxSubscriptions, "[{topic: orders}]", "write", func(at node) {
		var s Subscription
		d.entry(at, s.keys())
		d.lonely(at)
		if len(s.Attributes)+len(s.Data) > maxFilter {
			d.wrong(at, fmt.Sprintf("filters by more than %d attributes and pointers", maxFilter), "use fewer")
		}
		if slices.ContainsFunc(all, func(other Subscription) bool { return other.Topic == s.Topic && s.Topic != "" }) {
			d.wrong(d.values[at.path+".topic"], Quote(s.Topic)+" is in the list already", "subscribe to a topic once")
		}
		all = append(all, s)
	})
	return all
}

// IsReserved reports whether a queue is reserved for the deliveries of a webhook. Hosts serve such queues themselves;
// no plugin can serve or enqueue to one.
func IsReserved(queue string) bool { return strings.HasPrefix(queue, webhookQueues) }

// reserved reports each queue of the manifest that is reserved for webhooks: a plugin can neither serve it nor enqueue
// to it.
func (d *decoder) reserved(m *Manifest) {
	names := map[string][]string{"queues": m.Queues, "dead": {m.Dead}}
	if enqueue := m.Capabilities.Enqueue; enqueue != nil {
		names["capabilities.enqueue.queues"] = enqueue.Queues
	}
	for _, path := range slices.Sorted(maps.Keys(names)) {
		for _, name := range names[path] {
			if IsReserved(name) {
				d.report(0, path, Quote(name)+" is for the deliveries of webhooks, which hosts send",
					"choose a name that does not begin with "+webhookQueues)
			}
		}
	}
}

// ownSubscriptions checks that subscriptions name only queues that the plugin serves, since no plugin is allowed to
// give another plugin work unasked. A subscription without a queue gets the plugin's first queue.
func (d *decoder) ownSubscriptions(m *Manifest) {
	for i := range m.Subscribe {
		s := &m.Subscribe[i]
		if s.Queue == "" && len(m.Queues) > 0 {
			s.Queue = m.Queues[0]
		}
		if n, ok := d.values[fmt.Sprintf("subscribe[%d].queue", i)]; ok && !slices.Contains(m.Queues, s.Queue) {
			d.bad(n, "is no queue that the plugin serves", "name one of "+strings.Join(m.Queues, ", ")+", or leave it out")
		}
	}
}
