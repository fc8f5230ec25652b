package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// benchServer serves a tenant of its own until the benchmark ends.
func benchServer(b *testing.B, rdb redis.UniversalClient) (*api.Server, *queue.Client) {
	b.Helper()
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
		_ = client.Close()
	})
	return server, client
}

func benchRedis(b *testing.B, url string) redis.UniversalClient {
	b.Helper()
	rdb, err := queue.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// What a request that enqueues costs from the client to Redis and back: one task of a few bytes, and a batch of 1,000.
func BenchmarkEnqueue(b *testing.B) {
	server, client := benchServer(b, benchRedis(b, queuetest.Shared(b).URL()))
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

// What a job costs that retries 100,000 failed tasks with 10 KB each, while a listener takes and completes other tasks as fast as it
// can: the time, and how long Redis was held at once, at most.
func BenchmarkJob(b *testing.B) {
	const tasks, block = 100_000, 1000
	shared := queuetest.Start(b)
	rdb := benchRedis(b, shared.URL())
	server, client := benchServer(b, rdb)
	ctx := b.Context()
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	node := listen.New(client)
	check(node.Join(ctx))
	check(node.Register(ctx, "q"))
	check(node.Register(ctx, "busy"))
	settle := func(ctx context.Context, name string, failure *queue.Failure) (n int, err error) {
		reply := node.Reserve(ctx, []listen.ReserveRequest{{Queue: name, Count: 100, Start: true, Plugin: "p", Digest: "sha256:0"}})[0]
		settlements := make([]listen.Settlement, len(reply.Tasks))
		for i := range reply.Tasks {
			settlements[i] = listen.Settlement{Claim: reply.Tasks[i].Claim(), Failure: failure}
		}
		if reply.Err == nil && len(settlements) > 0 {
			_, reply.Err = node.Settle(ctx, name, settlements)
		}
		return len(settlements), reply.Err
	}
	specs := make([]queue.Spec, block)
	for i := range specs {
		specs[i].Parameters = bytes.Repeat([]byte("x"), 10_000)
	}
	for range tasks / block {
		_, err := client.Queue("q").EnqueueMany(ctx, specs)
		check(err)
	}
	for b.Loop() {
		b.StopTimer()
		for left := tasks; left > 0; {
			n, err := settle(ctx, "q", &queue.Failure{Reason: queue.ReasonError, Message: "no"})
			check(err)
			left -= n
		}
		check(rdb.ConfigSet(ctx, "slowlog-log-slower-than", "1000").Err())
		check(rdb.ConfigSet(ctx, "slowlog-max-len", "10000").Err())
		check(rdb.Do(ctx, "SLOWLOG", "RESET").Err())
		busy, stop := context.WithCancel(ctx)
		other := make(chan int, 1)
		go func() {
			done := 0
			for small := make([]queue.Spec, 100); busy.Err() == nil; {
				_, _ = client.Queue("busy").EnqueueMany(busy, small)
				n, _ := settle(busy, "busy", nil)
				done += n
			}
			other <- done
		}()
		b.StartTimer()
		job := retryAll(b, server, client)
		b.StopTimer()
		stop()
		b.ReportMetric(float64(<-other)/b.Elapsed().Seconds(), "other-tasks/s")
		if job.Ends[manage.JobEndDone] != tasks {
			b.Fatalf("%+v", job)
		}
		var longest time.Duration
		slow, err := rdb.SlowLogGet(ctx, -1).Result()
		check(err)
		for _, entry := range slow {
			longest = max(longest, entry.Duration)
		}
		b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		b.StartTimer()
	}
}

// retryAll retries the failed tasks of q by a job, and waits for its end.
func retryAll(b *testing.B, server *api.Server, client *queue.Client) *manage.Job {
	b.Helper()
	target := fmt.Sprintf("http://%s/v1/tenants/%s/jobs", server.Addr(), client.Tenant())
	response, err := http.Post(target, "application/json", strings.NewReader(`{"action":"retry","filter":{"queue":"q"},"start":true}`))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var made admin.Job
	if err := json.NewDecoder(response.Body).Decode(&made); err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response.Status, err)
	}
	for tick := time.Tick(20 * time.Millisecond); ; <-tick {
		job, err := manage.NewJobs(client).Get(b.Context(), made.ID)
		if err != nil {
			b.Fatal(err)
		}
		if job.State == manage.JobDone || job.State == manage.JobStopped {
			return job
		}
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
