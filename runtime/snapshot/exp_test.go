package snapshot

import (
	"bytes"
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func expImage(b testing.TB, pages int) *Image {
	contents := make([]byte, pages*4096)
	for i := range contents {
		contents[i] = byte(i*7 + i/4096 + 1)
	}
	m, err := Take(contents)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func expSpace(b testing.TB, m *Image, limit uint64) *Space {
	s, err := Reserve(limit)
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Map(m); err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkExpScan(b *testing.B) {
	m := expImage(b, 1024)
	for _, vec := range []int{8, 32, 128, 512} {
		for _, dirty := range []int{0, 1, 64, 512} {
			for _, raw := range []bool{false, true} {
				b.Run(fmt.Sprintf("vec%d/dirty%d/raw%v", vec, dirty, raw), func(b *testing.B) {
					s := expSpace(b, m, 16<<20)
					defer s.Release()
					for i := range 1024 {
						_ = s.memory[i*4096] == 7
					}
					for i := range dirty {
						s.memory[i*(1024/dirty)*4096] = 1
					}
					s.reset.buffer.regions = make([]region, vec)
					file, _ := openPagemap()
					fd := file.Fd()
					scanPages(&s.reset.buffer, s.memory, 0, 4<<20)
					for b.Loop() {
						a := &s.reset.buffer.arg
						a.start = uint64(uintptr(unsafe.Pointer(&s.memory[0])))
						for a.start < a.end {
							var errno unix.Errno
							if raw {
								_, _, errno = unix.RawSyscall(unix.SYS_IOCTL, fd, pagemapScan, uintptr(unsafe.Pointer(a)))
							} else {
								_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, pagemapScan, uintptr(unsafe.Pointer(a)))
							}
							if errno != 0 {
								b.Fatal(errno)
							}
							a.start = a.walkEnd
						}
					}
				})
			}
		}
	}
}

// how to restore n own pages
func BenchmarkExpRestore(b *testing.B) {
	m := expImage(b, 1024)
	for _, n := range []int{1, 64, 1024} {
		for _, where := range []int{0, 2048, 4095, -1} {
			for _, how := range []string{"compare", "blind", "run"} {
				b.Run(fmt.Sprintf("n%d/diff%d/%s", n, where, how), func(b *testing.B) {
					s := expSpace(b, m, 16<<20)
					defer s.Release()
					for b.Loop() {
						for p := range n {
							if where >= 0 {
								s.memory[p*4096+where] ^= 1
							} else {
								s.memory[p*4096] = s.memory[p*4096]
							}
						}
						switch how {
						case "compare":
							for p := range n {
								own, want := s.memory[p*4096:][:4096], m.view[p*4096:][:4096]
								if !bytes.Equal(own, want) {
									copy(own, want)
								}
							}
						case "blind":
							for p := range n {
								own, want := s.memory[p*4096:][:4096], m.view[p*4096:][:4096]
								copy(own, want)
							}
						case "run":
							copy(s.memory[:n*4096], m.view[:n*4096])
						}
					}
				})
			}
		}
	}
}

// pages behind the image: clear against give back, each written again in full or one byte
func BenchmarkExpTail(b *testing.B) {
	for _, n := range []int{16, 64, 256, 1024, 4096} {
		for _, how := range []string{"clear", "clearpage", "compareclear", "giveback", "nothing"} {
			b.Run(fmt.Sprintf("n%d/%s", n, how), func(b *testing.B) {
				s, _ := Reserve(64 << 20)
				defer s.Release()
				for b.Loop() {
					for p := range n {
						s.memory[p*4096+8] = 1
					}
					switch how {
					case "clear":
						clear(s.memory[:n*4096])
					case "clearpage":
						for p := range n {
							clear(s.memory[p*4096:][:4096])
						}
					case "compareclear":
						for p := range n {
							own := s.memory[p*4096:][:4096]
							if !bytes.Equal(own, zeroes) {
								copy(own, zeroes)
							}
						}
					case "giveback":
						s.giveBack(0, uint64(n*4096))
					}
				}
			})
		}
	}
}

// image pages: keep and compare, against give back and fault again
func BenchmarkExpIdle(b *testing.B) {
	m := expImage(b, 1024)
	for _, stride := range []int{1, 4} {
		for _, how := range []string{"keep", "giveback"} {
			b.Run(fmt.Sprintf("stride%d/%s", stride, how), func(b *testing.B) {
				s := expSpace(b, m, 16<<20)
				defer s.Release()
				for b.Loop() {
					for p := 0; p < 256*stride; p += stride {
						s.memory[p*4096+8]++
						if how == "keep" {
							s.memory[p*4096+8]--
						}
					}
					for p := 0; p < 256*stride; p += stride {
						if how == "keep" {
							own, want := s.memory[p*4096:][:4096], m.view[p*4096:][:4096]
							if !bytes.Equal(own, want) {
								b.Fatal()
							}
						} else if stride > 1 {
							s.giveBack(uint64(p*4096), uint64((p+1)*4096))
						}
					}
					if how == "giveback" && stride == 1 {
						s.giveBack(0, 256*4096)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/page")
			})
		}
	}
}
