package wasi

import (
	"cmp"

	"github.com/tetratelabs/wazero/api"
)

// The functions in this file would change a writable file system. Here they only check their arguments, and return rofs
// if the arguments are valid.

// Bits of fst_flags: set the time of access or modification, to a value or to the present time.
const (
	fstflagAtim    = 1
	fstflagAtimNow = 2
	fstflagMtim    = 4
	fstflagMtimNow = 8
	allFstflags    = 15
)

func validFstflags(flags uint64) bool {
	f := uint32(flags)
	return f&^allFstflags == 0 && f&(fstflagAtim|fstflagAtimNow) != fstflagAtim|fstflagAtimNow &&
		f&(fstflagMtim|fstflagMtimNow) != fstflagMtim|fstflagMtimNow
}

// fdAllocate implements fd_allocate(fd, offset, len).
func (s *System) fdAllocate(_ api.Memory, a []uint64) errno {
	_, e := s.seekable(a[0])
	switch {
	case e != errnoSuccess:
		return e
	case int64(a[1]) < 0 || int64(a[2]) <= 0:
		return errnoInval
	case int64(a[1]+a[2]) < 0:
		return errnoFbig
	}
	return errnoRofs
}

// fdFilestatSetSize implements fd_filestat_set_size(fd, size).
func (s *System) fdFilestatSetSize(_ api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	switch {
	case d == nil || d.kind == directory:
		return errnoBadf
	case d.kind.stream() || int64(a[1]) < 0:
		return errnoInval
	}
	return errnoRofs
}

// fdFilestatSetTimes implements fd_filestat_set_times(fd, atim, mtim, fst_flags).
func (s *System) fdFilestatSetTimes(_ api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	switch {
	case d == nil:
		return errnoBadf
	case !validFstflags(a[3]):
		return errnoInval
	case d.kind.stream():
		return errnoNotsup
	}
	return errnoRofs
}

// pathFilestatSetTimes implements path_filestat_set_times(fd, flags, path, path_len, atim, mtim, fst_flags).
func (s *System) pathFilestatSetTimes(mem api.Memory, a []uint64) errno {
	_, e := s.find(mem, a[0], a[2], a[3])
	if e == errnoSuccess && (uint32(a[1])&^allLookupflags != 0 || !validFstflags(a[6])) {
		return errnoInval
	}
	return cmp.Or(e, errnoRofs)
}

// pathCreateDirectory implements path_create_directory(fd, path, path_len). It refuses to create anything.
func (s *System) pathCreateDirectory(mem api.Memory, a []uint64) errno {
	n, e := s.reach(mem, a[0], a[1], a[2])
	if e == errnoSuccess && n != nil {
		return errnoExist
	}
	return cmp.Or(e, errnoRofs)
}

// pathRemoveDirectory implements path_remove_directory(fd, path, path_len).
func (s *System) pathRemoveDirectory(mem api.Memory, a []uint64) errno {
	n, e := s.find(mem, a[0], a[1], a[2])
	if e == errnoSuccess && !n.directory() {
		return errnoNotdir
	}
	return cmp.Or(e, errnoRofs)
}

// pathUnlinkFile implements path_unlink_file(fd, path, path_len).
func (s *System) pathUnlinkFile(mem api.Memory, a []uint64) errno {
	n, e := s.find(mem, a[0], a[1], a[2])
	if e == errnoSuccess && n.directory() {
		return errnoIsdir
	}
	return cmp.Or(e, errnoRofs)
}

// pathLink implements path_link(old_fd, old_flags, old_path, old_path_len, new_fd, new_path, new_path_len).
func (s *System) pathLink(mem api.Memory, a []uint64) errno {
	n, e := s.find(mem, a[0], a[2], a[3])
	switch {
	case e != errnoSuccess:
		return e
	case uint32(a[1])&^allLookupflags != 0:
		return errnoInval
	}
	if e := s.pathCreateDirectory(mem, a[4:]); e != errnoRofs {
		return e
	}
	if n.directory() {
		return errnoPerm // in POSIX, a directory has only one name
	}
	return errnoRofs
}

// pathRename implements path_rename(fd, old_path, old_path_len, new_fd, new_path, new_path_len). The new path can
// exist.
func (s *System) pathRename(mem api.Memory, a []uint64) errno {
	if _, e := s.find(mem, a[0], a[1], a[2]); e != errnoSuccess {
		return e
	}
	_, e := s.reach(mem, a[3], a[4], a[5])
	return cmp.Or(e, errnoRofs)
}

// pathSymlink implements path_symlink(old_path, old_path_len, fd, new_path, new_path_len). The old path is not looked
// up.
func (s *System) pathSymlink(mem api.Memory, a []uint64) errno {
	if s.descriptor(a[2]) == nil {
		return errnoBadf
	}
	if _, ok := view(mem, uint32(a[0]), uint64(uint32(a[1]))); !ok {
		return errnoFault
	}
	return s.pathCreateDirectory(mem, a[2:])
}
