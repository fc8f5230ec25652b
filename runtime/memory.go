package runtime

import (
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/snapshot"
)

// memory is the linear memory of one instance. It reserves its limit as address space at once, so that it never moves, and
// growing costs nothing: the operating system adds a page at its first use.
//
// wazero calls Free when an instance is closed. A later read of an unmapped page would be a fault that Go cannot recover, so
// Free does nothing: instance.close releases the memory after the last call.
type memory struct {
	limit    uint64
	declared uint64          // the maximum of the module, or MaxMemory
	space    *snapshot.Space // nil before there is one
	size     uint64          // of the guest's memory
	used     uint64          // the most that it had since the last reset
	shrunk   bool            // shrinking is under way: see instance.shrink
	refused  bool            // the guest asked for more than the limit, and got -1
	err      error           // of the reservation; wazero panics then, and instantiate looks here first
}

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(_, maximum uint64) experimental.LinearMemory {
	m.space, m.err = snapshot.Reserve(min(maximum, m.declared, m.limit))
	return m
}

// Reallocate implements experimental.LinearMemory. Over the limit it returns nil, which is -1 to the guest.
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

// Free implements experimental.LinearMemory. It does nothing: see memory.
func (m *memory) Free() {}

func (m *memory) contents() []byte { return m.space.Bytes()[:m.size] }

// adopt maps a snapshot of the memory's size.
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

// release gives the memory back. No call may use the instance any more.
func (m *memory) release() error {
	if m.space == nil {
		return nil
	}
	defer func() { m.space = nil }()
	return m.space.Release()
}
