package snapshot

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The PAGEMAP_SCAN ioctl, from Documentation/admin-guide/mm/pagemap.rst and include/uapi/linux/fs.h of Linux.
const (
	pagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)

	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
)

// scanArg is struct pm_scan_arg. A page is reported if it has all categories of mask and any category of anyof, after
// the categories in inverted are inverted.
type scanArg struct {
	size     uint64 // of this struct
	flags    uint64
	start    uint64
	end      uint64
	walkEnd  uint64 // address at which the kernel stopped; set by the kernel
	vec      uint64 // address of the regions that the kernel fills
	vecLen   uint64 // number of regions in vec
	maxPages uint64 // 0 for any number
	inverted uint64
	mask     uint64
	anyof    uint64
	reported uint64 // the categories that each region reports
}

// scanPages finds pages that are present or swapped out and belong to no file. A page of a private mapping belongs to
// the file until it is first written.
func scanPages(b *buffer, memory []byte, from, to uint64) ([]region, uint64, error) {
	fd, err := openPagemap()
	if err != nil {
		return nil, 0, err
	}
	base := addressOf(memory)
	regions := b.room()
	b.arg = scanArg{
		size:     uint64(unsafe.Sizeof(b.arg)),
		start:    base + from,
		end:      base + to,
		vec:      uint64(uintptr(unsafe.Pointer(unsafe.SliceData(regions)))),
		vecLen:   uint64(len(regions)),
		inverted: pageIsFile,
		mask:     pageIsFile,
		anyof:    pageIsPresent | pageIsSwapped,
		reported: zeroPage,
	}
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), pagemapScan, uintptr(unsafe.Pointer(&b.arg)))
	runtime.KeepAlive(regions) // the kernel has the address of regions only as a number
	if errno != 0 {
		return nil, 0, fmt.Errorf("scan pages by ioctl: %w", errno)
	}
	if n > uintptr(len(regions)) {
		return nil, 0, fmt.Errorf("scan pages by ioctl: %d regions where there is room for %d", n, len(regions))
	}
	return regions[:n], b.arg.walkEnd - base, nil
}
