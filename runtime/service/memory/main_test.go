package memory

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	code := queuetest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// room is the quota of tests that are about something else.
const room = 16 << 20

// world is a store with a clock of its own.
type world struct {
	*Store
	service.KV // as a plugin sees it that may write to b
	ctx        context.Context
	clock      time.Time
}

func setup(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{Store: NewStore(), ctx: t.Context(), clock: time.UnixMilli(1700000000000)}
	w.now = func() time.Time { return w.clock }
	w.KV = w.For([]Grant{{Bucket: "b", Write: true, Quota: room}})
	return w
}

// at sets the clock, to milliseconds after an epoch of the test's own.
func (w *world) at(ms int64) { w.clock = time.UnixMilli(1700000000000 + ms) }

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
func (w *world) holds(t testing.TB, values int, bytes int64) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.open("b")
	var sum int64
	for key, e := range b.values {
		sum += int64(len(key) + len(e.value))
	}
	if len(b.values) != values || b.bytes != bytes || sum != bytes {
		t.Errorf("the bucket has %d values of %d bytes and counts %d, want %d and %d", len(b.values), sum, b.bytes, values, bytes)
	}
}

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
