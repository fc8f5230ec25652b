package snapshot

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// block is 16 pages: 64 KiB almost everywhere, and a multiple of it on the other systems.
var block = 16 * pageSize

// pattern returns contents of so many bytes in which every fourth page is zero and no other two are alike.
func pattern(size uint64) []byte {
	contents := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := uint64(0); at < size; at += pageSize {
		if at/pageSize%4 != 3 {
			_, _ = random.Read(contents[at:][:pageSize])
		}
	}
	return contents
}

// take makes an image that lives as long as the test.
func take(t testing.TB, contents []byte) *Image {
	t.Helper()
	image, err := Take(contents, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := image.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return image
}

// reserved makes a space that lives as long as the test.
func reserved(t testing.TB, limit uint64) *Space {
	t.Helper()
	space, err := Reserve(limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := space.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
	return space
}

// mapped makes a space with an image in front.
func mapped(t testing.TB, image *Image, limit uint64) *Space {
	t.Helper()
	space := reserved(t, limit)
	if err := space.Map(image); err != nil {
		t.Fatal(err)
	}
	return space
}

// pristine fails the test if a space is not the contents and zero behind them.
func pristine(t testing.TB, space *Space, contents []byte) {
	t.Helper()
	memory := space.memory // more than Bytes, if the limit is not a number of pages
	if !bytes.Equal(memory[:len(contents)], contents) {
		for at := range contents {
			if memory[at] != contents[at] {
				t.Fatalf("byte %#x of the image is %#x, want %#x", at, memory[at], contents[at])
			}
		}
	}
	for at := len(contents); at < len(memory); at += int(pageSize) {
		if !bytes.Equal(memory[at:][:pageSize], zeroes) {
			t.Fatalf("page %#x behind the image is not zero", at)
		}
	}
}

// touch reads some bytes.
func touch(memory []byte) { read.Add(uint32(memory[0]) + uint32(memory[len(memory)-1])) }
