package snapshot

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestImage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		contents []byte
		held     uint64 // at first
	}{
		{"Nothing", nil, 0},
		{"Zeroes", make([]byte, 2*wasmPage), 0},
		{"Full", full(3 * wasmPage), 3 * wasmPage},
		{"Holes", pattern(64 * block), 48 * block},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			image := take(t, test.contents)
			var stat unix.Stat_t
			if image.own.memfd != nil {
				if err := unix.Fstat(int(image.own.memfd.Fd()), &stat); err != nil {
					t.Fatal(err)
				}
			}
			if image.Size() != uint64(len(test.contents)) || stat.Blocks*512 != int64(test.held) {
				t.Errorf("size %d, held %d, want %d and %d", image.Size(), stat.Blocks*512, len(test.contents), test.held)
			}
			clear(test.contents[:min(1, len(test.contents))]) // the image is a copy
			space := mapped(t, image, image.Size()+wasmPage)
			for range 2 {
				if err := image.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
			if err := space.Map(image); !errors.Is(err, errClosed) {
				t.Errorf("Map after Close: %v, want %v", err, errClosed)
			}
		})
	}
}

// full returns contents without a page of zeroes.
func full(size int) []byte {
	contents := make([]byte, size)
	for i := range contents {
		contents[i] = byte(i%255 + 1)
	}
	return contents
}

// TestImageIsSealed: nobody can change an image, by whatever name its file is opened.
func TestImageIsSealed(t *testing.T) {
	t.Parallel()
	image := take(t, pattern(wasmPage))
	if _, err := image.own.memfd.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: %v, want %v", err, unix.EPERM)
	}
	for _, size := range []int64{0, 2 * wasmPage} {
		if err := image.own.memfd.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want %v", size, err, unix.EPERM)
		}
	}
	_, err := unix.MmapPtr(int(image.own.memfd.Fd()), 0, nil, wasmPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("map it shared and writable: %v, want %v", err, unix.EPERM)
	}
	got, err := unix.FcntlInt(image.own.memfd.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		t.Errorf("seals %#x, %v, want %#x", got, err, seals)
	}
	if flags, err := unix.FcntlInt(image.own.memfd.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v: a child would inherit the file", flags, err)
	}
}

// TestImageClosedFirst: a space keeps its contents, its own and the image's.
func TestImageClosedFirst(t *testing.T) {
	t.Parallel()
	contents := pattern(4 * wasmPage)
	image, err := Take(contents, nil)
	if err != nil {
		t.Fatal(err)
	}
	space := mapped(t, image, 8*wasmPage)
	other := mapped(t, image, 8*wasmPage)
	space.Bytes()[5] ^= 1
	if err := image.Close(); err != nil {
		t.Fatal(err)
	}
	for mode := range usableModes(t) {
		if err := space.Reset(mode, 8*wasmPage); !errors.Is(err, errClosed) {
			t.Errorf("Reset by mode %s: %v, want %v", mode, err, errClosed)
		}
	}
	pristine(t, other, contents)
	if space.Bytes()[5] != contents[5]^1 {
		t.Error("the space has lost what was written")
	}
	if err := space.Trim(); err != nil {
		t.Fatal(err)
	}
	pristine(t, space, contents)
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
	next := pattern(8 * wasmPage)
	if err := space.Map(take(t, next)); err != nil {
		t.Fatal(err)
	}
	pristine(t, space, next)
	if image.own.view != nil {
		t.Error("the image is still mapped, though nobody uses it")
	}
}

