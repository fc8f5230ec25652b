// Package spelling measures how far a typed word is from the right ones, and finds the nearest of them.
package spelling

import "strings"

// Distance counts the insertions, deletions, replacements and swaps of neighbors that turn b into a (optimal string
// alignment). Only the first 64 bytes of a are compared, since a comes from a user.
func Distance(a, b string) int {
	a = a[:min(len(a), 64)]
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := row[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			next[j] = min(replaced, row[j]+1, next[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// Nearest returns the candidates that have the smallest distance from word, if that is at most two letters or a third
// of the candidate's length. If there are none, it returns the candidates that begin with word or with which word
// begins.
func Nearest(word string, right []string) []string {
	var near, alike []string
	best := 0
	for _, candidate := range right {
		if min(len(word), len(candidate)) >= 3 && (strings.HasPrefix(candidate, word) || strings.HasPrefix(word, candidate)) {
			alike = append(alike, candidate)
		}
		distance := Distance(strings.ToLower(word), candidate)
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

// DidYouMean returns the remedy for an unknown word: the most similar valid words, or all valid words if none is
// similar.
func DidYouMean(word string, right []string) string {
	near := Nearest(word, right)
	if len(near) == 0 {
		return "use one of " + strings.Join(right, ", ")
	}
	return "did you mean " + strings.Join(near, " or ") + "?"
}
