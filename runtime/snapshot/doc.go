// Package snapshot restores a guest's memory to a snapshot after each task. The cost depends on how much the task
// changed, not on the size of the memory.
//
//	Image   one memfd, sealed       [ a | b | . | c | . ]          . is a hole: zeroes that take no memory
//	                                  |   |   |   |   |
//	Space   reserved, never moves   [ a | B | . | c | . | . | X |  ...  | limit
//	                                 private mapping    ^ zero after it
//
// An [Image] is the snapshot: the memory of an instance that is ready for its first task. A [Space] is the address
// range of one instance's memory. The image is mapped privately at the start of the space, so all spaces of an image
// share the pages that nobody writes. The rest of the space reads as zero. A write gives the space a private page (B
// and X). [Space.Reset] finds these pages and copies the image back into those that differ.
//
// An image can share pages with another image. Its own memfd then has only the pages that differ. A space maps ranges
// of both memfds:
//
//	the other's   [ a | b | . | c | . ]
//	Image         [ a | D | . | E | . ]       own: [ D | E ]
//
// A [Mode] is a way to find the private pages. The modes are, best first:
//
//	Scan     the PAGEMAP_SCAN ioctl: one call reports the ranges of private pages (Linux 6.7 and later)
//	Pagemap  /proc/self/pagemap: eight bytes for each page, private or not
//	Copy     compares all of the memory
//	New      no reset: a new instance for each task
//
// Each space lies between guards: 4 GiB of inaccessible addresses below and above it. Compiled code that misses the
// memory by a 32-bit offset faults instead of writing into another memory. Guards cost one or two mappings a space.
// They also cost addresses: a 64-bit process has enough for about 14,000 spaces, and further spaces have no guards. An
// instance of an Extism plugin has two spaces.
//
// # Failure
//
// An overlooked page would leak one task's data into the next task. So no mode is trusted: [Probe] tries each mode on a
// test memory, and only a mode that reports exactly the pages written there is usable. If a system call fails later,
// Reset returns an error and the caller discards the instance, whose contents are then undefined.
//
// Which pages Reset keeps or gives back affects its cost and [Space.Held], never the contents.
package snapshot
