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

// Probe tries every rung on a memory of its own and says which are usable, in the order Scan, Pagemap, Copy,
// New. New always is. It takes some milliseconds.
func Probe() []Verdict { return system.probe() }

// ladder is the finders of this system. Tests put others in their place.
type ladder struct {
	scan, pagemap finder
}

// finder reports pages that are a space's own: those that were written at some time since they were mapped or
// given back. It looks at memory[from:to] (whole pages) and answers how far it came, which may be less than to. The
// regions are in order and do not overlap; they lie in the buffer and hold until its next use.
type finder func(b *buffer, memory []byte, from, to uint64) (regions []region, next uint64, err error)

// region is a range of pages by their addresses: struct page_region of the kernel.
type region struct {
	start, end uint64
	categories uint64
}

// zeroPage is the category of pages that were only read where nothing was, and show the kernel's page of
// zeroes. A finder need not tell them from others.
const zeroPage = 1 << 5

// finder returns the finder of a rung, or nil for Copy, which does without.
func (l *ladder) finder(rung Rung) (finder, error) {
	var find finder
	switch rung {
	case Copy:
		return nil, nil
	case Scan:
		find = l.scan
	case Pagemap:
		find = l.pagemap
	default:
		return nil, fmt.Errorf("rung %q resets nothing, want %s, %s or %s", rung, Scan, Pagemap, Copy)
	}
	if find == nil {
		return nil, fmt.Errorf("rung %s: %w", rung, errors.ErrUnsupported)
	}
	return find, nil
}

func (l *ladder) probe() []Verdict {
	verdicts := make([]Verdict, 0, 4)
	for _, rung := range []Rung{Scan, Pagemap, Copy} {
		err := l.try(rung)
		if err != nil {
			err = fmt.Errorf("try rung %s: %w", rung, err)
		}
		verdicts = append(verdicts, Verdict{Rung: rung, Err: err})
	}
	return append(verdicts, Verdict{Rung: New})
}
