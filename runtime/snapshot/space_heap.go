//go:build !linux && !darwin

package snapshot

// reserve allocates the memory on Go's heap where mapping is not implemented. Go gets it from the operating system
// zeroed and untouched, so a large reservation is cheap there too. There are no guards.
func reserve(size uint64) (memory, all []byte, err error) {
	memory = make([]byte, size)
	return memory, memory, nil
}

func clean(memory []byte) error {
	clear(memory)
	return nil
}

func unmap([]byte) error { return nil }
