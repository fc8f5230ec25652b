package plugins

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
)

func BenchmarkAcquire(b *testing.B) {
	f := setup(b, Config{}, func(dir string) { write(b, dir+"/a.wasm", guest(b, 1)) })
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f.Acquire("acme", "a").Release()
		}
	})
}

// BenchmarkLook is one look at a directory in which nothing has changed.
func BenchmarkLook(b *testing.B) {
	for _, plugins := range []int{10, 1000} {
		b.Run(fmt.Sprint(plugins), func(b *testing.B) {
			dir := b.TempDir()
			for i := range plugins {
				write(b, fmt.Sprintf("%s/p%d.wasm", dir, i), guest(b, 1))
				write(b, fmt.Sprintf("%s/p%d.yaml", dir, i), []byte("version: 1"))
			}
			for b.Loop() {
				if _, err := scanDirectory(dir, []string{"acme"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStart is the start of a directory of 1,000 plugins of one large module, which the cache has: copies of the file,
// and links to it. The files are old enough to be read once, as those of a host that starts again.
func BenchmarkStart(b *testing.B) {
	const plugins = 1000
	// A section that means nothing, with the name x.
	module := append(binary.AppendUvarint(append(guest(b, 1), 0), 4<<20), append([]byte("\x01x"), make([]byte, 4<<20-2)...)...)
	cache := b.TempDir()
	for name, add := range map[string]func(from, to string){
		"Copies": func(_, to string) { write(b, to, module) },
		"Links":  func(from, to string) { symlink(b, from, to) },
	} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			write(b, dir+"/p0.wasm", module)
			for i := 1; i < plugins; i++ {
				add("p0.wasm", fmt.Sprintf("%s/p%d.wasm", dir, i))
			}
			<-time.After(settleTime)
			for b.Loop() {
				b.StopTimer()
				f := preparedOn(b, runtime.Config{CacheDir: cache}, Config{Dir: dir}, nil)
				b.StartTimer()
				f.start()
				<-f.Ready()
				b.StopTimer()
				if served := len(f.BindingsOf("acme")); served != plugins {
					b.Fatalf("%d plugins serve, want %d", served, plugins)
				}
				f.stop()
				b.StartTimer()
			}
		})
	}
}
