package wasi

import "github.com/tetratelabs/wazero/api"

const (
	// preopened is the descriptor of the root directory: the first number at which programs look for a directory.
	preopened = 3
	// maxOpen is the maximum number of open descriptors, including the standard streams.
	maxOpen = 1024
)

// kind is the kind of object that a descriptor refers to.
type kind uint8

const (
	closed kind = iota
	stdin
	stdout
	stderr
	file
	directory
)

// stream reports whether k is a standard stream, which cannot seek.
func (k kind) stream() bool { return k >= stdin && k <= stderr }

type descriptor struct {
	kind      kind
	preopened bool
	flags     uint16 // as the guest set them; without effect, because files never change
	node      *node  // the file or directory; nil for a stream
	offset    int64  // position in a file, at least 0
}

// descriptor returns an open descriptor, or nil. The pointer is valid until the next descriptor is opened.
func (s *System) descriptor(fd uint64) *descriptor {
	if number := uint32(fd); uint64(number) < uint64(len(s.open)) && s.open[number].kind != closed {
		return &s.open[number]
	}
	return nil
}

// newDescriptor assigns the lowest free number to an open descriptor.
func (s *System) newDescriptor(d descriptor) (uint32, errno) {
	for number := range s.open {
		if s.open[number].kind == closed {
			s.open[number] = d
			return uint32(number), errnoSuccess
		}
	}
	if len(s.open) == maxOpen {
		return 0, errnoMfile
	}
	s.open = append(s.open, d)
	return uint32(len(s.open) - 1), errnoSuccess
}

// fdClose implements fd_close(fd).
func (s *System) fdClose(_ api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	if d == nil {
		return errnoBadf
	}
	*d = descriptor{}
	return errnoSuccess
}

// fdRenumber implements fd_renumber(from, to). Both descriptors must be open: otherwise a guest could make the table of
// descriptors arbitrarily long.
func (s *System) fdRenumber(_ api.Memory, a []uint64) errno {
	from, to := s.descriptor(a[0]), s.descriptor(a[1])
	if from == nil || to == nil {
		return errnoBadf
	}
	if from != to {
		*to = *from
		*from = descriptor{}
	}
	return errnoSuccess
}

// maxAdvice is the greatest advice of fd_advise: noreuse.
const maxAdvice = 5

// fdAdvise implements fd_advise(fd, offset, len, advice). Advice has no effect, since files are in memory.
func (s *System) fdAdvise(_ api.Memory, a []uint64) errno {
	_, e := s.seekable(a[0])
	if e == errnoSuccess && (uint32(a[3]) > maxAdvice || int64(a[1]) < 0 || int64(a[2]) < 0 || int64(a[1]+a[2]) < 0) {
		return errnoInval
	}
	return e
}

// fdPrestatGet implements fd_prestat_get(fd, result prestat). The prestat is the tag 0, for a directory, and the length
// of the directory's name.
func (s *System) fdPrestatGet(mem api.Memory, a []uint64) errno {
	if d := s.descriptor(a[0]); d == nil || !d.preopened {
		return errnoBadf
	}
	var prestat [8]byte
	le.PutUint32(prestat[4:], uint32(len(rootName)))
	return put(mem, uint32(a[1]), prestat[:])
}

// rootName is the path of the preopened directory.
const rootName = "/"

// fdPrestatDirName implements fd_prestat_dir_name(fd, path, path_len).
func (s *System) fdPrestatDirName(mem api.Memory, a []uint64) errno {
	if d := s.descriptor(a[0]); d == nil || !d.preopened {
		return errnoBadf
	}
	if uint32(a[2]) < uint32(len(rootName)) {
		return errnoNametoolong
	}
	return put(mem, uint32(a[1]), []byte(rootName))
}
