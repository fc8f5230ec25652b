package api_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// What a request that enqueues costs from the client to Redis and back: one task of a few bytes, and a batch of 1,000.
func BenchmarkEnqueue(b *testing.B) {
	rdb, err := queue.Connect(queuetest.Shared(b).URL())
	if err != nil {
		b.Fatal(err)
	}
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant()})
	if err != nil {
		b.Fatal(err)
	}
	server, err := api.Listen("127.0.0.1:0", api.Config{Clients: []*queue.Client{client}, Logger: hclog.NewNullLogger()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		_, _ = client.Close(), rdb.Close()
	})
	var batch bytes.Buffer
	batch.WriteString(`{"tasks":[`)
	for i := range 1000 {
		if i > 0 {
			batch.WriteByte(',')
		}
		fmt.Fprintf(&batch, `{"parameters":{"to":"ada","n":%d,"lines":["a","b",3]},"key":"order-%d","labels":{"to":"ada"},"priority":60}`, i, i)
	}
	batch.WriteString(`]}`)
	for name, r := range map[string]struct{ path, body string }{
		"One":   {"tasks", `{"to":"ada"}`},
		"Batch": {"tasks/batch", batch.String()},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			begun := processorTime(b)
			for b.Loop() {
				target := fmt.Sprintf("http://%s/v1/tenants/%s/queues/bench/%s", server.Addr(), client.Tenant(), r.path)
				response, err := http.Post(target, "application/json", bytes.NewReader([]byte(r.body)))
				if err != nil {
					b.Fatal(err)
				}
				answer, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode != http.StatusOK {
					b.Fatalf("%s %s %v", response.Status, answer, err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is that of this process so far, which other programs on the machine disturb less than the wall clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
