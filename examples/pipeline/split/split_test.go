package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/sdktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                          {""},
		"a":                         {"a"},
		"12345678":                  {"12345678"},
		"one two three":             {"one two ", "three"},
		"one two\nthree":            {"one two\n", "three"},
		"one  two  three":           {"one  ", "two  ", "three"},
		"millstones grind slowly":   {"millstones ", "grind ", "slowly"},
		"millstones":                {"millstones"},
		"a millstone, two of them.": {"a ", "millstone, ", "two of ", "them."},
		"         ":                 {"        ", " "},
	} {
		var got []string
		for _, part := range cut([]byte(text), 8) {
			got = append(got, string(part))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is cut into %q, want %q", text, got, want)
		}
	}
}

// No byte is lost or doubled, and no word is cut, whatever the text is.
func FuzzCut(f *testing.F) {
	f.Add([]byte("one two three"), 5)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		parts := cut(text, max(size, 1))
		if !bytes.Equal(bytes.Join(parts, nil), text) {
			t.Errorf("%q became %q", text, parts)
		}
		words := 0
		for _, part := range parts {
			words += len(bytes.FieldsFunc(part, isSpace))
		}
		if want := len(bytes.FieldsFunc(text, isSpace)); words != want {
			t.Errorf("%q has %d words, its parts %q have %d", text, want, parts, words)
		}
	})
}

func isSpace(r rune) bool { return strings.ContainsRune(spaces, r) }

func TestSplit(t *testing.T) {
	t.Parallel()
	var runs []string
	for range 2 {
		h := sdktest.New(t)
		h.Config["part"] = "8"
		h.Queues = []string{"count"}
		r := h.Run(split, sdktest.Task{ID: "doc", Input: []byte("one two three")})
		if r.Outcome != sdktest.Complete || string(r.Result) != "2 parts, to be reported by task doc.report\n" {
			t.Fatal(r, string(r.Result))
		}
		var got []string
		for _, e := range r.Enqueued {
			got = append(got, fmt.Sprintf("%s %s %s %q", e.Queue, e.ID, e.Options.Key, e.Parameters))
		}
		head, _, _ := bytes.Cut(r.Enqueued[0].Parameters, []byte("\n"))
		run := strings.TrimPrefix(string(head), "1 2 ")
		if want := []string{`count doc.1 doc "1 2 ` + run + `\none two "`, `count doc.2 doc "2 2 ` + run + `\nthree"`}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		runs = append(runs, run)
	}
	if runs[0] == runs[1] || !regexp.MustCompile(`^[0-9a-z]{8,13}$`).MatchString(runs[0]) {
		t.Errorf("the runs are named %q", runs)
	}
}

// A document that cannot be enqueued whole is not enqueued at all.
func TestSplitErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		part    string
		fails   int // which call to enqueue does
		outcome sdktest.Outcome
		want    string
	}{
		"TooMany": {"2", 0, sdktest.Fatal, "the document has 257 parts of 2 bytes, at most 256 may be"},
		"NoSize":  {"", 0, sdktest.Failed, `config: part is ""`},
		"Zero":    {"0", 0, sdktest.Failed, `config: part is "0"`},
		"Enqueue": {"8", 3, sdktest.Failed, "enqueue part 3: "},
		"Away":    {"8", 3, sdktest.Retry, "enqueue part 3: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sdktest.New(t)
			h.Config["part"] = tt.part
			h.Queues = []string{"count"}
			calls := 0
			h.Fault = func(string) error {
				if calls++; calls != tt.fails {
					return nil
				}
				if tt.outcome == sdktest.Retry {
					return sdk.ErrUnavailable
				}
				return sdk.ErrTooBig
			}
			r := h.Run(split, sdktest.Task{Input: []byte(strings.Repeat("a ", 256) + "b")})
			if r.Outcome != tt.outcome || !strings.Contains(r.Err.Error(), tt.want) || len(r.Enqueued) > 0 {
				t.Errorf("%v, with %d tasks enqueued; want %s", r, len(r.Enqueued), tt.want)
			}
		})
	}
}
