package sdk

import "unsafe"

// Go's runtime draws the random numbers of math/rand, math/rand/v2, hash/maphash and maps from one ChaCha8 generator,
// which is seeded when the module starts. Every task starts from the same snapshot, and so would draw the same numbers.
// Go has no function to reseed the generator. So this file searches memory for the generator when the module starts,
// and each task seeds it anew.
//
// A candidate for the generator must contain the last number drawn. Then the candidate gets a known seed, and the
// runtime must draw the first number of that seed. If there is no such candidate, because another Go version keeps the
// generator elsewhere, nothing is reseeded.

// generator is the runtime's generator; nil if it was not found.
var generator = findGenerator()

// chacha8 has the layout of internal/chacha8rand.State.
type chacha8 struct {
	buf  [32]uint64
	seed [4]uint64
	i, n uint32 // i is the index of the next number in buf, n that of the end
	c    uint32 // the block number of buf's first block; buf has 4 blocks
}

// setSeed sets a seed and empties buf, so that the next number drawn is the first one of the seed.
func (s *chacha8) setSeed(seed [4]uint64) {
	s.seed = seed
	s.i, s.n = 0, 0
	s.c = ^uint32(3) // 4 below 0: refilling buf adds 4
}

// firstOfNothing is the first number that a generator with the seed 0 draws.
const firstOfNothing = 0xac8a366dce7e87d9

const (
	descriptorWords = 16   // words of a goroutine's descriptor to follow; the 7th points to the thread's descriptor
	searchedBytes   = 2048 // bytes that are searched from each pointer on
)

// currentG returns the first words of this goroutine's descriptor. memoryPages returns the size of memory in pages of
// 64 KiB.
func currentG() *[descriptorWords]unsafe.Pointer
func memoryPages() int32

//go:linkname runtimeRand runtime.rand
func runtimeRand() uint64

//go:wasmimport quern_v1 random
//go:noescape
func random(p *byte, n uint32) int32

// findGenerator searches the memory to which each word of the descriptor may point. Some words are no pointers, so
// nothing that it calls may show them to the garbage collector.
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

// holds reports whether drawn was the last number drawn from s.
func (s *chacha8) holds(drawn uint64) bool {
	return 0 < s.i && s.i <= s.n && s.n <= uint32(len(s.buf)) && s.buf[s.i-1] == drawn
}

// proves reports whether the runtime draws its numbers from s. It restores the state of s.
func (s *chacha8) proves() bool {
	was := *s
	s.setSeed([4]uint64{})
	ok := runtimeRand() == firstOfNothing
	*s = was
	return ok
}

// reseed seeds the generator with random bytes from the host.
func reseed() {
	var seed [4]uint64
	if generator != nil && random((*byte)(unsafe.Pointer(&seed)), uint32(unsafe.Sizeof(seed))) >= 0 {
		generator.setSeed(seed)
	}
}
