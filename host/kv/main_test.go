package kv

import (
	"context"
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	// The tests wait more than they compute: more of them at a time than there are processors.
	_ = flag.Set("test.parallel", "8")
	queuetest.Exit(m)
}

// room is the quota of tests that are about something else.
const room = 16 << 20

// world is a tenant of its own on one server.
type world struct {
	*Store
	service.KV // as a plugin sees it that may write to b
	rdb        redis.UniversalClient
	ctx        context.Context
}

func newWorld(t testing.TB, url string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	rdb, err := queue.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	store := New(rdb, queuetest.Tenant())
	return &world{Store: store, KV: store.For([]Grant{{Bucket: "b", Write: true, Quota: room}}, nil), rdb: rdb, ctx: ctx}
}

// slow lets a test wait for an answer on a machine that may be busy with other things.
const slow = "?read_timeout=20s"

// setup is a tenant of its own on the shared redis-server.
func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorld(t, queuetest.Shared(t).URL()+slow)
}

// everywhere runs a test on redis-server, on that of Redis 6.2, and on the embedded Redis of `quern dev`.
func everywhere(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, queuetest.Shared(t).URL()+slow))
	})
	t.Run("redis 6.2", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, queuetest.SharedOld(t).URL()+slow))
	})
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, queuetest.Mini(t)+slow))
	})
}

// embedded tells whether the world is on miniredis, which compiles each script each time: what takes
// many of them does fewer there.
func embedded(t testing.TB) bool { return strings.Contains(t.Name(), "/miniredis") }

// must ends the test at an error.
func must[T any](t rapid.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// at sets the clock, to milliseconds after an epoch of the test's own.
func (w *world) at(ms int64) { w.clock = strconv.FormatInt(1700000000000+ms, 10) }

func (w *world) set(t testing.TB, key, value string, ttl time.Duration) {
	t.Helper()
	if err := w.KV.Set(w.ctx, "b", key, []byte(value), ttl); err != nil {
		t.Fatal(err)
	}
}

// reads checks a value of the bucket b.
func (w *world) reads(t testing.TB, key, want string) {
	t.Helper()
	if got := must[[]byte](t)(w.KV.Get(w.ctx, "b", key)); got == nil || string(got) != want {
		t.Errorf("%q is %q, want %q", key, got, want)
	}
}

// holds checks how many values and bytes the bucket b has, by the count and by what is really there.
func (w *world) holds(t rapid.TB, values, bytes int64) {
	t.Helper()
	if got := w.bucket(t); got.Keys != values || got.Bytes != bytes {
		t.Errorf("the bucket has %d keys and %d bytes, want %d and %d", got.Keys, got.Bytes, values, bytes)
	}
	there := must[map[string]string](t)(w.rdb.HGetAll(w.ctx, w.keys.values("b")).Result())
	var sum int64
	for key, value := range there {
		sum += int64(len(key) + len(value))
	}
	names := must[int64](t)(w.rdb.ZCard(w.ctx, w.keys.names("b")).Result())
	if int64(len(there)) != values || names != values || sum != bytes {
		t.Errorf("Redis has %d values, %d names and %d bytes, want %d and %d", len(there), names, sum, values, bytes)
	}
}

// bucket is what b holds, nothing if it is not listed.
func (w *world) bucket(t rapid.TB) Bucket {
	t.Helper()
	for _, bucket := range must[[]Bucket](t)(w.Buckets(w.ctx)) {
		if bucket.Name == "b" {
			return bucket
		}
	}
	return Bucket{}
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, 2*time.Minute, 5*time.Millisecond, what)
}
