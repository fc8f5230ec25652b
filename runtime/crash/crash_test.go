package crash

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// address is where memory begins, as Go writes it.
func address(memory []byte, offset uintptr) string {
	return strconv.FormatUint(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))+offset), 16)
}

// TestReport: who computed is named, and alone if the fault lies in the addresses of its memory.
func TestReport(t *testing.T) {
	t.Parallel()
	table := &Table{memory: make([]byte, tableSize)}
	first, second, idle := make([]byte, 100), make([]byte, 100), make([]byte, 100)
	for i, memory := range [][]byte{first, second, idle} {
		e := table.Add(memory)
		e.Begin("plugin"+strconv.Itoa(i), "acme", strings.Repeat("t", 150*i)+strconv.Itoa(i))
		e.Computes(i < 2)
	}
	gone := table.Add(make([]byte, 100))
	gone.Begin("gone", "acme", "9")
	gone.Remove()
	for name, test := range map[string]struct {
		text string
		want []string // what each line has
	}{
		"nothing":          {"", nil},
		"the second":       {"fatal error: fault\n[signal SIGSEGV: segmentation violation code=0x2 addr=0x" + address(second, 99) + " pc=0x7f]\n", []string{"SIGSEGV at 0x" + address(second, 99) + `) while plugin "plugin1"`}},
		"nobody's address": {"fatal error: fault\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x7f]\n", []string{`"plugin0" of tenant "acme" computed for task "0"`, `"plugin1"`}},
		"an idle one's":    {"[signal SIGBUS: bus error code=0x1 addr=0x" + address(idle, 0) + " pc=0x7f]\n", []string{"(SIGBUS", `"plugin1"`}},
		"asked for":        {"SIGQUIT: quit\nPC=0x7f m=0 sigcode=0\n\ngoroutine 0", nil},
		"no fault":         {"fatal error: concurrent map writes\n\ngoroutine 1", []string{"(fatal error: concurrent map writes)", `"plugin1"`}},
	} {
		got := report(test.text, table.memory)
		if len(got) != len(test.want) {
			t.Errorf("%s: %q, want %d lines", name, got, len(test.want))
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: %q does not say %q", name, got[i], want)
			}
		}
	}
	if got := report("fatal error: fault\n", make([]byte, tableSize)); len(got) != 1 || !strings.Contains(got[0], "no plugin is known to have computed") {
		t.Errorf("of a host without guests: %q", got)
	}
}

// TestTable: an entry that was given back is used again, and one more than there are is none.
func TestTable(t *testing.T) {
	t.Parallel()
	table := &Table{memory: make([]byte, tableSize)}
	all := make([]*Entry, 0, maxEntries)
	for range maxEntries {
		all = append(all, table.Add(nil))
	}
	if slices.Contains(all, nil) {
		t.Fatal("there are fewer entries than a table has")
	}
	over := table.Add(nil)
	over.Begin("a", "b", "c")
	over.Remove()
	all[7].Remove()
	if again := table.Add(nil); over != nil || again == nil {
		t.Errorf("an entry too many is %v, one in the place of another %v", over, again)
	}
	var none *Table
	none.Add(nil).Begin("a", "b", "c")
}

// BenchmarkEntry is what a task costs beside the rest: its names, and twice the flag.
func BenchmarkEntry(b *testing.B) {
	table := &Table{memory: make([]byte, tableSize)}
	e := table.Add(make([]byte, 100))
	for b.Loop() {
		e.Begin("thumbnails", "acme", "9cab1f4f-25c3-4abc-8dba-579da91756e9")
		e.Computes(true)
		e.Computes(false)
	}
}
