package plugins

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// attempts reads retry.max_attempts.
func (d *decoder) attempts(n node) int {
	remedy := fmt.Sprintf("write a whole number from 1 to %d, or unlimited", maxTries)
	value, ok := d.text(n, remedy[len("write "):])
	if !ok {
		return 0
	}
	if value == unlimitedWord {
		return Unlimited
	}
	count, err := strconv.Atoi(value)
	if err != nil || count < 1 || count > maxTries {
		d.wrong(n, quote(value)+" is not allowed", remedy)
		return 0
	}
	return count
}

// choice reads one of a few words.
func (d *decoder) choice(n node, words ...string) string {
	remedy := "write " + strings.Join(words, " or ")
	value, ok := d.text(n, remedy[len("write "):])
	if ok && !slices.Contains(words, value) {
		d.wrong(n, quote(value)+" is not allowed", remedy)
		return ""
	}
	return value
}

// boolean reads true or false as YAML writes them; nil if it is neither.
func (d *decoder) boolean(n node) *bool {
	if n.Tag == "!!bool" {
		if value, err := strconv.ParseBool(n.Value); err == nil {
			return &value
		}
	}
	if value, ok := d.text(n, "true or false"); ok {
		d.wrong(n, quote(value)+" is not allowed", "write true or false")
	}
	return nil
}

// together checks the keys that only make sense together, as far as each is right by itself.
func (d *decoder) together(m *Manifest) {
	if n, ok := d.values["dead"]; ok && m.Dead != "" && slices.Contains(m.Queues, m.Dead) {
		d.wrong(n, quote(m.Dead)+" is a queue that the plugin serves itself", "name another queue, such as "+shorten(m.Dead)+".dead")
	}
	d.retryTogether(&m.Retry)
}

func (d *decoder) retryTogether(r *Retry) {
	retry, ok := d.values["retry"]
	if !ok || retry.Kind != yaml.MappingNode {
		return
	}
	if _, limited := d.values["retry.max_attempts"]; !limited {
		r.MaxAttempts = Unlimited
		if _, ends := d.values["retry.max_age"]; !ends {
			d.wrong(retry, "has neither max_attempts nor max_age, so tasks would be tried for ever",
				"write max_attempts, a number or unlimited, or max_age, a duration such as 24h")
		}
	}
	low, high := r.Min, r.Max
	minNode, hasMin := d.values["retry.min"]
	maxNode, hasMax := d.values["retry.max"]
	switch {
	case hasMin && low == 0 || hasMax && high == 0: // told already
	case hasMin && hasMax && low > high:
		d.wrong(minNode, fmt.Sprintf("%s is more than retry.max, which is %s", quote(minNode.Value), shorten(maxNode.Value)),
			"write a min that is at most max")
	case hasMin && !hasMax && low > longestRetry:
		d.wrong(minNode, quote(minNode.Value)+" is more than retry.max, which is 12h if it is left out", "write a smaller min, or a max")
	case hasMax && !hasMin && high < shortestRetry:
		d.wrong(maxNode, quote(maxNode.Value)+" is less than retry.min, which is 1s if it is left out", "write a larger max, or a min")
	}
}
