package snapshot

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The PAGEMAP_SCAN ioctl, as Documentation/admin-guide/mm/pagemap.rst and include/uapi/linux/fs.h of Linux 6.7 describe it.
const (
	pagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)

	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
)

// scanArg is struct pm_scan_arg.
type scanArg struct {
	size             uint64
	flags            uint64
	start            uint64
	end              uint64
	walkEnd          uint64 // where the kernel stopped
	vec              uint64
	vecLen           uint64
	maxPages         uint64
	categoryInverted uint64
	categoryMask     uint64
	categoryAnyof    uint64
	returnMask       uint64
}

// regionsAtOnce is how many regions one call reports.
const regionsAtOnce = 128

// buffer is what finders work in. It is kept, so that a Reset allocates nothing.
type buffer struct {
	arg     scanArg
	regions []region
	entries []uint64
}

func (b *buffer) room() []region {
	if b.regions == nil {
		b.regions = make([]region, regionsAtOnce)
	}
	return b.regions
}

// openPagemap opens the file that both rungs ask, once.
var openPagemap = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/pagemap") })

var system = ladder{scan: scanPages, pagemap: readPagemap}

// scanPages asks for pages that are there or in the swap, and do not belong to a file: a private page of the image
// mapping is such from the moment when it is written.
func scanPages(b *buffer, memory []byte, from, to uint64) ([]region, uint64, error) {
	file, err := openPagemap()
	if err != nil {
		return nil, 0, err
	}
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	regions := b.room()
	b.arg = scanArg{
		size:             uint64(unsafe.Sizeof(scanArg{})),
		start:            base + from,
		end:              base + to,
		vec:              uint64(uintptr(unsafe.Pointer(unsafe.SliceData(regions)))),
		vecLen:           uint64(len(regions)),
		categoryInverted: pageIsFile,
		categoryMask:     pageIsFile,
		categoryAnyof:    pageIsPresent | pageIsSwapped,
		returnMask:       pageIsPresent | pageIsSwapped,
	}
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), pagemapScan, uintptr(unsafe.Pointer(&b.arg)))
	runtime.KeepAlive(regions)
	if errno != 0 {
		return nil, 0, fmt.Errorf("PAGEMAP_SCAN: %w", errno)
	}
	if n > uintptr(len(regions)) {
		return nil, 0, errors.New("PAGEMAP_SCAN reports more regions than there is room for")
	}
	return regions[:n], b.arg.walkEnd - base, nil
}
