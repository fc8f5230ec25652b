package main

import (
	"strings"

	"github.com/quern-project/quern/plugins/spelling"
)

// didYouMean is the remedy for a word that is none of those that would be right: the nearest of them,
// or all if none is near.
func didYouMean(word string, right []string) string {
	near := nearest(word, right)
	if len(near) == 0 {
		return "use one of " + strings.Join(right, ", ")
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}

// nearest are the words that may have been meant: those that are the fewest letters away, two or a
// third of their own at most, or else those that begin alike.
func nearest(word string, right []string) []string {
	var near, alike []string
	best := 0
	for _, candidate := range right {
		if len(word) >= 3 && (strings.HasPrefix(candidate, word) || strings.HasPrefix(word, candidate)) {
			alike = append(alike, candidate)
		}
		distance := spelling.Distance(strings.ToLower(word), candidate)
		if distance > max(2, len(candidate)/3) || distance >= len(candidate) {
			continue
		}
		if len(near) == 0 || distance < best {
			near, best = nil, distance
		}
		if distance == best {
			near = append(near, candidate)
		}
	}
	if len(near) == 0 {
		return alike
	}
	return near
}
