package snapshot

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

var system = finders{scan: scanPages, pagemap: readPagemap}

// buffer is what a finder works in. Each space keeps one, so that a Reset allocates nothing.
type buffer struct {
	arg     scanArg
	regions []region
	entries []uint64
}

// regionsAtOnce is how many regions a finder can report, which take 3 KiB. The kernel allocates as many for each
// call, so that more of them make a call with few results slower, and fewer make one with many results two.
const regionsAtOnce = 128

func (b *buffer) room() []region {
	if b.regions == nil {
		b.regions = make([]region, regionsAtOnce)
	}
	return b.regions
}

// openPagemap opens the file that all spaces ask. It stays open for as long as the process lives.
var openPagemap = sync.OnceValues(func() (int, error) {
	const path = "/proc/self/pagemap"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
})
