//go:build !linux && !darwin

package snapshot

// reserve takes the memory from Go's heap where no mapping is implemented. Go gets it from the
// operating system zeroed and untouched, so a large reservation is cheap there as well. There are no guards.
func reserve(size uint64) (memory, all []byte, err error) {
	memory = make([]byte, size)
	return memory, memory, nil
}

func clean(memory []byte) error {
	clear(memory)
	return nil
}

func unmap([]byte) error { return nil }
