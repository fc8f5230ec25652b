package manifest

import "strings"

// wildcard stands for any text in a pattern, also for none. A pattern has one at most, so that what two of them have in
// common can be written as patterns again: see common.
const wildcard = "*"

// matches tells whether a name is the pattern, or what it stands for.
func matches(pattern, name string) bool {
	head, tail, wild := strings.Cut(pattern, wildcard)
	if !wild {
		return pattern == name
	}
	return len(name) >= len(head)+len(tail) && strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
}

// common are the patterns that match what both patterns match, and nothing else.
func common(a, b string) []string {
	headA, tailA, wildA := strings.Cut(a, wildcard)
	headB, tailB, wildB := strings.Cut(b, wildcard)
	switch {
	case !wildA && matches(b, a):
		return []string{a}
	case !wildB && matches(a, b):
		return []string{b}
	case !wildA || !wildB:
		return nil
	}
	head, okHead := longer(headA, headB, strings.HasPrefix)
	tail, okTail := longer(tailA, tailB, strings.HasSuffix)
	if !okHead || !okTail {
		return nil
	}
	patterns := []string{head + wildcard + tail}
	// mail.* and *.done have mail.done in common as well: what ends one text begins the other.
	for shared := 1; shared <= min(len(head), len(tail)); shared++ {
		name := head + tail[shared:]
		if strings.HasSuffix(name, tail) && matches(a, name) && matches(b, name) {
			patterns = append(patterns, name)
		}
	}
	return patterns
}

// longer is the longer one of two texts, if it has the other at that end.
func longer(a, b string, has func(text, end string) bool) (string, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	return a, has(a, b)
}
