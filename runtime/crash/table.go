package crash

import (
	"encoding/binary"
	"sync"
	"unsafe"
)

const (
	entrySize  = 512     // bytes
	maxEntries = 1 << 14 // instances beyond it are not named
	tableSize  = entrySize * maxEntries

	// What an entry holds: whether its guest computes, where its memory lies with the guards around it, and the names.
	offsetComputes = 0
	offsetFrom     = 8
	offsetTo       = 16
	offsetNames    = 24
	maxName        = (entrySize-offsetNames)/names - 1 // bytes
	names          = 3                                 // plugin, tenant, task
)

// Table is what a monitor needs to know of the guests that run. Its methods may be called from several goroutines at
// once; a nil Table takes everything and keeps nothing.
type Table struct {
	memory []byte // shared with the monitor

	mu   sync.Mutex
	free []int // entries that were given back
	next int   // the first entry that was never used
}

// Entry is the part of a Table that one instance writes to. It belongs to one goroutine at a time. A nil Entry is that
// of an instance beyond what a Table can hold.
type Entry struct {
	table *Table
	at    int // its number
	bytes []byte
}

// Add makes an entry for an instance whose memory, guards included, is all. The caller gives it back by Remove.
func (t *Table) Add(all []byte) *Entry {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.next
	switch n := len(t.free); {
	case n > 0:
		at, t.free = t.free[n-1], t.free[:n-1]
	case t.next == maxEntries:
		return nil
	default:
		t.next++
	}
	e := &Entry{table: t, at: at, bytes: t.memory[at*entrySize:][:entrySize]}
	from := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(all))))
	e.put(offsetFrom, from)
	e.put(offsetTo, from+uint64(len(all)))
	return e
}

// Remove gives the entry back. It must not be used any more.
func (e *Entry) Remove() {
	if e == nil {
		return
	}
	clear(e.bytes)
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	e.table.free = append(e.table.free, e.at)
}

// Name says for which task the instance runs. What is longer than maxName bytes is cut.
func (e *Entry) Name(plugin, tenant, task string) {
	if e == nil {
		return
	}
	at := e.bytes[offsetNames:]
	for _, name := range [names]string{plugin, tenant, task} {
		at[0] = byte(copy(at[1:maxName+1], name))
		at = at[maxName+1:]
	}
}

// Computes says whether compiled code of the guest is executed from now on.
func (e *Entry) Computes(yes bool) {
	if e == nil {
		return
	}
	flag := byte(0)
	if yes {
		flag = 1
	}
	e.bytes[offsetComputes] = flag
}

func (e *Entry) put(at int, n uint64) { binary.LittleEndian.PutUint64(e.bytes[at:], n) }

// victim is an entry as the monitor reads it.
type victim struct {
	plugin, tenant, task string
	computes             bool
	from, to             uint64
}

// victims reads a table.
func victims(table []byte) (all []victim) {
	for ; len(table) >= entrySize; table = table[entrySize:] {
		v := victim{
			computes: table[offsetComputes] != 0,
			from:     binary.LittleEndian.Uint64(table[offsetFrom:]), to: binary.LittleEndian.Uint64(table[offsetTo:]),
		}
		at := table[offsetNames:]
		for _, name := range [names]*string{&v.plugin, &v.tenant, &v.task} {
			*name = string(at[1 : 1+min(int(at[0]), maxName)])
			at = at[maxName+1:]
		}
		if v.plugin != "" {
			all = append(all, v)
		}
	}
	return all
}
