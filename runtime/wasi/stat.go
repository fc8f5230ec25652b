package wasi

import "github.com/tetratelabs/wazero/api"

// Types of files. Standard streams are of unknown type, like pipes in WASI. As character devices they would pass for a
// terminal: C would buffer output by lines, and Go programs would assume that no input is piped to them.
const (
	filetypeUnknown     = 0
	filetypeDirectory   = 3
	filetypeRegularFile = 4
)

// Rights, as bits in the order of the description.
const (
	rightFdDatasync = 1 << iota
	rightFdRead
	rightFdSeek
	rightFdFdstatSetFlags
	rightFdSync
	rightFdTell
	rightFdWrite
	rightFdAdvise
	rightFdAllocate
	rightPathCreateDirectory
	rightPathCreateFile
	rightPathLinkSource
	rightPathLinkTarget
	rightPathOpen
	rightFdReaddir
	rightPathReadlink
	rightPathRenameSource
	rightPathRenameTarget
	rightPathFilestatGet
	rightPathFilestatSetSize
	rightPathFilestatSetTimes
	rightFdFilestatGet
	rightFdFilestatSetSize
	rightFdFilestatSetTimes
	rightPathSymlink
	rightPathRemoveDirectory
	rightPathUnlinkFile
	rightPollFdReadwrite
)

const (
	rightsAny    = rightFdDatasync | rightFdSync | rightFdFdstatSetFlags | rightFdFilestatGet
	rightsStdin  = rightsAny | rightPollFdReadwrite | rightFdRead
	rightsOutput = rightsAny | rightPollFdReadwrite | rightFdWrite
	rightsFile   = rightsAny | rightPollFdReadwrite | rightFdRead | rightFdSeek | rightFdTell | rightFdAdvise

	// A directory also has rights to operations that always fail here, so that a guest learns that the file system is
	// read-only. Without these rights a C library would report a less helpful error.
	rightsDirectory = rightsAny | rightFdReaddir | rightFdFilestatSetTimes |
		rightPathCreateDirectory | rightPathCreateFile | rightPathLinkSource | rightPathLinkTarget | rightPathOpen |
		rightPathReadlink | rightPathRenameSource | rightPathRenameTarget | rightPathFilestatGet |
		rightPathFilestatSetSize | rightPathFilestatSetTimes | rightPathSymlink | rightPathRemoveDirectory |
		rightPathUnlinkFile

	// Files opened below a directory inherit all rights except the right to write. When wasi-libc opens a file, it does
	// not request rights that are not inherited; its function access reports a file as writable if the file has the right
	// to write. rightFdAllocate is inherited, because it shows that a file is opened for writing: wasi-libc, Go and Rust
	// request it only then.
	rightsInheriting = rightsDirectory | rightsFile | rightFdAllocate | rightFdFilestatSetSize
	rightsToWrite    = rightFdWrite | rightFdAllocate
)

// allFdflags are all flags of descriptors: append, dsync, nonblock, rsync, sync.
const allFdflags = 1<<5 - 1

// fdFdstatGet implements fd_fdstat_get(fd, result fdstat). The fdstat is filetype, flags, rights and inherited rights.
func (s *System) fdFdstatGet(mem api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	if d == nil {
		return errnoBadf
	}
	var fdstat [24]byte
	var base, inheriting uint64
	switch d.kind {
	case stdin:
		base = rightsStdin
	case stdout, stderr:
		base = rightsOutput
	case file:
		base = rightsFile
	default:
		base, inheriting = rightsDirectory, rightsInheriting
	}
	fdstat[0] = filetype(d.node)
	le.PutUint16(fdstat[2:], d.flags)
	le.PutUint64(fdstat[8:], base)
	le.PutUint64(fdstat[16:], inheriting)
	return put(mem, uint32(a[1]), fdstat[:])
}

// fdFdstatSetFlags implements fd_fdstat_set_flags(fd, flags). Flags are only stored: nothing blocks, and nothing has to
// be synchronized.
func (s *System) fdFdstatSetFlags(_ api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	if d == nil {
		return errnoBadf
	}
	flags := uint32(a[1])
	if flags&^allFdflags != 0 {
		return errnoInval
	}
	d.flags = uint16(flags)
	return errnoSuccess
}

// fdFilestatGet implements fd_filestat_get(fd, result filestat).
func (s *System) fdFilestatGet(mem api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	if d == nil {
		return errnoBadf
	}
	if d.node == nil {
		return putFilestat(mem, uint32(a[1]), streamDevice, &node{inode: uint64(d.kind)}, filetypeUnknown)
	}
	return putFilestat(mem, uint32(a[1]), treeDevice, d.node, filetype(d.node))
}

// Device numbers. The streams have one and the tree has another, because their inodes overlap.
const (
	streamDevice = 0
	treeDevice   = 1
)

// putFilestat writes device, inode, filetype, number of links and size. The three times after them are 0.
func putFilestat(mem api.Memory, pointer uint32, device uint64, n *node, filetype byte) errno {
	var filestat [64]byte
	le.PutUint64(filestat[0:], device)
	le.PutUint64(filestat[8:], n.inode)
	filestat[16] = filetype
	le.PutUint64(filestat[24:], 1)
	le.PutUint64(filestat[32:], uint64(len(n.contents)))
	return put(mem, pointer, filestat[:])
}

// filetype returns the type of a node. A nil node is a stream.
func filetype(n *node) byte {
	switch {
	case n == nil:
		return filetypeUnknown
	case n.directory():
		return filetypeDirectory
	}
	return filetypeRegularFile
}
