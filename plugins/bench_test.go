package plugins

import (
	"fmt"
	"testing"
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
