package snapshot

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// usableModes are the modes that find something here. A mode that should be usable by the kernel's version must be.
func usableModes(t testing.TB) map[Mode]finder {
	t.Helper()
	usable := make(map[Mode]finder)
	for _, verdict := range Probe() {
		if verdict.Mode == New {
			continue
		}
		if verdict.Err == nil {
			usable[verdict.Mode], _ = system.finder(verdict.Mode)
			continue
		}
		if since := map[Mode][2]int{Scan: {6, 7}, Pagemap: {4, 2}}[verdict.Mode]; newer(t, since) {
			t.Errorf("%v, though Linux %d.%d and later have it", verdict.Err, since[0], since[1])
		}
	}
	return usable
}

// newer tells whether this is the given version of Linux or a later one.
func newer(t testing.TB, version [2]int) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > version[0] || major == version[0] && minor >= version[1]
}

// lie is a finder that changes what an honest one says.
func lie(honest finder, change func(from, to, base uint64, regions []region, next uint64) ([]region, uint64, error)) finder {
	return func(b *buffer, memory []byte, from, to uint64) ([]region, uint64, error) {
		regions, next, err := honest(b, memory, from, to)
		if err != nil {
			return nil, 0, err
		}
		base := addressOf(memory)
		return change(from, to, base, append([]region(nil), regions...), next)
	}
}

var errLie = errors.New("no such luck")

// lies are the ways in which a mode can be wrong. Those that are absurd are noticed by Reset as well.
var lies = []struct {
	name   string
	absurd bool
	change func(from, to, base uint64, regions []region, next uint64) ([]region, uint64, error)
}{
	{"Fails", true, func(_, _, _ uint64, _ []region, _ uint64) ([]region, uint64, error) {
		return nil, 0, errLie
	}},
	{"Nothing", false, func(_, to, _ uint64, _ []region, _ uint64) ([]region, uint64, error) {
		return nil, to, nil
	}},
	{"Everything", false, func(from, to, base uint64, _ []region, _ uint64) ([]region, uint64, error) {
		return []region{{start: base + from, end: base + to}}, to, nil
	}},
	{"WithoutFirst", false, func(_, _, _ uint64, regions []region, next uint64) ([]region, uint64, error) {
		return regions[min(1, len(regions)):], next, nil
	}},
	{"WithoutLast", false, func(_, _, _ uint64, regions []region, next uint64) ([]region, uint64, error) {
		return regions[:max(0, len(regions)-1)], next, nil
	}},
	{"Shorter", false, func(_, _, _ uint64, regions []region, next uint64) ([]region, uint64, error) {
		for i, r := range regions {
			if r.end-r.start > pageSize {
				regions[i].end -= pageSize
			}
		}
		return regions, next, nil
	}},
	{"FirstBufferOnly", false, func(from, to, _ uint64, regions []region, next uint64) ([]region, uint64, error) {
		if from > 0 {
			return nil, to, nil
		}
		return regions, next, nil
	}},
	{"SkipsBehindBuffer", false, func(_, to, _ uint64, regions []region, next uint64) ([]region, uint64, error) {
		return regions, min(next+8*pageSize, to), nil
	}},
	{"Later", false, func(from, to, base uint64, regions []region, next uint64) ([]region, uint64, error) {
		for i := range regions {
			if regions[i].end < base+next {
				regions[i].start += pageSize
				regions[i].end += pageSize
			}
		}
		return regions, next, nil
	}},
	{"NoProgress", true, func(from, _, _ uint64, _ []region, _ uint64) ([]region, uint64, error) {
		return nil, from, nil
	}},
	{"Backwards", true, func(_, _, base uint64, regions []region, _ uint64) ([]region, uint64, error) {
		return regions, -base, nil
	}},
	{"TooFar", true, func(_, to, _ uint64, regions []region, _ uint64) ([]region, uint64, error) {
		return regions, to + pageSize, nil
	}},
	{"HalfAPageFar", true, func(from, _, _ uint64, _ []region, _ uint64) ([]region, uint64, error) {
		return nil, from + pageSize/2, nil
	}},
	{"Before", true, func(from, _, base uint64, _ []region, next uint64) ([]region, uint64, error) {
		return []region{{start: base + from - pageSize, end: base + from}}, next, nil
	}},
	{"Behind", true, func(_, _, base uint64, _ []region, next uint64) ([]region, uint64, error) {
		return []region{{start: base + next, end: base + next + pageSize}}, next, nil
	}},
	{"Empty", true, func(from, _, base uint64, _ []region, next uint64) ([]region, uint64, error) {
		return []region{{start: base + from, end: base + from}}, next, nil
	}},
	{"Reversed", true, func(from, _, base uint64, _ []region, next uint64) ([]region, uint64, error) {
		return []region{{start: base + from + 2*pageSize, end: base + from + pageSize}}, next, nil
	}},
	{"Unsorted", true, func(_, _, _ uint64, regions []region, next uint64) ([]region, uint64, error) {
		return append(regions, regions[0]), next, nil
	}},
	{"Unaligned", true, func(from, _, base uint64, _ []region, next uint64) ([]region, uint64, error) {
		return []region{{start: base + from + 1, end: base + from + pageSize}}, next, nil
	}},
	{"AllAddresses", true, func(_, _, _ uint64, _ []region, next uint64) ([]region, uint64, error) {
		return []region{{start: 0, end: ^uint64(0)}}, next, nil
	}},
}

