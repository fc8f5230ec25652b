package plugins

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unknown reports a key that the section does not have, and names the nearest that is right: one of
// the same section, or the same word where it belongs.
func (d *decoder) unknown(n node, section, key string) {
	var allowed []string
	nearest, best := "", 0
	for _, f := range d.fields {
		parent, leaf := splitPath(f.path)
		if parent == section {
			allowed = append(allowed, leaf)
		}
		distance := 2 * spellingDistance(strings.ToLower(key), leaf)
		if parent != section {
			distance++ // the own section wins a draw
		}
		if parent != section && distance > 1 {
			continue // elsewhere only the very word is meant
		}
		if nearest == "" || distance < best {
			nearest, best = f.path, distance
		}
	}
	n.path = section
	what := fmt.Sprintf("unknown key %s", quote(key))
	parent, leaf := splitPath(nearest)
	switch {
	case parent != section && parent != "":
		d.wrong(n, what, fmt.Sprintf("it belongs into %s, as %s", parent, nearest))
	case parent != section:
		d.wrong(n, what, "it belongs to the top level")
	case best/2 <= 1+len(leaf)/4:
		d.wrong(n, what, fmt.Sprintf("did you mean %q?", leaf))
	default:
		d.wrong(n, what, fmt.Sprintf("the nearest is %q; allowed are %s", leaf, strings.Join(allowed, ", ")))
	}
}

func splitPath(path string) (parent, leaf string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// spellingDistance is small for a word that was mistyped, shortened or drawn out.
func spellingDistance(key, leaf string) int {
	distance := editDistance(key, leaf)
	if min(len(key), len(leaf)) >= 3 && (strings.HasPrefix(key, leaf) || strings.HasPrefix(leaf, key)) {
		return min(distance, 1)
	}
	return distance
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbors that make a
// out of b (optimal string alignment). Only the first 64 bytes of a count: it is what somebody typed.
func editDistance(a, b string) int {
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

// maxShown bounds how much of what a person wrote is shown back.
const maxShown = 64

// shorten cuts text to what a message can show, at a character, and escapes what a terminal or a log
// would obey.
func shorten(text string) string {
	quoted := quote(text)
	return quoted[1 : len(quoted)-1]
}

func quote(text string) string {
	if len(text) <= maxShown {
		return strconv.Quote(text)
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strconv.Quote(text[:cut] + "…")
}
