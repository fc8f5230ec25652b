package runtime

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// memory is the linear memory of one instance. It reserves its limit as address space at once, so that the memory never
// moves. Growing it costs nothing: the operating system adds a page at the page's first use.
//
// wazero calls Free when an instance is closed. A later read of an unmapped page would be a fault that Go cannot
// recover, so Free does nothing: instance.close releases the memory after the last call.
type memory struct {
	module   api.Module      // the module with this memory
	limit    uint64          // maximum of this memory and beside together, in bytes
	beside   *memory         // the other memory of the instance; nil if there is none
	declared uint64          // the maximum that the module declares, in bytes; MaxMemory if it declares none
	space    *snapshot.Space // nil before Allocate
	size     uint64          // size as the guest sees it, in bytes
	used     uint64          // the largest size since the last reset, in bytes
	shrunk   bool            // true while shrink runs
	refused  uint64          // the largest size over the limit that the guest asked for in this call
	err      error           // error of the reservation: wazero panics then, and instantiate returns this error
}

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(_, maximum uint64) experimental.LinearMemory {
	m.space, m.err = snapshot.Reserve(min(maximum, m.declared, m.limit))
	return m
}

// Reallocate implements experimental.LinearMemory. For a size over the limit it returns nil, and the guest gets -1.
func (m *memory) Reallocate(size uint64) []byte {
	switch {
	case m.err != nil:
		return nil
	case m.shrunk:
		return m.contents()
	case size > uint64(len(m.space.Bytes())), size > m.room():
		if room := m.room(); size > room {
			m.refused = max(m.refused, size+m.limit-room)
		}
		return nil
	}
	m.size, m.used = size, max(m.used, size)
	return m.contents()
}

// room returns the largest size that the memory can have now.
func (m *memory) room() uint64 {
	if m.beside == nil {
		return m.limit
	}
	return m.limit - min(m.limit, m.beside.size)
}

// Free implements experimental.LinearMemory. It does nothing: see memory.
func (m *memory) Free() {}

func (m *memory) contents() []byte { return m.space.Bytes()[:m.size] }

// adopt grows the memory to the size of a snapshot, and maps the snapshot.
func (m *memory) adopt(image *snapshot.Image) error {
	if missing := uint32((image.Size() - m.size) / wasm.PageSize); missing > 0 {
		if _, ok := m.module.Memory().Grow(missing); !ok {
			return fmt.Errorf("memory does not grow to the %d bytes of the snapshot", image.Size())
		}
	}
	m.used, m.refused = m.size, 0
	return m.space.Map(image)
}

// reset restores the snapshot.
func (m *memory) reset(mode snapshot.Mode, image *snapshot.Image) error {
	if err := m.space.Reset(mode, m.used); err != nil {
		return err
	}
	m.used, m.refused = image.Size(), 0
	return m.shrink(image.Size())
}

// shrink sets a grown memory back to size. wazero cannot shrink a memory, but accepts any size that the allocator
// returns. So shrink lets the memory grow by a page, for which the rewritten module's maximum always has room, and
// Reallocate returns the smaller size.
func (m *memory) shrink(size uint64) error {
	if m.size == size {
		return nil
	}
	m.shrunk = true
	defer func() { m.shrunk = false }()
	m.size = size
	if _, ok := m.module.Memory().Grow(1); !ok {
		return errors.New("memory cannot be shrunk")
	}
	return nil
}

// release unmaps the memory. Calls must not use the instance after that.
func (m *memory) release() error {
	if m.space == nil {
		return nil
	}
	defer func() { m.space = nil }()
	return m.space.Release()
}
