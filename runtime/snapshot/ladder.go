package snapshot

import (
	"errors"
	"fmt"
)

// Rung is a way to find what a task has changed.
type Rung string

// The rungs, best first.
const (
	Scan    Rung = "scan"    // the PAGEMAP_SCAN ioctl
	Pagemap Rung = "pagemap" // reading /proc/self/pagemap
	Copy    Rung = "copy"    // comparing all of the memory
	New     Rung = "new"     // none: a new instance for each task
)

// Verdict says whether a rung is usable on this system.
type Verdict struct {
	Rung Rung
	Err  error // why it is not; nil if it is
}

// finder reports pages of a space's own, that is, those which its tasks have written at some time since they
// were mapped. It looks at memory[from:to] (offsets in bytes, whole pages) and answers how far it came, which may be less than
// to; the regions up to there are in order and do not touch each other. They are its buffer's and hold until the next call.
type finder func(b *buffer, memory []byte, from, to uint64) (regions []region, next uint64, err error)

// ladder is the finders of this system. Tests put others in their place.
type ladder struct {
	scan, pagemap finder
}

// finder returns the finder of a rung, nil if it does without.
func (l *ladder) finder(rung Rung) (finder, error) {
	var find finder
	switch rung {
	case Scan:
		find = l.scan
	case Pagemap:
		find = l.pagemap
	case Copy:
		return nil, nil
	default:
		return nil, fmt.Errorf("rung %q resets nothing, want %s, %s or %s", rung, Scan, Pagemap, Copy)
	}
	if find == nil {
		return nil, fmt.Errorf("rung %q: %w", rung, errors.ErrUnsupported)
	}
	return find, nil
}

// Probe tries every rung on a mapping of its own and says which are usable, in the order Scan, Pagemap, Copy,
// New. New always is. It takes some milliseconds.
func Probe() []Verdict { return system.probe() }

func (l *ladder) probe() []Verdict {
	verdicts := make([]Verdict, 0, 4)
	for _, rung := range []Rung{Scan, Pagemap, Copy} {
		verdicts = append(verdicts, Verdict{Rung: rung, Err: l.try(rung)})
	}
	return append(verdicts, Verdict{Rung: New})
}
