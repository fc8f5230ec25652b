package snapshot

import (
	"errors"
	"fmt"
)

// Mode is a way to find the pages that a task changed.
type Mode string

// The modes, best first.
const (
	Scan    Mode = "scan"    // the PAGEMAP_SCAN ioctl
	Pagemap Mode = "pagemap" // reading /proc/self/pagemap
	Copy    Mode = "copy"    // comparing all of the memory
	New     Mode = "new"     // no reset: a new instance for each task
)

// Verdict says whether a mode is usable on this system.
type Verdict struct {
	Mode Mode
	Err  error // why the mode is not usable; nil if it is
}

// Probe tries every mode on a test memory and returns its verdicts in the order Scan, Pagemap, Copy, New. New is always
// usable. Probe takes some milliseconds.
func Probe() []Verdict { return system.probe() }

// finders holds the finders of this system. Tests replace them.
type finders struct {
	scan, pagemap finder
}

// finder finds a space's private pages: those written since they were mapped or given back. It searches
// memory[from:to], which consists of whole pages. next is the offset at which it stopped, which can be before to. The
// regions are in ascending order and do not overlap. They lie in b, and are valid until the next use of b.
type finder func(b *buffer, memory []byte, from, to uint64) (regions []region, next uint64, err error)

// region is a range of pages by address: the kernel's struct page_region.
type region struct {
	start, end uint64
	categories uint64
}

// zeroPage is the category of pages that were read but never written, and that map the kernel's page of zeroes. A
// finder need not report this category.
const zeroPage = 1 << 5

// finder returns the finder of a mode. It returns nil for Copy, which needs none.
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
