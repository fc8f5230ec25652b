package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/quern-project/quern/cmd/quern/show"
)

// sameResult reports whether a result is the expected one. Two JSON values are compared as such. Otherwise want, the
// content of a file, may have one newline more at its end, as editors write it.
func sameResult(want, got []byte) bool {
	if bytes.Equal(want, got) || bytes.Equal(bytes.TrimSuffix(want, []byte("\n")), got) {
		return true
	}
	one, ok := parseJSON(want)
	other, okToo := parseJSON(got)
	return ok && okToo && reflect.DeepEqual(one, other)
}

// parseJSON parses a text that is one JSON value. Numbers stay as they are written.
func parseJSON(text []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return value, errors.Is(err, io.EOF)
}

// difference shows where a result differs from the expected one: JSON and text by lines, other bytes in hexadecimal.
// file is the name of the file with the expected one.
func difference(want, got []byte, file string) []string {
	head := fmt.Sprintf("the result differs from %s; if it is right, `quern plugin test --update` writes it there", file)
	form := "" // in which the lines are shown
	one, ok := parseJSON(want)
	other, okToo := parseJSON(got)
	switch {
	case ok && okToo:
		form = " (as formatted JSON)"
		want, _ = json.MarshalIndent(one, "", "  ") // a value that was parsed can be written
		got, _ = json.MarshalIndent(other, "", "  ")
	case !show.IsText(want) || !show.IsText(got):
		at := commonPrefix(want, got)
		return []string{
			fmt.Sprintf("%s: from byte %d on, %d bytes in place of %d", head, at+1, len(got), len(want)),
			"- " + bytesAround(want, at), "+ " + bytesAround(got, at),
		}
	default:
		var ended bool
		if want, ended = bytes.CutSuffix(want, []byte("\n")); ended {
			got = bytes.TrimSuffix(got, []byte("\n"))
		}
	}
	return append([]string{head}, lineDifference(strings.Split(string(want), "\n"), strings.Split(string(got), "\n"), form)...)
}

// shownDifference is the number of different lines of a result that are shown, of the expected ones and of the others.
const shownDifference = 5

// lineDifference shows the lines between those that two texts have in common at their beginnings and ends. form says in
// what form they are shown, if not in their own.
func lineDifference(want, got []string, form string) []string {
	first := commonPrefix(want, got)
	want, got = want[first:], got[first:]
	for len(want) > 0 && len(got) > 0 && want[len(want)-1] == got[len(got)-1] {
		want, got = want[:len(want)-1], got[:len(got)-1]
	}
	lines := []string{fmt.Sprintf("from line %d on%s:", first+1, form)}
	side := func(mark string, these, others []string) {
		for i, line := range these[:min(len(these), shownDifference)] {
			at := 0
			if i < len(others) {
				at = commonPrefix([]byte(line), []byte(others[i]))
			}
			lines = append(lines, mark+" "+textAround(line, at))
		}
		if more := len(these) - shownDifference; more > 0 {
			lines = append(lines, fmt.Sprintf("%s … %d lines more", mark, more))
		}
	}
	side("-", want, got)
	side("+", got, want)
	return lines
}

// commonPrefix returns how many elements two slices have in common at their beginnings.
func commonPrefix[T comparable](a, b []T) int {
	most := min(len(a), len(b))
	for i := range most {
		if a[i] != b[i] {
			return i
		}
	}
	return most
}

// Numbers of bytes of a result that are shown before and after the first wrong byte.
const (
	shownBefore = 20
	shownBehind = 60
)

// bytesAround returns the bytes around the index at, in hexadecimal.
func bytesAround(data []byte, at int) string {
	return fmt.Sprintf("% x", data[max(0, at-shownBefore):min(len(data), at+shownBehind)])
}

// textAround returns a line, or the part of a long one around the index at.
func textAround(line string, at int) string {
	from, to := max(0, at-shownBefore), min(len(line), at+shownBehind)
	text := show.Escape(strings.ToValidUTF8(line[from:to], ""))
	if from > 0 {
		text = "…" + text
	}
	if to < len(line) {
		text += "…"
	}
	return text
}
