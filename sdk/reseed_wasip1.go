package sdk

import "unsafe"

// Go's runtime draws the random numbers of math/rand, math/rand/v2, hash/maphash and maps from one ChaCha8 generator,
// seeded when the module starts. All tasks would draw the same numbers from the snapshot. Go has no function to reseed
// it: it is searched for in memory when the module starts, and gets a new seed in each task.
//
// A candidate must hold the last number drawn, and with a known seed the runtime must draw the first number of that
// seed. If none does, because another Go version keeps it elsewhere, the generator is left alone.

// generator is the runtime's generator; nil if it was not found.
var generator = findGenerator()

// chacha8 is internal/chacha8rand.State.
type chacha8 struct {
	buf  [32]uint64
	seed [4]uint64
	i, n uint32 // the next and the end in buf
	c    uint32 // the block number of buf, which holds 4 blocks
}

// spent sets a seed, in a state where the next number is the seed's first.
func (s *chacha8) spent(seed [4]uint64) {
	s.seed = seed
	s.i, s.n = 0, 0
	s.c = ^uint32(3) // 4 below 0
}

// firstOfNothing is the first number of seed 0.
const firstOfNothing = 0xac8a366dce7e87d9

const (
	descriptorWords = 16   // of a goroutine's descriptor; the 7th points to its thread's
	searchedBytes   = 2048 // searched after each pointer
)

// currentG returns the descriptor of this goroutine, memoryPages the size of memory in 64 KiB.
func currentG() *[descriptorWords]unsafe.Pointer
func memoryPages() int32

//go:linkname runtimeRand runtime.rand
func runtimeRand() uint64

//go:wasmimport quern_v1 random
//go:noescape
func random(p *byte, n uint32) int32

// findGenerator reads words as pointers that may be none; nothing that it calls shows them to the garbage collector.
func findGenerator() *chacha8 {
	drawn := runtimeRand()
	end := uintptr(memoryPages())<<16 - searchedBytes - unsafe.Sizeof(chacha8{})
	for _, p := range currentG() {
		if uintptr(p) < 4096 || uintptr(p) > end || uintptr(p)%8 != 0 {
			continue
		}
		for offset := uintptr(0); offset < searchedBytes; offset += 8 {
			if s := (*chacha8)(unsafe.Add(p, offset)); s.holds(drawn) && s.proves() {
				return s
			}
		}
	}
	return nil
}

// holds reports whether drawn was the last number.
func (s *chacha8) holds(drawn uint64) bool {
	return 0 < s.i && s.i <= s.n && s.n <= uint32(len(s.buf)) && s.buf[s.i-1] == drawn
}

// proves reports whether the runtime draws from here, and restores the state.
func (s *chacha8) proves() bool {
	was := *s
	s.spent([4]uint64{})
	ok := runtimeRand() == firstOfNothing
	*s = was
	return ok
}

// reseed seeds the generator with random bytes from the host.
func reseed() {
	var seed [4]uint64
	if generator != nil && random((*byte)(unsafe.Pointer(&seed)), uint32(unsafe.Sizeof(seed))) >= 0 {
		generator.spent(seed)
	}
}
