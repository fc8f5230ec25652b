package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/redact"
)

// ErrRefused is wrapped by every *Error.
var ErrRefused = errors.New("manifest refused")

// maxProblems is the maximum number of problems that one error lists.
const maxProblems = 32

// Problem is one mistake in a manifest.
type Problem struct {
	// Line is the line of the file, from 1; 0 if the problem concerns the whole file.
	Line int
	// Field is the path of the key, such as limits.memory or queues[1]; "" for the whole file.
	Field string
	// What says what is wrong, and Remedy what would be right.
	What, Remedy string
}

// Error lists every problem of a manifest, or of a host's grants, in the order of its lines.
type Error struct {
	// File is the name of the file as it was given.
	File     string
	Problems []Problem
}

// NewError returns an *Error with the problems of a file; nil if there are none.
func NewError(file string, problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	if len(problems) > maxProblems {
		problems = append(problems[:maxProblems], Problem{What: "there are more problems", Remedy: "correct these first"})
	}
	return &Error{File: file, Problems: problems}
}

// Error joins the problems: "FILE:LINE: FIELD: WHAT: REMEDY; FILE:LINE: …".
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, r := range e.Refusals() {
		texts[i] = r.Where + ": " + r.What + ": " + r.Remedy
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes errors.Is(err, ErrRefused) hold.
func (e *Error) Unwrap() error { return ErrRefused }

// Refusals returns the problems in the form in which package runtime reports why it refuses a module.
func (e *Error) Refusals() []runtime.Refusal {
	refusals := make([]runtime.Refusal, len(e.Problems))
	for i, p := range e.Problems {
		r := runtime.Refusal{What: p.What, Where: e.File, Remedy: p.Remedy}
		if p.Field != "" {
			r.What = p.Field + ": " + p.What
		}
		if p.Line != 0 {
			r.Where = fmt.Sprintf("%s:%d", e.File, p.Line)
		}
		refusals[i] = r
	}
	return refusals
}

// Fault says what is wrong with a file, and what would be right.
type Fault struct{ What, Remedy string }

func (f *Fault) Error() string { return f.What + ": " + f.Remedy }

// maxMessage bounds the bytes of a problem's What, and of its Remedy: hosts publish both.
const maxMessage = 1000

// maxShown bounds the bytes of a person's text that a message repeats.
const maxShown = 64

// Quote quotes a text for a message. It cuts the text to maxShown bytes, and escapes the characters that a terminal or
// a log would obey.
func Quote(text string) string {
	return strconv.Quote(redact.Shorten(text, maxShown))
}

// Shorten is Quote without the quotation marks.
func Shorten(text string) string {
	quoted := Quote(text)
	return quoted[1 : len(quoted)-1]
}
