package wasi

import (
	"bytes"
	"testing"
)

// FuzzFunctions calls functions one after the other with any arguments. Each call is a byte that
// chooses the function and 4 for each parameter; a parameter of 64 bits is the 4 with their sign. The
// memory holds the same bytes. Whatever they are, nothing panics but the host that ends the guest, an
// answer is an errno, and no view is kept: what the host holds stays as it was when the memory changes.
func FuzzFunctions(f *testing.F) {
	functions := Functions()
	number := map[string]byte{}
	for i, function := range functions {
		number[function.Name] = byte(i)
	}
	call := func(name string, arguments ...int32) []byte {
		b := []byte{number[name]}
		for _, argument := range arguments {
			b = le.AppendUint32(b, uint32(argument))
		}
		return b
	}
	open := call("path_open", 3, 0, 40000, 1, 0, 2, 0, 0, 100)
	for _, seed := range [][]byte{
		nil,
		append([]byte("a\x00\x00"), call("fd_read", 0, 0, 1, 100)...),
		append(open, call("fd_read", 4, 0, 2, 100)...),
		append(open, call("fd_seek", 4, -1, 2, 100)...),
		append(open, call("fd_renumber", 4, 1)...),
		append(open, call("fd_pread", 4, 0, 1, 3, 100)...),
		append(call("fd_close", 0), open...),
		call("fd_write", 1, 0, 3, 100),
		call("fd_write", 2, 0, 1024, 65535),
		call("fd_readdir", 3, 200, 100, 1, 100),
		call("poll_oneoff", 0, 0, 2, 100),
		call("poll_oneoff", 0, 0, 0x10000000, 100),
		call("path_filestat_get", 3, 0, 40000, 5, 0),
		call("path_rename", 3, 40000, 1, 3, 40002, 3),
		call("args_get", 0, 4),
		call("random_get", 65000, 536),
		call("proc_exit", 1),
	} {
		f.Add(seed)
	}
	mem := newMemory(f, 1) // of one call after the other
	all, ok := mem.Read(0, mem.Size())
	if !ok {
		f.Fatal("no memory")
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		clear(all)
		copy(all, program)
		copy(all[40000:], "a\x00dir/../dir/one")
		c := Config{
			Host:  &recorder{budget: 8 << 20},
			Stdin: []byte("input"), Args: []string{"program"}, Env: []string{"A=B"},
			Files: tree(t), Checkpoint: []byte("state"),
		}
		s := newSystem(c)
		for len(program) > 0 {
			function := functions[int(program[0])%len(functions)]
			program = program[1:]
			stack := make([]uint64, max(1, len(function.Params)))
			for i, kind := range function.Params {
				var argument [4]byte
				program = program[copy(argument[:], program):]
				if stack[i] = uint64(le.Uint32(argument[:])); kind == i64 {
					stack[i] = uint64(int64(int32(stack[i])))
				}
			}
			p := ending(func() { function.Call(s, mem, stack) })
			if _, exits := p.(exited); p != nil && !exits && p != errBroke {
				t.Fatalf("%s%x panics: %v", function.Name, stack, p)
			}
			if p == nil && stack[0] > 76 { // ENOTCAPABLE is the last
				t.Fatalf("%s answers %d", function.Name, stack[0])
			}
			if p == errBroke {
				break
			}
		}
		if len(s.open) > maxOpen {
			t.Errorf("%d descriptors", len(s.open))
		}
		for i := range all {
			all[i] = 0xff
		}
		left := []byte("input")[len("input")-len(s.stdin):]
		if !bytes.Equal(s.stdin, left) || string(s.checkpoint.contents) != "state" || string(s.root.children["a"].contents) != "alpha" {
			t.Errorf("what the host holds changed with the guest's memory")
		}
	})
}
