package snapshot

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestReset lets tasks do what they can think of, by each mode, and holds the memory to a plain copy of it.
func TestReset(t *testing.T) {
	t.Parallel()
	limit := int(8 * block)
	all := [][]byte{pattern(3 * block), pattern(5 * block), make([]byte, block), nil, full(limit)}
	images := make([]*Image, len(all))
	for i, contents := range all {
		images[i] = take(t, contents)
	}
	for mode := range usableModes(t) {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				space, err := Reserve(uint64(limit))
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := space.Release(); err != nil {
						t.Error(err)
					}
				}()
				original, now := make([]byte, limit), make([]byte, limit) // what Map left, what should be there
				var size, reached int                                     // of the memory now, and as far as it was since Reset
				mapIt := func(t *rapid.T) {
					n := rapid.IntRange(0, len(images)-1).Draw(t, "image")
					if err := space.Map(images[n]); err != nil {
						t.Fatal(err)
					}
					clear(original)
					size = copy(original, all[n])
					reached = size
					copy(now, original)
				}
				mapIt(t)
				t.Repeat(map[string]func(*rapid.T){
					"": func(t *rapid.T) {
						if !bytes.Equal(space.Bytes()[:reached], now[:reached]) {
							t.Fatal("the memory is not what was written")
						}
					},
					"grow": func(t *rapid.T) {
						size += rapid.IntRange(0, (limit-size)/wasmPage).Draw(t, "pages") * wasmPage
						reached = max(reached, size)
					},
					"write": func(t *rapid.T) {
						if reached == 0 {
							return
						}
						at := rapid.IntRange(0, reached-1).Draw(t, "at")
						lengths := []int{1, 2, int(pageSize), int(pageSize) + 1, 100_000, limit}
						length := min(reached-at, rapid.SampledFrom(lengths).Draw(t, "length"))
						value := rapid.SampledFrom([]byte{0, 1, 255}).Draw(t, "value")
						values := bytes.Repeat([]byte{value}, length)
						copy(space.Bytes()[at:], values)
						copy(now[at:], values)
					},
					"scatter": func(t *rapid.T) {
						random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
						for range rapid.IntRange(0, 2*regionsAtOnce).Draw(t, "writes") {
							if reached > 0 {
								at, value := random.IntN(reached), byte(random.Uint32())
								space.Bytes()[at], now[at] = value, value
							}
						}
					},
					"read": func(t *rapid.T) { // a page behind the image gets the kernel's page of zeroes
						if reached > 0 {
							at := rapid.IntRange(0, reached-1).Draw(t, "at")
							touch(space.Bytes()[at:min(reached, at+int(block))])
						}
					},
					"reset": func(t *rapid.T) {
						if err := space.Reset(mode, uint64(reached)); err != nil {
							t.Fatal(err)
						}
						copy(now, original)
						if !bytes.Equal(space.Bytes(), original) {
							t.Fatal("the memory is not what Map left")
						}
						size = int(space.size)
						reached = size
					},
					"trim": func(t *rapid.T) {
						if err := space.Trim(); err != nil {
							t.Fatal(err)
						}
						copy(now, original)
						if !bytes.Equal(space.Bytes(), original) || space.Held() != 0 {
							t.Fatal("the memory is not what Map left")
						}
					},
					"map": mapIt,
				})
			})
		})
	}
}

// TestResetEdges: the first and last bytes of all that has a first and a last.
func TestResetEdges(t *testing.T) {
	t.Parallel()
	contents := pattern(4 * block)
	size := uint64(len(contents))
	images := map[string]*Image{
		"Image": take(t, contents), "Zeroes": take(t, make([]byte, size)), "Nothing": take(t, nil),
	}
	for mode := range usableModes(t) {
		for name, image := range images {
			original := map[string][]byte{"Image": contents, "Zeroes": make([]byte, size)}[name]
			for _, limit := range []uint64{size, size + 1, size + pageSize + 100, 64 * block} {
				for _, used := range []uint64{0, 1, pageSize - 1, pageSize, pageSize + 1, size - 1, size, limit - 1, limit} {
					t.Run(fmt.Sprintf("%s/%s/%d/%d", mode, name, limit, used), func(t *testing.T) {
						t.Parallel()
						space := mapped(t, image, limit)
						for range 3 {
							memory := space.Bytes()[:used]
							if used > 0 {
								memory[0]++
								memory[used/2]++
								memory[used-1]++
							}
							if err := space.Reset(mode, used); err != nil {
								t.Fatal(err)
							}
							pristine(t, space, original)
						}
						if err := space.Reset(mode, limit+1); err == nil {
							t.Error("Reset of more than the limit succeeded")
						}
					})
				}
			}
		}
	}
}

