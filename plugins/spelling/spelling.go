// Package spelling tells how far a word that somebody typed is from one that would be right. Who asks
// decides what is near enough, and what to say.
package spelling

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
