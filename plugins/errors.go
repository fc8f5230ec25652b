package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime"
)

var (
	// ErrStarted is returned by a second Run of one Directory.
	ErrStarted = errors.New("the plugin directory is already being watched")
	// ErrManifest is wrapped by every *ManifestError.
	ErrManifest = errors.New("manifest refused")
	// ErrConfig is wrapped by every error about a field of Config.
	ErrConfig = errors.New("configuration refused")

	// errUnstable says that a file changed while it was read: nothing is known, look again.
	errUnstable = errors.New("the file keeps changing while it is read: write it under another name and rename it")
)

// fault is something wrong with a file, and what would be right.
type fault struct{ what, remedy string }

func (f *fault) Error() string { return f.what + ": " + f.remedy }

// maxProblems bounds how many problems of one manifest are told.
const maxProblems = 32

// Problem is one thing that is wrong with a manifest.
type Problem struct {
	// Line of the file, from 1; 0 if it concerns the whole file.
	Line int
	// Field is the path of the key, such as limits.memory or queues[1]; "" for the whole file.
	Field string
	// What is wrong with it, and the Remedy.
	What, Remedy string
}

// ManifestError holds every problem of a manifest, or of the file of a host's grants, in the order of its lines.
type ManifestError struct {
	// File is the manifest's name as it was given.
	File     string
	Problems []Problem
}

// manifestError makes an error of the problems of a manifest; nil if there are none.
func manifestError(file string, problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], Problem{
			What: fmt.Sprintf("there are %d more problems", more), Remedy: "correct these first",
		})
	}
	return &ManifestError{File: file, Problems: problems}
}

// Error joins the problems: "FILE:LINE: FIELD: WHAT: REMEDY; FILE:LINE: …".
func (e *ManifestError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.where(e.File) + ": " + p.What + ": " + p.Remedy
		if p.Field != "" {
			texts[i] = p.where(e.File) + ": " + p.Field + ": " + p.What + ": " + p.Remedy
		}
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes errors.Is(err, ErrManifest) hold.
func (e *ManifestError) Unwrap() error { return ErrManifest }

// Refusals tells the problems in the form that those of a module have.
func (e *ManifestError) Refusals() []runtime.Refusal {
	refusals := make([]runtime.Refusal, len(e.Problems))
	for i, p := range e.Problems {
		what := p.What
		if p.Field != "" {
			what = p.Field + ": " + what
		}
		refusals[i] = runtime.Refusal{What: what, Where: p.where(e.File), Remedy: p.Remedy}
	}
	return refusals
}

func (p Problem) where(file string) string {
	if p.Line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, p.Line)
}
