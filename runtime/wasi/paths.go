package wasi

import (
	"bytes"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"
)

// Flags of path_open and of path lookups.
const (
	oflagCreat     = 1
	oflagDirectory = 2
	oflagExcl      = 4
	oflagTrunc     = 8
	allOflags      = 15

	allLookupflags = 1 // follow symbolic links; there are none
)

// reach follows a path, which lies in the guest's memory, from an open directory. Like walk, it returns nil without an
// error if only the last name does not exist.
func (s *System) reach(mem api.Memory, fd, pointer, length uint64) (*node, errno) {
	d := s.descriptor(fd)
	switch {
	case d == nil:
		return nil, errnoBadf
	case d.kind != directory:
		return nil, errnoNotdir
	}
	path, ok := view(mem, uint32(pointer), uint64(uint32(length)))
	switch {
	case !ok:
		return nil, errnoFault
	case len(path) == 0:
		return nil, errnoNoent
	case len(path) > maxPath:
		return nil, errnoNametoolong
	}
	s.host.Spend(len(path))
	switch {
	case bytes.IndexByte(path, 0) >= 0:
		return nil, errnoInval
	case !utf8.Valid(path):
		return nil, errnoIlseq
	case path[0] == '/':
		return nil, errnoPerm
	}
	return s.walk(d.node, path)
}

// find is reach for a path that must exist.
func (s *System) find(mem api.Memory, fd, pointer, length uint64) (*node, errno) {
	n, e := s.reach(mem, fd, pointer, length)
	if n == nil && e == errnoSuccess {
		return nil, errnoNoent
	}
	return n, e
}

// pathOpen implements path_open(fd, dirflags, path, path_len, oflags, rights, inherited_rights, fdflags, result fd).
// Only the rights to write matter: WASI has given up the other rights.
func (s *System) pathOpen(mem api.Memory, a []uint64) errno {
	oflags, fdflags := uint32(a[4]), uint32(a[7])
	n, e := s.reach(mem, a[0], a[2], a[3])
	if e != errnoSuccess {
		return e
	}
	if uint32(a[1])&^allLookupflags != 0 || oflags&^allOflags != 0 || fdflags&^allFdflags != 0 ||
		oflags&oflagCreat != 0 && oflags&oflagDirectory != 0 {
		return errnoInval
	}
	if _, ok := view(mem, uint32(a[8]), 4); !ok {
		return errnoFault
	}
	if e := mayOpen(n, oflags, a[5]); e != errnoSuccess {
		return e
	}
	d := descriptor{kind: file, node: n, flags: uint16(fdflags)}
	if n.directory() {
		d.kind = directory
	}
	number, e := s.newDescriptor(d)
	if e != errnoSuccess {
		return e
	}
	return put32(mem, uint32(a[8]), number)
}

// mayOpen returns errnoSuccess if the guest is allowed to open the node n, and otherwise the error. If n is nil, the
// path does not exist.
func mayOpen(n *node, oflags uint32, rights uint64) errno {
	writes := oflags&oflagTrunc != 0 || rights&rightsToWrite != 0 && oflags&oflagDirectory == 0
	switch {
	case n == nil && oflags&oflagCreat == 0:
		return errnoNoent
	case n == nil:
		return errnoRofs
	case oflags&oflagCreat != 0 && oflags&oflagExcl != 0:
		return errnoExist
	case oflags&oflagDirectory != 0 && !n.directory():
		return errnoNotdir
	case n.directory() && (writes || oflags&oflagCreat != 0):
		return errnoIsdir
	case writes:
		return errnoRofs
	}
	return errnoSuccess
}

// pathFilestatGet implements path_filestat_get(fd, flags, path, path_len, result filestat).
func (s *System) pathFilestatGet(mem api.Memory, a []uint64) errno {
	n, e := s.find(mem, a[0], a[2], a[3])
	switch {
	case e != errnoSuccess:
		return e
	case uint32(a[1])&^allLookupflags != 0:
		return errnoInval
	}
	return putFilestat(mem, uint32(a[4]), treeDevice, n, filetype(n))
}

// pathReadlink implements path_readlink(fd, path, path_len, buf, buf_len, result bufused). There are no links.
func (s *System) pathReadlink(mem api.Memory, a []uint64) errno {
	if _, e := s.find(mem, a[0], a[1], a[2]); e != errnoSuccess {
		return e
	}
	_, buffer := view(mem, uint32(a[3]), uint64(uint32(a[4])))
	if _, ok := view(mem, uint32(a[5]), 4); !ok || !buffer {
		return errnoFault
	}
	return errnoInval
}
