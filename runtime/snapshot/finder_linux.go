package snapshot

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

var system = finders{scan: scanPages, pagemap: readPagemap}

// buffer is a finder's working memory. Each space keeps one, so that a Reset allocates nothing.
type buffer struct {
	arg     scanArg
	regions []region
	entries []uint64
}

// regionsAtOnce is the maximum number of regions that a finder reports at once (3 KiB). The kernel allocates room for
// this number in each call. A larger number slows calls with few results; a smaller number splits calls with many
// results.
const regionsAtOnce = 128

func (b *buffer) room() []region {
	if b.regions == nil {
		b.regions = make([]region, regionsAtOnce)
	}
	return b.regions
}

// openPagemap opens the file that all spaces read. The file stays open as long as the process lives.
var openPagemap = sync.OnceValues(func() (int, error) {
	const path = "/proc/self/pagemap"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
})
