// Package snapshot gives a guest's memory back its first contents after each task, at a cost that depends on
// how much the task has changed and not on how large the memory is.
//
//	Image   one memfd, sealed       [ a | b | . | c | . ]          . is a hole: zeroes that take no memory
//	                                  |   |   |   |   |
//	Space   reserved, never moves   [ a | B | . | c | . | . | X |  ...  | limit
//	                                 private mapping    ^ zero behind it
//
// Below and above each space lie 4 GiB of addresses that nobody can touch, its guards: an access of compiled code that
// misses the memory by what 32 bits can say is a fault, and not a write into somebody else's memory. They cost a mapping
// or two for each space and addresses, of which a process of 64 bits has enough for some 14,000 spaces; where there are
// none left, a space is made without guards.
//
// An [Image] is the memory of an instance that is ready for its first task. A [Space] is where the memory of one
// instance lies: the image is mapped privately in front, so that all spaces of an image share the pages that
// nobody writes, and what is behind it reads as zero. A write gives the space a page of its own (B and X).
// [Space.Reset] finds these pages and copies the image back into those that differ.
//
// How they are found is a [Mode], best first:
//
//	Scan     the PAGEMAP_SCAN ioctl: one call reports the ranges of own pages (Linux 6.7 and later)
//	Pagemap  /proc/self/pagemap: eight bytes for each page, own or not
//	Copy     no question asked: everything is compared
//	New      no reset at all: a new instance for each task
//
// # Failure
//
// A page that is not found would be the data of one task in the hands of the next. So no mode is believed:
// [Probe] tries each on a memory of its own, and only a mode that reports exactly the pages written there is
// usable. A call that fails later is an error of Reset, and the caller discards the instance: its contents are
// then neither old nor new.
//
// Whatever Reset decides about pages that are kept or given back changes its cost and [Space.Held], and never
// the contents.
package snapshot