// TestImageClosedMeanwhile: an image may be closed while spaces map it and are reset. What was begun ends well.
func TestImageClosedMeanwhile(t *testing.T) {
	t.Parallel()
	contents := pattern(2 * block)
	for range 50 {
		image, err := Take(contents, nil)
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		begun := make(chan struct{}, 3)
		for range cap(begun) {
			space := reserved(t, 3*block)
			group.Go(func() {
				for i := 0; ; i++ {
					err := space.Map(image)
					if err == nil {
						pristine(t, space, contents)
						space.Bytes()[0]++
						err = space.Reset(Copy, 3*block)
					}
					if err != nil {
						if !errors.Is(err, errClosed) || space.astray {
							t.Errorf("%v, astray %v, want %v", err, space.astray, errClosed)
						}
						return
					}
					if i == 0 {
						begun <- struct{}{}
					}
				}
			})
		}
		<-begun
		if err := image.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
	}
}

// TestMapErr: a space survives an image that it has no room for. A mapping that fails in the midst ends it.
func TestMapErr(t *testing.T) {
	t.Parallel()
	contents := pattern(wasmPage)
	space := mapped(t, take(t, contents), 2*wasmPage-1)
	if err := space.Map(take(t, pattern(2*wasmPage))); err == nil {
		t.Error("Map of an image over the limit succeeded")
	}
	pristine(t, space, contents)
	if err := space.Reset(Copy, wasmPage); err != nil {
		t.Errorf("Reset: %v", err)
	}

	broken := take(t, contents)
	null, err := os.Open(os.DevNull) // no memory can be mapped from it
	if err != nil {
		t.Fatal(err)
	}
	memfd := broken.own.memfd
	broken.own.memfd = null
	if err := space.Map(broken); err == nil {
		t.Error("Map of what cannot be mapped succeeded")
	}
	broken.own.memfd = memfd
	if err := null.Close(); err != nil {
		t.Error(err)
	}
	memory, all := space.memory, space.all
	if err := space.Release(); err != nil {
		t.Error(err)
	}
	if broken.users != 1 {
		t.Errorf("%d users of the image, want one", broken.users)
	}
	if err := unix.Msync(memory, unix.MS_ASYNC); err != nil {
		t.Errorf("%v: the space was unmapped, where anything may have been by now", err)
	}
	if err := unmap(all); err != nil {
		t.Error(err)
	}
}

// TestSharedImage: an image that shares pages with another has its own contents, after each way to restore them, and after the
// other is closed. Together they take less than two images.
func TestSharedImage(t *testing.T) {
	t.Parallel()
	modes := usableModes(t)
	shared := 0
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0))
		contents := func() []byte { // in which every fourth page is zero
			contents := make([]byte, (1+random.Uint64N(12))*wasmPage)
			for at := uint64(0); at < uint64(len(contents)); at += pageSize {
				contents[at+7] = byte(at / pageSize % 4)
			}
			return contents
		}
		first, second := contents(), contents()
		for range random.IntN(20) / (1 + int(seed%4)) {
			clear(second[random.IntN(len(second)):][:random.IntN(2)])
			second[random.IntN(len(second))] = 9
			clear(second[random.Uint64N(uint64(len(second))/pageSize)*pageSize:][:pageSize])
		}
		like := take(t, first)
		image, err := Take(second, like)
		if err != nil {
			t.Fatal(err)
		}
		third, err := Take(first, image) // shares with what the image shares with
		if err != nil {
			t.Fatal(err)
		}
		if len(image.parts) > 2*ownRanges(image.size)+1 {
			t.Errorf("seed %d: %d parts", seed, len(image.parts))
		}
		if image.shared != nil {
			shared++
			if held, alone := like.Held()+image.Held()+third.Held(), like.size+image.size/4*3; held > alone {
				t.Errorf("seed %d: they hold %d bytes, want at most %d", seed, held, alone)
			}
		}
		if seed%2 == 0 {
			closed(t, like)
		}
		restores(t, modes, image, second)
		restores(t, modes, third, first)
		closed(t, image)
		closed(t, third)
	}
	if shared < 10 {
		t.Errorf("%d of 40 images share pages", shared)
	}
}

