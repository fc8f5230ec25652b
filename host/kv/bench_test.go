package kv

import (
	"context"
	"fmt"
	"testing"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// sizes are those of the values, in bytes.
var sizes = []int{100, 10_000, MaxValue}

// BenchmarkGet reads one of 1,000 values, or of ten large ones.
func BenchmarkGet(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			w, keys := benchWorld(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				must[[]byte](b)(w.KV.Get(b.Context(), "b", keys[i%len(keys)]))
			}
		})
	}
}

// BenchmarkSet replaces one of 1,000 values, or of ten large ones.
func BenchmarkSet(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			w, keys := benchWorld(b, size)
			value := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := w.KV.Set(b.Context(), "b", keys[i%len(keys)], value, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPing is a round trip in which Redis does nothing: what the others are to be compared with.
func BenchmarkPing(b *testing.B) {
	w := newWorld(b, queuetest.Shared(b).URL())
	for b.Loop() {
		if err := w.rdb.Ping(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchWorld(b *testing.B, size int) (*world, []string) {
	b.Helper()
	w := newWorld(b, queuetest.Shared(b).URL())
	keys := make([]string, min(1000, 10*MaxValue/size))
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%06d", i)
		w.set(b, keys[i], string(make([]byte, size)), 0)
	}
	ctx := context.WithoutCancel(b.Context())
	b.Cleanup(func() { w.rdb.Del(ctx, w.keys.values("b"), w.keys.names("b"), w.keys.buckets()) })
	return w, keys
}
