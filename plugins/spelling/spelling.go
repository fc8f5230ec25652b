// Package spelling tells how far a word that somebody typed is from one that would be right, and which of some are
// nearest.
package spelling

import "strings"

// Distance counts the insertions, deletions, replacements and swaps of neighbors that make a
// out of b (optimal string alignment). Only the first 64 bytes of a count: it is what somebody typed.
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

// Nearest returns the candidates at the least distance, up to two letters or a third of their own, or those that begin
// alike.
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
