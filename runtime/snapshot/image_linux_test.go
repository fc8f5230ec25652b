package snapshot

import (
	"errors"
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
			if image.file != nil {
				if err := unix.Fstat(int(image.file.Fd()), &stat); err != nil {
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
	if _, err := image.file.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: %v, want %v", err, unix.EPERM)
	}
	for _, size := range []int64{0, 2 * wasmPage} {
		if err := image.file.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want %v", size, err, unix.EPERM)
		}
	}
	_, err := unix.MmapPtr(int(image.file.Fd()), 0, nil, wasmPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("map it shared and writable: %v, want %v", err, unix.EPERM)
	}
	got, err := unix.FcntlInt(image.file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		t.Errorf("seals %#x, %v, want %#x", got, err, seals)
	}
	if flags, err := unix.FcntlInt(image.file.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v: a child would inherit the file", flags, err)
	}
}

// TestImageClosedFirst: a space keeps its contents, its own and the image's.
func TestImageClosedFirst(t *testing.T) {
	t.Parallel()
	contents := pattern(4 * wasmPage)
	image, err := Take(contents)
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
	if image.view != nil {
		t.Error("the image is still mapped, though nobody uses it")
	}
}

// TestImageClosedMeanwhile: an image may be closed while spaces map it and are reset. What was begun ends well.
func TestImageClosedMeanwhile(t *testing.T) {
	t.Parallel()
	contents := pattern(2 * block)
	for range 50 {
		image, err := Take(contents)
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
	memfd := broken.file
	broken.file = null
	if err := space.Map(broken); err == nil {
		t.Error("Map of what cannot be mapped succeeded")
	}
	broken.file = memfd
	if err := null.Close(); err != nil {
		t.Error(err)
	}
	if broken.users != 1 {
		t.Errorf("%d users of the image, want one", broken.users)
	}
	memory, all := space.memory, space.all
	if err := space.Release(); err != nil {
		t.Error(err)
	}
	if err := unix.Msync(memory, unix.MS_ASYNC); err != nil {
		t.Errorf("%v: the space was unmapped, where anything may have been by now", err)
	}
	if err := unmap(all); err != nil {
		t.Error(err)
	}
}
