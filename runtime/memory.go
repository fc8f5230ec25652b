package runtime

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one instance, and holds it to the call's limit.
//
// The whole limit is reserved as address space at once, so that the memory never moves and growing
// costs nothing: the operating system gives a page when it is first touched.
//
// wazero calls Free as soon as an instance is closed. A later read of a page that is gone would be a fault
// that Go cannot recover from, so Free does nothing here, whoever closes what and when: the call that made
// the memory releases it when it has returned.
type memory struct {
	limit    uint64
	declared uint64 // what the module itself declares as its maximum, or MaxMemory
	reserved []byte
	// refused tells that the guest asked for more than the limit and got -1.
	refused bool
	// err is why the reservation failed; wazero panics then, and Run looks here first.
	err error
}

var (
	_ experimental.MemoryAllocator = (*memory)(nil)
	_ experimental.LinearMemory    = (*memory)(nil)
)

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(_, maximum uint64) experimental.LinearMemory {
	m.reserved, m.err = reserve(min(maximum, m.declared, m.limit))
	return m
}

// Reallocate implements experimental.LinearMemory. It returns nil, which is -1 to the guest, for
// what is over the limit.
func (m *memory) Reallocate(size uint64) []byte {
	if m.err != nil {
		return nil
	}
	if size > uint64(len(m.reserved)) {
		m.refused = m.refused || size > m.limit
		return nil
	}
	return m.reserved[:size]
}

// Free implements experimental.LinearMemory and keeps the memory: see there.
func (m *memory) Free() {}

// release gives the memory back. No call may hold the instance any more.
func (m *memory) release() error {
	reserved := m.reserved
	m.reserved = nil
	return unreserve(reserved)
}
