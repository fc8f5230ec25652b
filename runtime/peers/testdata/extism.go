// The functions input and output do the same as those of Extism's PDK for Go.
package main

import (
	"encoding/binary"
	"encoding/json"
)

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoadU8(offset uint64) uint32

//go:wasmimport extism:host/env input_load_u64
func inputLoadU64(offset uint64) uint64

//go:wasmimport extism:host/env alloc
func alloc(size uint64) uint64

//go:wasmimport extism:host/env store_u8
func storeU8(at uint64, value uint32)

//go:wasmimport extism:host/env store_u64
func storeU64(at, value uint64)

//go:wasmimport extism:host/env output_set
func outputSet(at, size uint64)

func input() []byte {
	p := make([]byte, inputLength())
	i := 0
	for ; i+8 <= len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], inputLoadU64(uint64(i)))
	}
	for ; i < len(p); i++ {
		p[i] = byte(inputLoadU8(uint64(i)))
	}
	return p
}

func output(p []byte) {
	to, i := alloc(uint64(len(p))), 0
	for ; i+8 <= len(p); i += 8 {
		storeU64(to+uint64(i), binary.LittleEndian.Uint64(p[i:]))
	}
	for ; i < len(p); i++ {
		storeU8(to+uint64(i), uint32(p[i]))
	}
	outputSet(to, uint64(len(p)))
}
