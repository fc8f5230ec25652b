package manifest

import (
	"fmt"
	"testing"
)

func TestSubscribe(t *testing.T) {
	t.Parallel()
	m, err := Parse("x.yaml", []byte(`
queues: [a, b]
subscribe:
  - {topic: orders}
  - {topic: "bills.*", queue: b, filter: {attributes: {type: "made.*"}, data: {/total: 12, /paid: true, /a/0: [x, 1.5], /day: 2024-01-01}}}
`))
	check(t, err)
	if got, want := fmt.Sprint(m.Subscribe), `[{orders a map[] map[] { 0  0}} {bills.* b map[type:made.*] map[/a/0:[x 1.5] /day:2024-01-01 /paid:true /total:12] { 0  0}}]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for text, want := range map[string]string{
		"subscribe: orders":                                         `x.yaml:1: subscribe: is a text: write a list, such as [{topic: orders}]`,
		"subscribe: [{queue: x}]":                                   `x.yaml:1: subscribe[0]: has no topic: write the topic, such as topic: orders`,
		"subscribe: [{topic: a b}]":                                 `x.yaml:1: subscribe[0].topic: "a b" has the byte 0x20: write 1 to 128 printable ASCII characters without a space`,
		`subscribe: [{topic: "a*b*"}]`:                              `x.yaml:1: subscribe[0].topic: "a*b*" has more than one *: write a name, or one with a single * for any text, such as mail.*`,
		"subscribe: [{topic: a}, {topic: a}]":                       `x.yaml:1: subscribe[1].topic: "a" is in the list already: subscribe to a topic once`,
		"subscribe: [{topic: a, queue: other}]":                     `x.yaml:1: subscribe[0].queue: "other" is no queue that the plugin serves: name one of x, or leave it out`,
		"subscribe: [{topic: a, filter: {attributes: {A: b}}}]":     `x.yaml:1: subscribe[0].filter.attributes.A: "A" is no name of an attribute: use a-z and 0-9`,
		`subscribe: [{topic: a, filter: {attributes: {a: ""}}}]`:    `x.yaml:1: subscribe[0].filter.attributes.a: is empty: write a text, or * for any`,
		`subscribe: [{topic: a, filter: {attributes: {a: "*b*"}}}]`: `x.yaml:1: subscribe[0].filter.attributes.a: "*b*" has more than one *: write a name, or one with a single * for any text, such as mail.*`,
		"subscribe: [{topic: a, filter: {data: {a: 1}}}]":           `x.yaml:1: subscribe[0].filter.data.a: "a" is no JSON pointer: write one such as /customer/country`,
		"subscribe: [{topic: a, filter: {data: {/a: .nan}}}]":       `x.yaml:1: subscribe[0].filter.data./a: is no JSON value: it has the number ".nan", for which JSON has no form: write a text, a number, true or false, or lists and mappings with texts as keys of these`,
		"queues: [a, webhook.x]":                                    `x.yaml: queues: "webhook.x" is for the deliveries of webhooks, which hosts send: choose a name that does not begin with webhook.`,
		"dead: webhook.x":                                           `x.yaml: dead: "webhook.x" is for the deliveries of webhooks, which hosts send: choose a name that does not begin with webhook.`,
		`capabilities: {enqueue: {queues: [a, "webhook.*"]}}`:       `x.yaml: capabilities.enqueue.queues: "webhook.*" is for the deliveries of webhooks, which hosts send: choose a name that does not begin with webhook.`,
		"subscribe: [{topic: a, filters: {}}]":                      `x.yaml:1: subscribe[0]: unknown key "filters": did you mean "filter"?`,
	} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}