// TestProbeDropsLiars: a mode that reports too little, too much or nonsense is not usable, and the others are
// none the worse.
func TestProbeDropsLiars(t *testing.T) {
	t.Parallel()
	honest := usableModes(t)
	for _, test := range lies {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []Mode{Scan, Pagemap} {
				if honest[mode] == nil {
					continue
				}
				try := finders{scan: honest[Scan], pagemap: honest[Pagemap]}
				liar := lie(honest[mode], test.change)
				if mode == Scan {
					try.scan = liar
				} else {
					try.pagemap = liar
				}
				for _, verdict := range try.probe() {
					_, here := honest[verdict.Mode]
					want := verdict.Mode != mode && (here || verdict.Mode == New)
					if usable := verdict.Err == nil; usable != want {
						t.Errorf("%s lies, mode %s: %v, want it usable: %v", mode, verdict.Mode, verdict.Err, want)
					}
					if verdict.Mode == mode && test.name == "Fails" && !errors.Is(verdict.Err, errLie) {
						t.Errorf("%s: %v, want the cause %v", mode, verdict.Err, errLie)
					}
				}
			}
		})
	}
}

// TestResetErrFinder: what fails or answers nonsense at run time is an error, and nothing outside the
// memory is touched.
func TestResetErrFinder(t *testing.T) {
	t.Parallel()
	contents := pattern(4 * wasmPage)
	image := take(t, contents)
	for _, test := range lies {
		if !test.absurd {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for mode, honest := range usableModes(t) {
				if honest == nil {
					continue
				}
				space := mapped(t, image, 8*wasmPage)
				liar := lie(honest, test.change)
				space.finders = &finders{scan: liar, pagemap: liar}
				space.Bytes()[0]++
				if err := space.Reset(mode, 4*wasmPage); err == nil {
					t.Errorf("Reset by mode %s succeeded", mode)
				}
			}
		})
	}
}

// TestResetErrKernel: the kernel's own refusals reach the caller.
func TestResetErrKernel(t *testing.T) {
	t.Parallel()
	b := new(buffer)
	memory := reserved(t, wasmPage).memory
	if usableModes(t)[Scan] == nil {
		t.Skip("no scan here")
	}
	if _, _, err := scanPages(b, memory, 1, pageSize); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a scan from the middle of a page: %v, want %v", err, unix.EINVAL)
	}
}

// TestResetErrSecondCall: a scan that fails in the middle of its work is an error too.
func TestResetErrSecondCall(t *testing.T) {
	t.Parallel()
	find := usableModes(t)[Scan]
	if find == nil {
		t.Skip("no scan here")
	}
	const pages = 4 * regionsAtOnce
	space := mapped(t, take(t, pattern(pages*pageSize)), pages*pageSize)
	calls := 0
	space.finders = &finders{scan: func(b *buffer, memory []byte, from, to uint64) ([]region, uint64, error) {
		calls++
		if calls == 2 {
			return nil, 0, unix.ENOMEM
		}
		return find(b, memory, from, to)
	}}
	for page := uint64(0); page < pages; page += 2 {
		space.Bytes()[page*pageSize]++
	}
	if err := space.Reset(Scan, pages*pageSize); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("Reset: %v, want %v", err, unix.ENOMEM)
	}
}
