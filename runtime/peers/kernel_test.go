package peers

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/abi"
)

// kernel is a memory of Extism: ours, or the one that comes with its SDKs.
type kernel struct{ module api.Module }

func (k kernel) call(t *testing.T, name string, parameters ...uint64) uint64 {
	t.Helper()
	results, err := k.module.ExportedFunction(name).Call(t.Context(), parameters...)
	if err != nil {
		t.Fatalf("%s%v: %v", name, parameters, err)
	}
	if len(results) == 0 {
		return 0
	}
	return results[0]
}

// kernelCode has both kernels compiled: FuzzKernel would only compile otherwise.
var kernelCode = wazero.NewCompilationCache()

func kernelRuntime(t *testing.T) wazero.Runtime {
	rt := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfig().WithCompilationCache(kernelCode))
	t.Cleanup(func() { rt.Close(context.Background()) })
	return rt
}

func ourKernel(t *testing.T) kernel {
	rt := kernelRuntime(t)
	host := rt.NewHostModuleBuilder(abi.KernelImports)
	for _, f := range append(abi.ExtismFunctions(), abi.KernelGrow()) {
		host.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, kernel api.Module, stack []uint64) {
			if f.Name != "grow" {
				panic("the test calls none")
			}
			f.Call(nil, kernel.Memory(), stack)
		}), f.Params, f.Results).Export(f.Name)
	}
	if _, err := host.Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return newKernel(t, rt, abi.Kernel)
}

