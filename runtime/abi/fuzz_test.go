package abi

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
)

// FuzzFunctions calls functions one after the other with any arguments. Each call is a byte that
// chooses the function and 4 for each parameter; a parameter of 64 bits is the 4 with their sign. The
// memory holds the same bytes. Whatever they are, nothing panics but the host that ends the guest; an
// answer is a length or an errno; nothing is written but where the arguments say; and no view is kept:
// what the host holds stays as it was when the memory changes.
func FuzzFunctions(f *testing.F) {
	functions := Functions()
	number := map[string]byte{}
	for i, function := range functions {
		number[function.Name] = byte(i)
	}
	call := func(name string, arguments ...int32) []byte {
		b := []byte{number[name]}
		for _, argument := range arguments {
			b = binary.LittleEndian.AppendUint32(b, uint32(argument))
		}
		return b
	}
	for _, seed := range [][]byte{
		nil,
		call("input_read", 0, 100, 16),
		call("input_read", 2, 65530, 7),
		call("input_read", -1, -1, -1),
		append(call("task_text", 0), call("result_read", 1, 65530, 6)...),
		append(call("task_text", 4), call("result_read", 0, 0, 65536)...),
		append(call("output_write", 0, 60), call("output_write", 0, 60)...),
		append(call("error_set", 0, 5000), call("error_set", 65535, 2)...),
		call("retry_after", -1),
		call("task_number", 2, 65529),
		call("clock", 1, 65528),
		append(call("random", 60000, 5536), call("cancelled")...),
		call("random", 0, 65537),
	} {
		f.Add(seed, byte(Running))
		f.Add(seed, byte(Warming))
	}
	mem := newMemory(f, 1) // of one call after the other
	all, ok := mem.Read(0, mem.Size())
	if !ok {
		f.Fatal("no memory")
	}
	before := make([]byte, len(all))
	f.Fuzz(func(t *testing.T, program []byte, stage byte) {
		clear(all)
		copy(all, program)
		host := &account{limit: 100, budget: 8 << 20}
		input := []byte("an input")
		s := newSystem(Config{
			Host: host, Reporter: host, Stage: Stage(stage % 3), Input: input, Started: time.Now(), Services: (&fakeServices{}).set(), Counters: &Counters{},
			Task: Task{ID: "7f", Queue: "queue", PreviousError: "an error", Attempt: 1, Deadline: time.Now()},
		})
		for calls := 0; len(program) > 0 && calls < 100; calls++ { // more would take seconds
			function := functions[int(program[0])%len(functions)]
			program = program[1:]
			stack := make([]uint64, max(1, len(function.Params)))
			for i, kind := range function.Params {
				var argument [4]byte
				program = program[copy(argument[:], program):]
				if stack[i] = uint64(binary.LittleEndian.Uint32(argument[:])); kind == i64 {
					stack[i] = uint64(int64(int32(stack[i])))
				}
			}
			a := append([]uint64(nil), stack...)
			copy(before, all)
			p := ending(func() { function.Call(s, mem, stack) })
			if p != nil && p != errBroke {
				t.Fatalf("%s%x panics: %v", function.Name, a, p)
			}
			if p == errBroke {
				break
			}
			answer := errno(int32(uint32(stack[0])))
			if answer < errnoLimit || stack[0]>>32 != 0 {
				t.Fatalf("%s%x answers %#x", function.Name, a, stack[0])
			}
			from, n := written(function.Name, a, answer)
			if !bytes.Equal(before[:from], all[:from]) || !bytes.Equal(before[from+n:], all[from+n:]) {
				t.Fatalf("%s%x = %d wrote outside of the %d bytes at %d", function.Name, a, answer, n, from)
			}
		}
		text, _ := s.Error()
		output := host.output.String()
		for i := range all {
			all[i] ^= 0xff
		}
		if again, _ := s.Error(); again != text || host.output.String() != output || string(input) != "an input" {
			t.Errorf("what the host holds changed with the guest's memory")
		}
		if len(text) > maxError || len(output) > 100 || s.RetryAfter() < 0 || s.RetryAfter() > maxDelay {
			t.Errorf("error %q, output %q, retry after %v", text, output, s.RetryAfter())
		}
	})
}

// written is where a call may have written.
func written(name string, a []uint64, answer errno) (from, n uint64) {
	switch {
	case answer < 0:
		return 0, 0
	case name == "result_read" || name == "input_read":
		from, n = a[1], uint64(answer)
	case name == "task_number" || name == "clock":
		from, n = a[1], 8
	case name == "kv_increment":
		from, n = a[5], 8
	case name == "random":
		from, n = a[0], a[1]
	}
	if n == 0 { // the pointer may be any
		return 0, 0
	}
	return from, n
}
