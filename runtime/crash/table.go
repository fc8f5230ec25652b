package crash

import (
	"encoding/binary"
	"sync"
	"unsafe"
)

const (
	entrySize  = 512     // bytes
	maxEntries = 1 << 14 // the maximum number of entries; further instances are not named
	tableSize  = entrySize * maxEntries

	// Offsets of the fields of an entry: whether the guest computes, the addresses at which its memory with the guard
	// pages begins and ends, and the names of plugin, tenant and task.
	offsetComputes = 0
	offsetFrom     = 8
	offsetTo       = 16
	offsetNames    = 24
	maxName        = (entrySize-offsetNames)/names - 1 // bytes
	names          = 3                                 // plugin, tenant, task
)

// Table records for a monitor which guests compute. Its methods are safe for concurrent use. A nil Table records
// nothing.
type Table struct {
	memory []byte // shared with the monitor

	mu   sync.Mutex
	free []int // numbers of removed entries; guarded by mu
	next int   // number of the first entry that was never used; guarded by mu
}

// Entry is the part of a Table for one instance. Only one goroutine uses it at a time. An instance for which the Table
// has no room has a nil Entry, which records nothing.
type Entry struct {
	table *Table
	at    int // the entry's number
	bytes []byte
}

// Add adds an entry for an instance, or returns nil if the Table is full. memory is the instance's memory with its
// guard pages. The caller removes the entry.
func (t *Table) Add(memory []byte) *Entry {
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
	from := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
	binary.LittleEndian.PutUint64(e.bytes[offsetFrom:], from)
	binary.LittleEndian.PutUint64(e.bytes[offsetTo:], from+uint64(len(memory)))
	return e
}

// Remove removes the entry, which must not be used any more.
func (e *Entry) Remove() {
	if e == nil {
		return
	}
	clear(e.bytes)
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	e.table.free = append(e.table.free, e.at)
}

// Begin names the task whose guest runs from now on. It cuts each name to maxName bytes.
func (e *Entry) Begin(plugin, tenant, task string) {
	if e == nil {
		return
	}
	at := e.bytes[offsetNames:]
	for _, name := range [names]string{plugin, tenant, task} {
		at[0] = byte(copy(at[1:maxName+1], name))
		at = at[maxName+1:]
	}
	e.Computes(true)
}

// Computes records whether compiled code of the guest runs from now on.
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

// victim is an entry that the monitor has read.
type victim struct {
	plugin, tenant, task string
	computes             bool
	from, to             uint64
}

// victims returns the entries of a table that name a task.
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
