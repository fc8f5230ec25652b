package snapshot

import (
	"errors"
	"fmt"
)

// Mode is a way to find what a task has changed.
type Mode string

// The modes, best first.
const (
	Scan    Mode = "scan"    // the PAGEMAP_SCAN ioctl
	Pagemap Mode = "pagemap" // reading /proc/self/pagemap
	Copy    Mode = "copy"    // comparing all of the memory
	New     Mode = "new"     // none: a new instance for each task
)

// Verdict says whether a mode is usable on this system.
type Verdict struct {
	Mode Mode
	Err  error // why it is not; nil if it is
}

// Probe tries every mode on a memory of its own and says which are usable, in the order Scan, Pagemap, Copy,
// New. New always is. It takes some milliseconds.
func Probe() []Verdict { return system.probe() }

// finders are those of this system. Tests put others in their place.
type finders struct {
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

// finder returns the finder of a mode, or nil for Copy, which does without.
func (f *finders) finder(mode Mode) (finder, error) {
	var find finder
	switch mode {
	case Copy:
		return nil, nil
	case Scan:
		find = f.scan
	case Pagemap:
		find = f.pagemap
	default:
		return nil, fmt.Errorf("mode %q resets nothing, want %s, %s or %s", mode, Scan, Pagemap, Copy)
	}
	if find == nil {
		return nil, fmt.Errorf("mode %s: %w", mode, errors.ErrUnsupported)
	}
	return find, nil
}

func (f *finders) probe() []Verdict {
	verdicts := make([]Verdict, 0, 4)
	for _, mode := range []Mode{Scan, Pagemap, Copy} {
		err := f.try(mode)
		if err != nil {
			err = fmt.Errorf("try mode %s: %w", mode, err)
		}
		verdicts = append(verdicts, Verdict{Mode: mode, Err: err})
	}
	return append(verdicts, Verdict{Mode: New})
}