// TestResetWithoutMap: a space that nothing was mapped into is zero again.
func TestResetWithoutMap(t *testing.T) {
	t.Parallel()
	for mode := range usableModes(t) {
		space := reserved(t, 16*block)
		for range 3 {
			for at := uint64(0); at < 16*block; at += pageSize / 2 {
				space.Bytes()[at] = 7
			}
			if err := space.Reset(mode, 16*block); err != nil {
				t.Fatal(err)
			}
			pristine(t, space, nil)
		}
	}
}

// TestResetWhole: all of a memory is written, image and growth, more pages than any buffer holds.
func TestResetWhole(t *testing.T) {
	t.Parallel()
	contents := pattern(80 * block)
	image := take(t, contents)
	for mode := range usableModes(t) {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			space := mapped(t, image, 200*block)
			for range 3 {
				for _, step := range []uint64{pageSize, 2 * pageSize, 3 * pageSize} {
					for at := uint64(0); at < 200*block; at += step {
						space.Bytes()[at+step/3]--
					}
					if err := space.Reset(mode, 200*block); err != nil {
						t.Fatal(err)
					}
					pristine(t, space, contents)
				}
			}
		})
	}
}

// TestResetZeroPages: what the kernel shows as its page of zeroes was only read behind the image, but in the image
// it is a page that was zeroed and then merged.
func TestResetZeroPages(t *testing.T) {
	t.Parallel()
	contents := full(int(block))
	space := mapped(t, take(t, contents), 2*block)
	space.finders = &finders{scan: func(_ *buffer, memory []byte, from, to uint64) ([]region, uint64, error) {
		all := region{start: addressOf(memory) + from, end: addressOf(memory) + block, categories: zeroPage}
		behind := region{start: all.end, end: addressOf(memory) + to, categories: zeroPage}
		return []region{all, behind}, to, nil
	}}
	clear(space.Bytes()[:block])
	if err := space.Reset(Scan, 2*block); err != nil {
		t.Fatal(err)
	}
	pristine(t, space, contents)
	if space.Held() != int64(block) {
		t.Errorf("%d bytes held, want those in the image, %d", space.Held(), block)
	}

	space.finders = &system
	if usableModes(t)[Scan] == nil {
		return
	}
	if err := space.Trim(); err != nil {
		t.Fatal(err)
	}
	pristine(t, space, contents) // reads everything
	if err := space.Reset(Scan, 2*block); err != nil {
		t.Fatal(err)
	}
	if space.Held() != 0 {
		t.Errorf("%d bytes held after reading, want none", space.Held())
	}
}

// TestHeld: the pages that a task has written are the space's own until they are found unchanged too often.
func TestHeld(t *testing.T) {
	t.Parallel()
	const idle, busy = 150, 20 // the first idle page is between busy ones, and the last is before one
	contents := pattern(16 * block)
	image := take(t, contents)
	for mode, find := range usableModes(t) {
		if find == nil {
			continue // it cannot tell
		}
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			space := mapped(t, image, 16*block)
			reset := func(want int) {
				t.Helper()
				for page := range uint64(busy - 1) {
					space.Bytes()[page*2*pageSize]++
				}
				space.Bytes()[(37+idle)*pageSize]++
				if err := space.Reset(mode, 16*block); err != nil {
					t.Fatal(err)
				}
				pristine(t, space, contents)
				holds(t, space, find, want)
			}
			reset(busy)
			for range 2 {
				for page := range uint64(idle) {
					space.Bytes()[(37+page)*pageSize]++
				}
				for range patience + 1 { // the first finds them changed
					reset(busy + idle)
				}
				for range 3 * patience {
					reset(busy)
				}
			}
			if err := space.Trim(); err != nil {
				t.Fatal(err)
			}
			pristine(t, space, contents)
			holds(t, space, find, 0)
		})
	}
}

// holds fails the test if a space has not so many own pages, or says otherwise.
func holds(t *testing.T, space *Space, find finder, want int) {
	t.Helper()
	got := uint64(0)
	for at, end := uint64(0), uint64(len(space.memory)); at < end; {
		regions, next, err := space.ask(find, at, end)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range regions {
			got += r.end - r.start
		}
		at = next
	}
	if got != uint64(want)*pageSize || space.Held() != int64(got) {
		t.Fatalf("%d bytes are held, %d are said to be, want %d pages", got, space.Held(), want)
	}
}

