package plugins

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/quern-project/quern/plugins/spelling"
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
		edits, shortened := spellingDistance(strings.ToLower(key), leaf)
		if parent != section && edits > 0 {
			continue // elsewhere only the very word is meant
		}
		distance := 4 * edits
		if parent != section {
			distance += 2 // the own section wins a draw
		}
		if shortened {
			distance++ // and so does a mistyped word
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
		d.wrong(n, what, "it belongs to "+d.top)
	case best/4 <= 1+len(leaf)/4:
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

// spellingDistance is small for a word that was mistyped, shortened or drawn out, and tells the latter.
func spellingDistance(key, leaf string) (edits int, shortened bool) {
	edits = spelling.Distance(key, leaf)
	if edits > 1 && min(len(key), len(leaf)) >= 3 && (strings.HasPrefix(key, leaf) || strings.HasPrefix(leaf, key)) {
		return 1, true
	}
	return edits, false
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
