package sdk

import "unsafe"

// Go's runtime draws the random numbers of math/rand and math/rand/v2, of hash/maphash and of maps from one generator, a
// ChaCha8, which is seeded when the module starts. So each task, which begins with a copy of the memory, would draw the same. Go
// has no function that seeds it anew: it is sought in memory when the module starts, and gets a new seed in each task.
//
// It counts as found only if it proves to be the one: it holds the number that was drawn, and with a seed that is known
// the runtime draws the number that belongs to that. Where nothing does, in a Go that keeps it in another way, the generator is left
// alone.

// generator is that of the runtime; nil if it was not found.
var generator = findGenerator()

// chacha8 is internal/chacha8rand.State.
type chacha8 struct {
	buf  [32]uint64
	seed [4]uint64
	i, n uint32 // of buf, the next and the end
	c    uint32 // the block that buf is; there are 4 at once
}

// spent is the state in which the next number makes the first blocks of the seed.
func (s *chacha8) spent(seed [4]uint64) {
	s.seed = seed
	s.i, s.n = 0, 0
	s.c = ^uint32(3) // 4 below 0
}

// firstOfNothing is the first number of the seed 0.
const firstOfNothing = 0xac8a366dce7e87d9

const (
	descriptorWords = 16   // of a goroutine's descriptor; the 7th of them leads to that of its thread
	searchedBytes   = 2048 // of what each of them leads to are searched
)

// currentG is the descriptor of this goroutine, and memoryPages how large the memory is, in 64 KiB.
func currentG() *[descriptorWords]unsafe.Pointer
func memoryPages() int32

//go:linkname runtimeRand runtime.rand
func runtimeRand() uint64

//go:wasmimport quern_v1 random
//go:noescape
func random(p *byte, n uint32) int32

// findGenerator reads words that need not be pointers as if they were; nothing that it calls lets the garbage collector see them.
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

// holds tells whether this was the last number.
func (s *chacha8) holds(drawn uint64) bool {
	return 0 < s.i && s.i <= s.n && s.n <= uint32(len(s.buf)) && s.buf[s.i-1] == drawn
}

// proves tells whether the runtime draws from here, and leaves it as it was.
func (s *chacha8) proves() bool {
	was := *s
	s.spent([4]uint64{})
	ok := runtimeRand() == firstOfNothing
	*s = was
	return ok
}

// reseed gives the generator a seed of the host's.
func reseed() {
	var seed [4]uint64
	if generator != nil && random((*byte)(unsafe.Pointer(&seed)), uint32(unsafe.Sizeof(seed))) >= 0 {
		generator.spent(seed)
	}
}