// TestHeldFew: some pages may be kept for ever.
func TestHeldFew(t *testing.T) {
	t.Parallel()
	for mode, find := range usableModes(t) {
		if find == nil {
			continue
		}
		space := mapped(t, take(t, pattern(16*block)), 16*block)
		for page := range uint64(few) {
			space.Bytes()[page*pageSize]++
		}
		for range 3 * patience {
			if err := space.Reset(mode, 16*block); err != nil {
				t.Fatal(err)
			}
			holds(t, space, find, few)
		}
	}
}

// TestHeldBehindImage: a long stretch where no task came before is given back at once, kept if the next task comes as
// far, and let go when none does any more.
func TestHeldBehindImage(t *testing.T) {
	t.Parallel()
	const most = 2*stretch - 1
	image := 4 * block
	contents := pattern(image)
	taken := take(t, contents)
	for mode, find := range usableModes(t) {
		if find == nil {
			continue
		}
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			space := mapped(t, taken, image+most*pageSize)
			for _, task := range []struct {
				grown uint64
				held  int
			}{
				{0, 0},
				{stretch - 1, stretch - 1}, // not long
				{most, stretch - 1},        // long
				{most, most},
				{most, most},
			} {
				used := image + task.grown*pageSize
				for at := image; at < used; at += pageSize {
					space.Bytes()[at]++
				}
				if err := space.Reset(mode, used); err != nil {
					t.Fatal(err)
				}
				holds(t, space, find, task.held)
			}
			for task := range 3 * patience {
				if err := space.Reset(mode, image); err != nil {
					t.Fatal(err)
				}
				if task == patience/2 {
					holds(t, space, find, stretch-1)
				}
			}
			holds(t, space, find, 0)
			pristine(t, space, contents)
		})
	}
}

// TestHeldImage: pages of the image are kept at first, however many.
func TestHeldImage(t *testing.T) {
	t.Parallel()
	const pages = 2 * stretch
	image := take(t, pattern(pages*pageSize))
	for mode, find := range usableModes(t) {
		if find == nil {
			continue
		}
		space := mapped(t, image, 2*pages*pageSize)
		for page := range uint64(pages) {
			space.Bytes()[page*pageSize]++
		}
		if err := space.Reset(mode, pages*pageSize); err != nil {
			t.Fatal(err)
		}
		holds(t, space, find, pages)
	}
}

// TestResetPagedOut: pages that the kernel has moved to the swap (where there is one) are found as well.
func TestResetPagedOut(t *testing.T) {
	t.Parallel()
	contents := pattern(8 * block)
	image := take(t, contents)
	for mode := range usableModes(t) {
		space := mapped(t, image, 16*block)
		for range 3 {
			for at := uint64(0); at < 16*block; at += pageSize {
				if at/pageSize%3 != 0 {
					space.Bytes()[at]++
				} else {
					touch(space.Bytes()[at:][:1])
				}
			}
			if err := unix.Madvise(space.memory, unix.MADV_PAGEOUT); err != nil {
				t.Skipf("no page can be sent away: %v", err)
			}
			if err := space.Reset(mode, 16*block); err != nil {
				t.Fatal(err)
			}
			pristine(t, space, contents)
		}
	}
}

// TestResetAllocatesNothing in the steady state.
func TestResetAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	image := take(t, pattern(16*block))
	for mode := range usableModes(t) {
		space := mapped(t, image, 32*block)
		got := testing.AllocsPerRun(100, func() {
			for at := uint64(0); at < 32*block; at += 3 * pageSize {
				space.Bytes()[at]++
			}
			if err := space.Reset(mode, 32*block); err != nil {
				t.Fatal(err)
			}
		})
		if got != 0 {
			t.Errorf("%v allocations by mode %s, want none", got, mode)
		}
	}
}

// TestResetAtOnce: spaces of one image are reset on several goroutines, while others come and go.
func TestResetAtOnce(t *testing.T) {
	t.Parallel()
	contents := pattern(16 * block)
	image := take(t, contents)
	var group sync.WaitGroup
	for mode := range usableModes(t) {
		for worker := range 3 {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(worker), 1))
				space, err := Reserve(24 * block)
				if err != nil {
					t.Error(err)
					return
				}
				for task := range 60 {
					if task%20 == 0 {
						if err := space.Map(image); err != nil {
							t.Error(err)
							return
						}
					}
					for range random.IntN(300) {
						space.Bytes()[random.Uint64N(24*block)] = byte(worker + 1)
					}
					if err := space.Reset(mode, 24*block); err != nil {
						t.Error(err)
						return
					}
					if !bytes.Equal(space.Bytes()[:len(contents)], contents) ||
						!bytes.Equal(space.Bytes()[len(contents):], make([]byte, 8*block)) {
						t.Errorf("task %d of worker %d by mode %s left something behind", task, worker, mode)
						return
					}
				}
				if err := space.Release(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
}
