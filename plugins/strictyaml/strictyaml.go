// Package strictyaml reads untrusted YAML files: one document of bounded size and depth. It refuses the features of
// YAML with which a few bytes stand for many (anchors, aliases and merges).
//
// Each bound is checked before the work that it limits: first bytes and values in the text, then depth and aliases in
// the nodes. Each node has its own place in the text, so nothing is expanded.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/quern-project/quern/runtime/units"
)

// Limits bound a document.
type Limits struct {
	// Bytes bounds the size of the text.
	Bytes int
	// Values bounds the number of keys and values together. They are counted in the text, where a comma or a colon in
	// quotes counts as well.
	Values int
}

// maxDepth bounds how deep mappings and lists are nested.
const maxDepth = 100

// Error says what is wrong with a document. It repeats at most one byte of the document, so that it can be shown even
// if the document has secrets.
type Error struct {
	// Line is the number of the line, from 1; 0 means the whole document.
	Line         int
	What, Remedy string
}

func (e *Error) Error() string {
	text := e.What + ": " + e.Remedy
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return text
}

// WriteKeys is the remedy for a document that is not a mapping.
const WriteKeys = `write it as "key: value" lines`

// Parse returns the root value of the one document in text, or nil if there is none. Every error is an *Error.
func Parse(text []byte, most Limits) (*yaml.Node, error) {
	if len(text) > most.Bytes {
		return nil, &Error{0, "has more than " + units.FormatSize(int64(most.Bytes)), "put less into it"}
	}
	if values(text) > most.Values {
		return nil, &Error{0, fmt.Sprintf("has more than %d keys and values", most.Values), "put less into it"}
	}
	if err := characters(text); err != nil {
		return nil, err
	}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	err := documents.Decode(&first)
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, syntax(err, text)
	}
	switch err = documents.Decode(&second); {
	case err == nil:
		return nil, &Error{second.Line, "there is a second document", "keep one, without a --- between its lines"}
	case !errors.Is(err, io.EOF):
		return nil, syntax(err, text)
	}
	root := first.Content[0]
	if err := check(root, 1); err != nil {
		return nil, err
	}
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, nil
}

// values counts the characters that can begin a value. The YAML reader makes at most three nodes for each.
func values(text []byte) (count int) {
	for i, c := range text {
		switch c {
		case ',', '[', '{', ':':
			count++
		case '-', '?': // followed by a blank or a line break, which can have several bytes
			if i+1 == len(text) || text[i+1] <= ' ' || text[i+1] >= utf8.RuneSelf {
				count++
			}
		}
	}
	return count
}

// characters returns an error for the first character that YAML does not allow. Unlike the YAML reader's, its error has
// a line.
func characters(text []byte) error {
	line := 1
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			return &Error{line, fmt.Sprintf("has the byte 0x%02x, which is not UTF-8", rest[0]), "save the file as UTF-8"}
		case r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0x7f:
			return &Error{line, fmt.Sprintf("has the control character 0x%02x", r), "remove it"}
		case r == '\n':
			line++
		}
		rest = rest[size:]
	}
	return nil
}

// check refuses aliases, anchors and merges, and nodes that are nested too deep.
func check(n *yaml.Node, depth int) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return alias(n.Line)
	case n.Anchor != "":
		return &Error{
			n.Line, "has an anchor (&), for which aliases would stand",
			"write the value out wherever it is needed, and a text that begins with & in quotes",
		}
	case depth > maxDepth:
		return &Error{
			n.Line, fmt.Sprintf("is more than %d levels deep", maxDepth),
			"put fewer lists and mappings into each other",
		}
	}
	for i, inner := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && inner.Tag == "!!merge" {
			return &Error{inner.Line, "merges keys with <<", "write the keys out"}
		}
		if err := check(inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func alias(line int) error {
	return &Error{line, "has an alias (*)", "write the value out, and a text that begins with * in quotes"}
}

// syntax turns an error of the YAML reader into an *Error with a line. The reader gives no number for the first line,
// and counts lines from 0 in errors of its grammar.
func syntax(err error, text []byte) error {
	what, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if name, found := strings.CutPrefix(what, "unknown anchor '"); found {
		before, _, _ := bytes.Cut(text, []byte("*"+strings.TrimSuffix(name, "' referenced")))
		return alias(1 + bytes.Count(before, []byte("\n")))
	}
	if head, rest, found := strings.Cut(what, ": "); found {
		if number, err := strconv.Atoi(strings.TrimPrefix(head, "line ")); err == nil {
			what, line = rest, number
			if isGrammar(what) {
				line++
			}
		}
	}
	line = min(line, 1+bytes.Count(text, []byte("\n"))) // the reader may count the end of the file as a line
	lines := bytes.Split(text, []byte("\n"))
	for at := max(line-1, 1); at <= min(line+1, len(lines)); at++ { // the reader may name the line before or after
		body := bytes.TrimLeft(lines[at-1], " \t")
		if bytes.IndexByte(lines[at-1][:len(lines[at-1])-len(body)], '\t') >= 0 {
			return &Error{at, "has a tab at its beginning", "indent it with spaces"}
		}
	}
	return &Error{line, "is not YAML: " + what, WriteKeys}
}

var grammar = []string{"',' or ']'", "',' or '}'", "'-' indicator", "<document start>", "key", "node content"}

func isGrammar(what string) bool {
	expected, found := strings.CutPrefix(what, "did not find expected ")
	return found && slices.Contains(grammar, expected) || what == "found undefined tag handle"
}
