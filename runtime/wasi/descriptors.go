package wasi

import "github.com/tetratelabs/wazero/api"

const (
	// preopened is the descriptor of the root directory: the first one at which programs look for a directory.
	preopened = 3
	// maxOpen bounds the open descriptors, including the standard streams.
	maxOpen = 1024
)

// kind is what a descriptor refers to.
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
	node      *node  // of a file or directory
	offset    int64  // in a file, at least 0
}

// descriptor returns an open descriptor, or nil. The pointer is valid until the next descriptor is opened.
func (s *System) descriptor(fd uint64) *descriptor {
	if number := uint32(fd); uint64(number) < uint64(len(s.open)) && s.open[number].kind != closed {
		return &s.open[number]
	}
	return nil
}

// newDescriptor opens the lowest free number.
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

// fdClose is fd_close(fd).
func (s *System) fdClose(_ api.Memory, a []uint64) errno {
	d := s.descriptor(a[0])
	if d == nil {
		return errnoBadf
	}
	*d = descriptor{}
	return errnoSuccess
}

// fdRenumber is fd_renumber(from, to). Both must be open, so that a guest cannot make the table as long as it likes.
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

// fdAdvise is fd_advise(fd, offset, len, advice). Advice has no effect, since files are in memory.
func (s *System) fdAdvise(_ api.Memory, a []uint64) errno {
	_, e := s.seekable(a[0])
	if e == errnoSuccess && (uint32(a[3]) > maxAdvice || int64(a[1]) < 0 || int64(a[2]) < 0 || int64(a[1]+a[2]) < 0) {
		return errnoInval
	}
	return e
}

// fdPrestatGet is fd_prestat_get(fd, result prestat): tag (0, a directory) and length of the name.
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

// fdPrestatDirName is fd_prestat_dir_name(fd, path, path_len).
func (s *System) fdPrestatDirName(mem api.Memory, a []uint64) errno {
	if d := s.descriptor(a[0]); d == nil || !d.preopened {
		return errnoBadf
	}
	if uint32(a[2]) < uint32(len(rootName)) {
		return errnoNametoolong
	}
	return put(mem, uint32(a[1]), []byte(rootName))
}
