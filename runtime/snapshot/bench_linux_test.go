package snapshot

import (
	"fmt"
	"testing"
)

// BenchmarkReset is a memory of 4 MiB in which a task writes a byte to so many pages, scattered, and reads none.
// Own: the pages are the space's own, as they mostly are; fresh: each is written for the first time, and the
// kernel must make it. The writing counts.
func BenchmarkReset(b *testing.B) {
	const pages = 1024
	image := take(b, full(int(pages*pageSize)))
	usable := usableModes(b)
	for _, mode := range []Mode{Scan, Pagemap, Copy} {
		if _, is := usable[mode]; !is {
			continue
		}
		for _, dirty := range []uint64{1, 64, pages} {
			for _, fresh := range []bool{false, true} {
				name := map[bool]string{false: "own", true: "fresh"}[fresh]
				b.Run(fmt.Sprintf("%s/%d/%s", mode, dirty, name), func(b *testing.B) {
					space := mapped(b, image, 4*pages*pageSize)
					b.ReportAllocs()
					value := byte(0)
					for b.Loop() {
						value++ // and not the byte in memory, which would have to be read
						for n := range dirty {
							space.memory[n*37%pages*pageSize] = value
						}
						if err := space.Reset(mode, pages*pageSize); err != nil {
							b.Fatal(err)
						}
						if fresh {
							if err := space.Trim(); err != nil {
								b.Fatal(err)
							}
						}
					}
				})
			}
		}
	}
}

// BenchmarkResetRead is a memory that is read everywhere and written hardly anywhere. The kernel looks at each page
// that is mapped, and reading one maps those around it.
func BenchmarkResetRead(b *testing.B) {
	const pages = 1024
	image := take(b, full(int(pages*pageSize)))
	for mode := range usableModes(b) {
		b.Run(string(mode), func(b *testing.B) {
			space := mapped(b, image, pages*pageSize)
			for page := range uint64(pages) {
				touch(space.memory[page*pageSize:][:1])
			}
			for b.Loop() {
				space.memory[0]++
				if err := space.Reset(mode, pages*pageSize); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkResetGrown is a small image, and a task that writes so many pages behind it.
func BenchmarkResetGrown(b *testing.B) {
	image := take(b, full(wasmPage))
	for mode := range usableModes(b) {
		for _, pages := range []uint64{16, 256, 2304} {
			b.Run(fmt.Sprintf("%s/%d", mode, pages), func(b *testing.B) {
				space := mapped(b, image, 4096*pageSize)
				for b.Loop() {
					for page := range pages {
						space.memory[wasmPage+page*pageSize]++
					}
					if err := space.Reset(mode, wasmPage+pages*pageSize); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSpace is the life of a space without a task, by the size of its limit.
func BenchmarkSpace(b *testing.B) {
	image := take(b, full(4<<20))
	for _, limit := range []uint64{16 << 20, 4 << 30} {
		b.Run(fmt.Sprintf("%dMiB", limit>>20), func(b *testing.B) {
			for b.Loop() {
				space, err := Reserve(limit)
				if err != nil {
					b.Fatal(err)
				}
				if err := space.Map(image); err != nil {
					b.Fatal(err)
				}
				if err := space.Release(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTake(b *testing.B) {
	contents := pattern(4 << 20)
	for b.Loop() {
		image, err := Take(contents, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := image.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	for b.Loop() {
		Probe()
	}
}

// BenchmarkSpaces makes 10,000 spaces of one image, and tells what each takes of what a process has only so many of:
// mappings (vm.max_map_count, 65,530 as a rule) and addresses (128 TiB).
func BenchmarkSpaces(b *testing.B) {
	const count, limit = 10_000, 64 << 20
	image := take(b, pattern(64*block))
	for b.Loop() {
		_, mappings, addresses := footprint(b)
		spaces := make([]*Space, count)
		for i := range spaces {
			spaces[i] = mapped(b, image, limit)
		}
		_, mappingsNow, addressesNow := footprint(b)
		b.ReportMetric(float64(mappingsNow-mappings)/count, "mappings/space")
		b.ReportMetric(float64((addressesNow-addresses)>>20)/count, "MiB-of-addresses/space")
		for _, space := range spaces {
			if err := space.Release(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/count, "µs/space")
}
