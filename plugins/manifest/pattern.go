package manifest

import "strings"

// wildcard stands for any text in a pattern, even an empty one. A pattern has at most one, so that the names that two
// patterns both match can be written as patterns again: see common.
const wildcard = "*"

// matches reports whether a pattern matches a name.
func matches(pattern, name string) bool {
	head, tail, wild := strings.Cut(pattern, wildcard)
	if !wild {
		return pattern == name
	}
	return len(name) >= len(head)+len(tail) && strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
}

// common returns patterns that match exactly the names that both patterns match.
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
	// mail.* and *.done both match mail.done as well: the head's end is the tail's beginning.
	for shared := 1; shared <= min(len(head), len(tail)); shared++ {
		name := head + tail[shared:]
		if strings.HasSuffix(name, tail) && matches(a, name) && matches(b, name) {
			patterns = append(patterns, name)
		}
	}
	return patterns
}

// longer returns the longer of two texts. It also returns whether this text begins or ends with the other one, which is
// checked by has (strings.HasPrefix or strings.HasSuffix).
func longer(a, b string, has func(text, end string) bool) (string, bool) {
	if len(a) < len(b) {
		a, b = b, a
	}
	return a, has(a, b)
}
