package memory

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Random calls are made of this store and of the host's in a real Redis: they answer the same, in the same words.
func TestSameAsTheHosts(t *testing.T) {
	t.Parallel()
	rdb, err := queue.Connect(queuetest.Shared(t).URL() + "?read_timeout=20s")
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	const most = 60 // of the runs that rapid would make
	runs, failing := 0, false
	rapid.Check(t, func(r *rapid.T) {
		if runs++; runs > most && !failing {
			return
		}
		failing = true // until it is known better: what fails is run again, to be made smaller
		there, here := kv.New(rdb, queuetest.Tenant()), NewStore()
		var grants []Grant
		var hosts []kv.Grant
		for _, quota := range []int64{0, 12, 40} {
			grants = append(grants, Grant{Bucket: "b", Write: true, Quota: quota})
		}
		grants = append(grants, Grant{Bucket: "b", Quota: 100}, Grant{Bucket: "other", Write: true, Quota: 100})
		for _, grant := range grants {
			hosts = append(hosts, kv.Grant(grant))
		}
		r.Repeat(map[string]func(*rapid.T){"": func(*rapid.T) {}, "call": func(r *rapid.T) {
			i := rapid.IntRange(0, len(grants)-1).Draw(r, "view")
			call := drawCall(r)
			want := call(t.Context(), there.For(hosts[i:i+1]))
			got := call(t.Context(), here.For(grants[i:i+1]))
			if !slices.Equal(got.answer, want.answer) || got.text() != want.text() || !alike(got.err, want.err) {
				r.Fatalf("%q, %v, want %q, %v", got.answer, got.err, want.answer, want.err)
			}
		}})
		failing = false
	})
}

// answered is what a call came back with.
type answered struct {
	answer []string
	err    error
}

func (a answered) text() string {
	if a.err == nil {
		return ""
	}
	return a.err.Error()
}

// alike tells whether two errors are the same to a guest.
func alike(a, b error) bool {
	for _, kind := range []error{service.ErrInvalid, service.ErrDenied, service.ErrNotFound, service.ErrTooBig, service.ErrQuota, service.ErrConflict, service.ErrLimit} {
		if errors.Is(a, kind) != errors.Is(b, kind) {
			return false
		}
	}
	return (a == nil) == (b == nil)
}

// drawCall is a random call of any method. Nothing that it writes expires while the test runs.
func drawCall(r *rapid.T) func(ctx context.Context, kv service.KV) answered {
	text := func(name string, words ...string) string { return rapid.SampledFrom(words).Draw(r, name) }
	bucket := text("bucket", "b", "b", "b", "b", "b", "b", "other", "none", "")
	key := text("key", "a", "b", "aa", "ab", "é", "again", "\n")
	value := []byte(text("value", "", "0", "9", "-1", "99", "9223372036854775807", "x\x00", "\xff", "again"))
	old := []byte(text("old", "", "0", "9", "-1", "99", "again"))
	if rapid.Bool().Draw(r, "none") {
		old = nil
	}
	ttl := rapid.SampledFrom([]time.Duration{0, time.Hour, -1}).Draw(r, "ttl")
	delta := rapid.SampledFrom([]int64{0, 1, -1, 1000, math.MaxInt64, math.MinInt64}).Draw(r, "delta")
	prefix, after := text("prefix", "", "a", "ag", "é", "z"), text("after", "", "a", "aa", "é", "0")
	limit := rapid.IntRange(0, 3).Draw(r, "limit")
	return map[string]func(ctx context.Context, kv service.KV) answered{
		"get": func(ctx context.Context, kv service.KV) answered {
			value, err := kv.Get(ctx, bucket, key)
			return answered{shown(value), err}
		},
		"set": func(ctx context.Context, kv service.KV) answered {
			return answered{nil, kv.Set(ctx, bucket, key, value, ttl)}
		},
		"delete": func(ctx context.Context, kv service.KV) answered {
			was, err := kv.Delete(ctx, bucket, key)
			return answered{map[bool][]string{true: {"was"}}[was], err}
		},
		"increment": func(ctx context.Context, kv service.KV) answered {
			sum, err := kv.Increment(ctx, bucket, key, delta)
			return answered{[]string{time.Duration(sum).String()}, err}
		},
		"swap": func(ctx context.Context, kv service.KV) answered {
			present, err := kv.Swap(ctx, bucket, key, old, value, ttl)
			return answered{shown(present), err}
		},
		"list": func(ctx context.Context, kv service.KV) answered {
			keys, err := kv.List(ctx, bucket, prefix, after, limit)
			return answered{keys, err}
		},
	}[text("method", "get", "set", "set", "delete", "increment", "swap", "swap", "list")]
}

// shown tells no value from an empty one.
func shown(value []byte) []string {
	if value == nil {
		return nil
	}
	return []string{string(value)}
}
