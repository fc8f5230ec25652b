//go:build !linux && !darwin

package snapshot

// reserve takes the memory from Go's heap where no mapping is implemented. Go gets it from the
// operating system zeroed and untouched, so a large reservation is cheap there as well.
func reserve(size uint64) ([]byte, error) { return make([]byte, size), nil }

func clean(memory []byte) error {
	clear(memory)
	return nil
}

func unmap([]byte) error { return nil }