// restores fails the test unless a space of the image has these contents, whatever is written.
func restores(t *testing.T, modes map[Mode]finder, image *Image, contents []byte) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(len(contents)), 0))
	space := mapped(t, image, 16*wasmPage)
	pristine(t, space, contents)
	write := func() {
		for range 20 {
			space.memory[random.IntN(len(space.memory))] ^= 0x55
		}
	}
	for mode := range modes {
		write()
		if err := space.Reset(mode, 16*wasmPage); err != nil {
			t.Fatal(err)
		}
		pristine(t, space, contents)
	}
	write()
	if err := space.Trim(); err != nil {
		t.Fatal(err)
	}
	pristine(t, space, contents)
	if err := space.Release(); err != nil {
		t.Fatal(err)
	}
}

func closed(t *testing.T, image *Image) {
	t.Helper()
	if err := image.Close(); err != nil {
		t.Error(err)
	}
}

// TestLargeBase: an image of a few pages shares none with a large one, which would live on for them alone.
func TestLargeBase(t *testing.T) {
	t.Parallel()
	contents := pattern(16 * wasmPage)
	large := take(t, contents)
	small, err := Take(contents[:4*wasmPage], large)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, large)
	if small.shared != nil || small.Held() != 4*wasmPage {
		t.Errorf("shares %t, %d bytes are held, want those of its own 4 pages", small.shared != nil, small.Held())
	}
	pristine(t, mapped(t, small, 4*wasmPage), contents[:4*wasmPage])
	closed(t, small)
}

// TestAlone: what closing an image frees is what it alone uses.
func TestAlone(t *testing.T) {
	t.Parallel()
	contents := pattern(8 * wasmPage)
	one := take(t, contents)
	contents[3*wasmPage]++
	other, err := Take(contents, one)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := one.Alone(), other.Alone(); first != 0 || second != pageSize {
		t.Errorf("closing them would free %d and %d bytes, want 0 and a page", first, second)
	}
	closed(t, one)
	if alone := other.Alone(); alone != 8*wasmPage+pageSize {
		t.Errorf("closing the last one would free %d bytes", alone)
	}
	closed(t, other)
}

// TestMappingsAreBounded: spaces of an image that shares pages map a whole one when there are many mappings.
func TestMappingsAreBounded(t *testing.T) { //nolint:paralleltest // the number is the process's
	contents := pattern(8 * wasmPage)
	like := take(t, contents)
	contents[3*wasmPage]++
	image, err := Take(contents, like)
	if err != nil {
		t.Fatal(err)
	}
	before := mappings.Load()
	few := mapped(t, image, 9*wasmPage)
	own := mappings.Load() - before
	mappings.Add(maxMappings)
	many := mapped(t, image, 9*wasmPage)
	mappings.Add(-maxMappings)
	if own != 4 || // three parts, and the zeroes behind them
		mappings.Load() != before+own || few.image != image || many.image == image {
		t.Errorf("%d mappings of %d: %t, %t", own, mappings.Load(), few.image == image, many.image == image)
	}
	if held := like.Held() + image.Held(); held != 16*wasmPage+pageSize {
		t.Errorf("%d bytes held, want those of two images and a page", held)
	}
	closed(t, like)
	for _, space := range []*Space{few, many} {
		pristine(t, space, contents)
		space.memory[5]++
		if err := space.Reset(Copy, wasmPage); err != nil {
			t.Error(err)
		}
		pristine(t, space, contents)
	}
	closed(t, image)
	for _, space := range []*Space{few, many} {
		if err := space.Reset(Copy, wasmPage); !errors.Is(err, errClosed) {
			t.Errorf("%v, want %v", err, errClosed)
		}
		if err := space.Release(); err != nil {
			t.Error(err)
		}
	}
	if mappings.Load() != before || image.own.memfd != nil && image.own.view != nil || image.whole.Load().own.view != nil {
		t.Errorf("%d mappings, want %d; the files are still mapped", mappings.Load(), before)
	}
}