func theirKernel(t *testing.T) kernel {
	rt := kernelRuntime(t)
	binary, err := os.ReadFile(filepath.Join(sdkFolder(), "extism-runtime.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return newKernel(t, rt, binary)
}

func newKernel(t *testing.T, rt wazero.Runtime, binary []byte) kernel {
	t.Helper()
	module, err := rt.Instantiate(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	return kernel{module}
}

// block is one that both kernels have given.
type block struct {
	ours, theirs, size uint64
	bytes              []byte // that it must have
}

// FuzzKernel: our kernel answers what Extism's answers, whatever a plugin does with its blocks and beside them, but for the
// offsets themselves. No block overlaps another.
func FuzzKernel(f *testing.F) {
	f.Add([]byte("0a1b2c3d4e5f6g7h8i9j0a1b2c3d4e5f6g7h8i9j"))
	f.Add(bytes.Repeat([]byte{0, 200, 0, 7, 1, 0, 2, 3}, 40))
	f.Fuzz(func(t *testing.T, program []byte) {
		ours, theirs := ourKernel(t), theirKernel(t)
		var blocks []*block
		same := func(name string, our, their []uint64) {
			t.Helper()
			if got, want := ours.call(t, name, our...), theirs.call(t, name, their...); got != want {
				t.Errorf("%s%v = %d, and Extism's%v %d", name, our, got, their, want)
			}
		}
		next := func() uint64 {
			if len(program) == 0 {
				return 0
			}
			n := program[0]
			program = program[1:]
			return uint64(n)
		}
		for len(program) > 0 {
			op, n := next()%10, next()
			if op == 0 || len(blocks) == 0 {
				size := n * n * n / 16
				b := &block{ours: ours.call(t, "alloc", size), theirs: theirs.call(t, "alloc", size), size: size, bytes: make([]byte, size)}
				if (b.ours == 0) != (b.theirs == 0) {
					t.Fatalf("alloc(%d) = %d, and Extism's %d", size, b.ours, b.theirs)
				}
				if b.ours != 0 {
					ours.module.Memory().Write(uint32(b.ours), b.bytes) // a freed block is given with what is in it
					theirs.module.Memory().Write(uint32(b.theirs), b.bytes)
					blocks = append(blocks, b)
				}
				continue
			}
			at := int(n) % len(blocks)
			b, within := blocks[at], next()*next()%blocks[at].size
			switch op {
			case 1:
				ours.call(t, "free", b.ours)
				theirs.call(t, "free", b.theirs)
				same("length", []uint64{b.ours}, []uint64{b.theirs})
				blocks = append(blocks[:at], blocks[at+1:]...)
			case 2, 3:
				value := next()
				b.bytes[within] = byte(value)
				ours.call(t, "store_u8", b.ours+within, value)
				theirs.call(t, "store_u8", b.theirs+within, value)
			case 4:
				if within+8 > b.size {
					continue
				}
				value := next() * 0x0123456789abcdef
				for i := range 8 {
					b.bytes[within+uint64(i)] = byte(value >> (8 * i))
				}
				ours.call(t, "store_u64", b.ours+within, value)
				theirs.call(t, "store_u64", b.theirs+within, value)
			case 5:
				same("load_u8", []uint64{b.ours + within}, []uint64{b.theirs + within})
				if within+8 <= b.size {
					same("load_u64", []uint64{b.ours + within}, []uint64{b.theirs + within})
				}
			case 6:
				same("length", []uint64{b.ours}, []uint64{b.theirs})
				same("length", []uint64{b.ours + within + 1}, []uint64{b.theirs + within + 1})
				same("length_unsafe", []uint64{b.ours}, []uint64{b.theirs})
			case 7: // where nobody's bytes are
				far := uint64(1)<<(32+n%31) + within
				for _, name := range []string{"load_u8", "load_u64", "length"} {
					same(name, []uint64{far}, []uint64{far})
					same(name, []uint64{0}, []uint64{0})
				}
				same("store_u8", []uint64{far, 1}, []uint64{far, 1})
				same("store_u64", []uint64{0, 1}, []uint64{0, 1})
			case 8, 9:
				ours.call(t, "quern_input_set", b.ours)
				theirs.call(t, "input_set", b.theirs, b.size)
				same("input_length", nil, nil)
				for _, from := range []uint64{within, b.size - 1, b.size, b.size + 7, 1 << 40} {
					same("input_load_u8", []uint64{from}, []uint64{from})
					same("input_load_u64", []uint64{from}, []uint64{from})
				}
				if got := ours.call(t, "input_load_u64", ^uint64(0)); got != 0 { // Extism reads what lies before the input
					t.Errorf("input_load_u64(-1) = %d", got)
				}
			}
		}
		for _, b := range blocks {
			got, ok := ours.module.Memory().Read(uint32(b.ours), uint32(b.size))
			if !ok || !bytes.Equal(got, b.bytes) {
				t.Errorf("a block of %d bytes at %d has not what was stored", b.size, b.ours)
			}
		}
	})
}

// FuzzForgedBlocks: a plugin that writes over what our kernel keeps before its blocks harms itself alone. No function traps, so
// no host function that calls one does; the next block begins in memory; and the input stays what the host set.
func FuzzForgedBlocks(f *testing.F) {
	f.Add([]byte("a block, a length, a size and a free list of one's own choice"), uint64(1)<<40)
	f.Add(bytes.Repeat([]byte{0, 3, 1, 2, 4, 255}, 20), ^uint64(0))
	f.Fuzz(func(t *testing.T, program []byte, word uint64) {
		k := ourKernel(t)
		memory := k.module.Memory()
		input := k.call(t, "alloc", 100)
		k.call(t, "quern_input_set", input)
		blocks := []uint64{input}
		for i, op := range program {
			at := blocks[i%len(blocks)]
			switch op % 6 {
			case 0:
				if at := k.call(t, "alloc", uint64(op)*uint64(op)); at != 0 {
					blocks = append(blocks, at)
				}
			case 1:
				k.call(t, "free", at)
			case 2:
				k.call(t, "length", at)
				k.call(t, "load_u64", at+word)
			default: // the tag, the length or the next free block, the size
				forged := []uint64{word, at, uint64(op), uint64(memory.Size()), 1 << 31, ^uint64(0)}[i%6]
				k.call(t, "store_u64", at-uint64(op%3+1)*8, forged)
			}
			if top, _ := memory.ReadUint64Le(8); top < 4096 || top > uint64(memory.Size())+8 {
				t.Fatalf("the next block would begin at %d of %d", top, memory.Size())
			}
			offset, _ := memory.ReadUint64Le(16)
			if length, _ := memory.ReadUint64Le(24); offset != input || length != 100 {
				t.Fatalf("the input is %d bytes at %d", length, offset)
			}
		}
	})
}
