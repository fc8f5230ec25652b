package runtime

import (
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/snapshot"
)

// memory is the linear memory of one instance, and holds it to the limit.
//
// The whole limit is reserved as address space at once, so that the memory never moves and growing
// costs nothing: the operating system gives a page when it is first touched.
//
// wazero calls Free as soon as an instance is closed. A later read of a page that is gone would be a fault
// that Go cannot recover from, so Free does nothing here, whoever closes what and when: who made the instance
// releases the memory when its last call has returned.
type memory struct {
	limit    uint64
	declared uint64          // what the module itself declares as its maximum, or MaxMemory
	space    *snapshot.Space // nil before there is one
	size     uint64          // what the guest has
	used     uint64          // the most that it had since the last reset
	shrunk   bool            // the guest is being given less: see instance.shrink
	// refused tells that the guest asked for more than the limit and got -1.
	refused bool
	// err is why the reservation failed; wazero panics then, and instantiate looks here first.
	err error
}

var (
	_ experimental.MemoryAllocator = (*memory)(nil)
	_ experimental.LinearMemory    = (*memory)(nil)
)

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(_, maximum uint64) experimental.LinearMemory {
	m.space, m.err = snapshot.Reserve(min(maximum, m.declared, m.limit))
	return m
}

// Reallocate implements experimental.LinearMemory. It returns nil, which is -1 to the guest, for
// what is over the limit.
func (m *memory) Reallocate(size uint64) []byte {
	switch {
	case m.err != nil:
		return nil
	case m.shrunk:
		return m.contents()
	case size > uint64(len(m.space.Bytes())):
		m.refused = m.refused || size > m.limit
		return nil
	}
	m.size, m.used = size, max(m.used, size)
	return m.contents()
}

// Free implements experimental.LinearMemory and keeps the memory: see there.
func (m *memory) Free() {}

// contents is what the guest has.
func (m *memory) contents() []byte { return m.space.Bytes()[:m.size] }

// adopt maps the snapshot, which has the memory's size.
func (m *memory) adopt(image *snapshot.Image) error {
	m.used, m.refused = m.size, false
	return m.space.Map(image)
}

// reset restores the snapshot. The guest's memory does not shrink.
func (m *memory) reset(mode snapshot.Mode, image *snapshot.Image) error {
	err := m.space.Reset(mode, m.used)
	m.used, m.refused = image.Size(), false
	return err
}

// release gives the memory back. No call may hold the instance any more.
func (m *memory) release() error {
	space := m.space
	if space == nil {
		return nil
	}
	m.space = nil
	return space.Release()
}
