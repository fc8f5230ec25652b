package kv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestNames(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, name := range []string{
			"", "\x00", "a\x00b", "a\n", "\x7f", "\u0085", "\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("x", 257), strings.Repeat("x", 300), strings.Repeat("é", 129),
		} {
			kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: room}, {Bucket: name, Write: true, Quota: room}}, nil)
			for _, at := range []struct{ bucket, key string }{{"b", name}, {name, "k"}, {name, name}} {
				_, get := kv.Get(w.ctx, at.bucket, at.key)
				set := kv.Set(w.ctx, at.bucket, at.key, nil, 0)
				_, del := kv.Delete(w.ctx, at.bucket, at.key)
				_, increment := kv.Increment(w.ctx, at.bucket, at.key, 1)
				_, swap := kv.Swap(w.ctx, at.bucket, at.key, nil, nil, 0)
				_, list := kv.List(w.ctx, name, "", "", 1)
				_, store := w.Store.Get(w.ctx, at.bucket, at.key)
				_, people := w.Store.List(w.ctx, name, "", "", 1)
				for i, err := range []error{get, set, del, increment, swap, list, store, people} {
					if !errors.Is(err, service.ErrInvalid) {
						t.Errorf("%d of %.20q in %.20q: %v", i, at.key, at.bucket, err)
					}
				}
			}
			if name == "" {
				continue
			}
			_, prefix := kv.List(w.ctx, "b", name, "", 1)
			_, after := kv.List(w.ctx, "b", "", name, 1)
			if !errors.Is(prefix, service.ErrInvalid) || !errors.Is(after, service.ErrInvalid) {
				t.Errorf("list %.20q: %v, %v", name, prefix, after)
			}
		}
		w.holds(t, 0, 0)
		for _, name := range []string{" ", "a b", "*", "日本", "{x}", "_", "%00", "[", "-inf", "nil", strings.Repeat("x", 256), strings.Repeat("é", 128)} {
			kv := w.For([]Grant{{Bucket: name, Write: true, Quota: room}}, nil)
			if err := kv.Set(w.ctx, name, name, []byte(name), 0); err != nil {
				t.Error(err)
			}
			if got, err := kv.Get(w.ctx, name, name); err != nil || string(got) != name {
				t.Errorf("%.20q: %.20q, %v", name, got, err)
			}
			if got := must[[]string](t)(kv.List(w.ctx, name, name, "", 2)); !slices.Equal(got, []string{name}) {
				t.Errorf("%.20q lists %.20q", name, got)
			}
		}
	})
}

// The names are an interface: people with redis-cli and older hosts know them.
func TestKeys(t *testing.T) {
	t.Parallel()
	doc := string(must[[]byte](t)(os.ReadFile("doc.go")))
	k := keys{"NS"}
	for want, got := range map[string]string{
		"NS_kv_B": k.values("B"), "NS_kvkeys_B": k.names("B"), "NS_kvttl_B": k.expiry("B"), "NS_kvs": k.buckets(),
	} {
		if got != want || !strings.Contains(doc, "\n//\t"+want+" ") {
			t.Errorf("%s, want %s, as in doc.go", got, want)
		}
	}
}

// No bucket's keys are another's or the queue's, however it is called.
func TestBucketsDoNotMeet(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		names := []string{
			"a", "_b", "a_b", "_", "__", "kv", "kvs", "kvkeys_a", "kvttl_a", "kv_a", "s", "keys_a", "ttl_a", "keys", "ttl", w.keys.ns, w.keys.ns + "_kv_a",
		}
		var keys []string
		for _, name := range names {
			keys = append(keys, w.keys.values(name), w.keys.names(name), w.keys.expiry(name))
			kv := w.For([]Grant{{Bucket: name, Write: true, Quota: room}}, nil)
			if err := kv.Set(w.ctx, name, "key", []byte(name), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		keys = append(keys, w.keys.buckets())
		slices.Sort(keys)
		if len(slices.Compact(slices.Clone(keys))) != len(keys) {
			t.Errorf("a key twice: %q", keys)
		}
		there := must[[]string](t)(w.rdb.Keys(w.ctx, w.keys.ns+"_*").Result())
		slices.Sort(there)
		if !slices.Equal(there, keys) {
			t.Errorf("Redis has %q, want %q", there, keys)
		}
		for _, key := range keys {
			if second := strings.Split(key, "_")[1]; !slices.Contains([]string{"kv", "kvkeys", "kvttl", "kvs"}, second) {
				t.Errorf("%s is not one of the four", key)
			}
		}
		for _, name := range names {
			if got := must[[]byte](t)(w.Store.Get(w.ctx, name, "key")); string(got) != name {
				t.Errorf("%q holds %q", name, got)
			}
		}
	})
}

// The same bucket of another tenant is another one.
func TestTenants(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.set(t, "k", "v", 0)
		other := New(w.rdb, queuetest.Tenant())
		if _, err := other.Get(w.ctx, "b", "k"); !errors.Is(err, service.ErrNotFound) {
			t.Error(err)
		}
		if got := must[[]Bucket](t)(other.Buckets(w.ctx)); len(got) != 0 {
			t.Errorf("buckets: %v", got)
		}
	})
}

func TestDenied(t *testing.T) {
	w := setup(t)
	deny := func(bucket string, write bool) error {
		return fmt.Errorf("%w: %s, write %t", service.ErrDenied, bucket, write)
	}
	kv := w.For([]Grant{{Bucket: "b", Quota: room}, {Bucket: "both"}, {Bucket: "both", Write: true, Quota: room}}, deny)
	w.set(t, "k", "v", 0)
	if got := must[[]byte](t)(kv.Get(w.ctx, "b", "k")); string(got) != "v" {
		t.Errorf("%q", got)
	}
	if got := must[[]string](t)(kv.List(w.ctx, "b", "", "", 1)); !slices.Equal(got, []string{"k"}) {
		t.Errorf("%q", got)
	}
	if err := kv.Set(w.ctx, "both", "k", nil, 0); err != nil {
		t.Error(err)
	}
	_, get := kv.Get(w.ctx, "other", "k")
	_, list := kv.List(w.ctx, "other", "", "", 1)
	for _, err := range []error{get, list} {
		if fmt.Sprint(err) != "denied: other, write false" {
			t.Error(err)
		}
	}
	for _, bucket := range []string{"b", "other"} {
		set := kv.Set(w.ctx, bucket, "k", nil, 0)
		_, del := kv.Delete(w.ctx, bucket, "k")
		_, increment := kv.Increment(w.ctx, bucket, "k", 1)
		_, swap := kv.Swap(w.ctx, bucket, "k", []byte("v"), nil, 0)
		for i, err := range []error{set, del, increment, swap} {
			if fmt.Sprint(err) != "denied: "+bucket+", write true" {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
	w.reads(t, "k", "v")
	if _, err := w.For(nil, deny).Get(w.ctx, "b", "k"); !errors.Is(err, service.ErrDenied) {
		t.Error(err)
	}
}

// A key of the wrong type is an error that names it, and nothing is changed.
func TestWrongType(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		for _, key := range []string{w.keys.values("b"), w.keys.names("b"), w.keys.expiry("b"), w.keys.buckets()} {
			w.set(t, "k", "1", 0)
			w.set(t, "t", "1", time.Second)
			for _, spoil := range []func() error{
				func() error { return w.rdb.Set(w.ctx, key, "x", 0).Err() },
				func() error { return w.rdb.RPush(w.ctx, key, "x").Err() },
				func() error { return w.rdb.SAdd(w.ctx, key, "k").Err() },
			} {
				w.at(0)
				if err := errors.Join(w.rdb.Del(w.ctx, key).Err(), spoil()); err != nil {
					t.Fatal(err)
				}
				w.at(2000)
				before := w.dump(t)
				for method, err := range w.each(w.ctx) {
					if err == nil || !strings.Contains(err.Error(), key) || errors.Is(err, service.ErrUnavailable) {
						t.Errorf("%s with %s of another type: %v", method, key, err)
					}
				}
				if after := w.dump(t); after != before {
					t.Errorf("with %s of another type, something was changed", key)
				}
			}
			w.at(0)
			if err := w.rdb.Del(w.ctx, w.keys.values("b"), w.keys.names("b"), w.keys.expiry("b"), w.keys.buckets()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		// One that is spoiled hides no other.
		w.set(t, "k", "1", 0)
		other := w.For([]Grant{{Bucket: "a", Write: true, Quota: room}, {Bucket: "c", Write: true, Quota: room}}, nil)
		if err := errors.Join(other.Set(w.ctx, "a", "k", nil, 0), other.Set(w.ctx, "c", "k", nil, 0)); err != nil {
			t.Fatal(err)
		}
		if err := w.rdb.Set(w.ctx, w.keys.names("b"), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := w.Buckets(w.ctx)
		if err == nil || !strings.Contains(err.Error(), w.keys.names("b")) || !slices.Equal(got, []Bucket{{"a", 1, 1}, {"c", 1, 1}}) {
			t.Errorf("buckets: %v, %v", got, err)
		}
	})
}

// dump is what the keys of the bucket b hold; of miniredis, which cannot tell that, the types.
func (w *world) dump(t *testing.T) (all string) {
	t.Helper()
	for _, key := range []string{w.keys.values("b"), w.keys.names("b"), w.keys.expiry("b"), w.keys.buckets()} {
		all += must[string](t)(w.rdb.Type(w.ctx, key).Result()) + " "
		if dumped, err := w.rdb.Dump(w.ctx, key).Result(); !embedded(t) && !errors.Is(err, redis.Nil) {
			all += must[string](t)(dumped, err) + " "
		}
	}
	return all
}

// What somebody removed or wrote by hand is made good by the next call that counts.
func TestHandWritten(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		values, names, expiry, buckets := w.keys.values("b"), w.keys.names("b"), w.keys.expiry("b"), w.keys.buckets()
		for name, test := range map[string]struct {
			spoil func() error
			keys  []string // that are there after a further one was set
		}{
			"NoValues":    {func() error { return w.rdb.Del(w.ctx, values).Err() }, nil},
			"NoNames":     {func() error { return w.rdb.Del(w.ctx, names).Err() }, []string{"k", "t"}},
			"NoExpiry":    {func() error { return w.rdb.Del(w.ctx, expiry).Err() }, []string{"k", "t"}},
			"NoBuckets":   {func() error { return w.rdb.Del(w.ctx, buckets).Err() }, []string{"k", "t"}},
			"NoBucket":    {func() error { return w.rdb.HDel(w.ctx, buckets, "b").Err() }, []string{"k", "t"}},
			"Nothing":     {func() error { return w.rdb.Del(w.ctx, values, names, buckets).Err() }, nil},
			"OneLess":     {func() error { return w.rdb.HDel(w.ctx, values, "k").Err() }, []string{"t"}},
			"OneMore":     {func() error { return w.rdb.HSet(w.ctx, values, "m", "more").Err() }, []string{"k", "m", "t"}},
			"OneName":     {func() error { return w.rdb.ZAdd(w.ctx, names, redis.Z{Member: "m"}).Err() }, []string{"k", "t"}},
			"OneTime":     {func() error { return w.rdb.ZAdd(w.ctx, expiry, redis.Z{Member: "m", Score: 5}).Err() }, []string{"k", "t"}},
			"NoNumber":    {func() error { return w.rdb.HSet(w.ctx, buckets, "b", "x").Err() }, []string{"k", "t"}},
			"NotPositive": {func() error { return w.rdb.HSet(w.ctx, buckets, "b", "-5").Err() }, []string{"k", "t"}},
			"Zero":        {func() error { return w.rdb.HSet(w.ctx, buckets, "b", "0").Err() }, []string{"k", "t"}},
			"Infinite":    {func() error { return w.rdb.HSet(w.ctx, buckets, "b", "inf").Err() }, []string{"k", "t"}},
			"Huge":        {func() error { return w.rdb.HSet(w.ctx, buckets, "b", strings.Repeat("9", 400)).Err() }, []string{"k", "t"}},
		} {
			for _, how := range []string{"set", "increment", "delete", "list"} {
				if err := w.rdb.Del(w.ctx, values, names, expiry, buckets).Err(); err != nil {
					t.Fatal(err)
				}
				w.at(0)
				w.set(t, "gone", "", 0)
				w.set(t, "k", "1", 0)
				w.set(t, "t", "1", time.Minute)
				if how != "delete" {
					must[bool](t)(w.KV.Delete(w.ctx, "b", "gone"))
				}
				if err := test.spoil(); err != nil {
					t.Fatal(err)
				}
				w.at(10)
				want := slices.Clone(test.keys)
				switch how {
				case "set":
					w.set(t, "set", "", 0)
					want = append(want, "set")
				case "increment":
					must[int64](t)(w.KV.Increment(w.ctx, "b", "set", 1))
					want = append(want, "set")
				case "delete":
					must[bool](t)(w.KV.Delete(w.ctx, "b", "gone"))
				}
				slices.Sort(want)
				got := must[[]string](t)(w.KV.List(w.ctx, "b", "", "", 10))
				if !slices.Equal(got, want) {
					t.Errorf("%s, %s: keys %q, want %q", name, how, got, want)
				}
				bytes := int64(0)
				for _, key := range got {
					bytes += int64(len(key) + len(must[[]byte](t)(w.KV.Get(w.ctx, "b", key))))
				}
				w.holds(t, int64(len(got)), bytes)
			}
		}
	})
}

// A time that is left of what somebody removed by hand is not that of a value that comes to its place.
func TestTimeOfAnotherValue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for name, write := range map[string]func() error{
			"Set": func() error { return w.KV.Set(w.ctx, "b", "k", []byte("1"), 0) },
			"Increment": func() error {
				_, err := w.KV.Increment(w.ctx, "b", "k", 1)
				return err
			},
		} {
			w.at(0)
			w.set(t, "k", "1", time.Second)
			if err := w.rdb.Del(w.ctx, w.keys.values("b")).Err(); err != nil {
				t.Fatal(err)
			}
			if err := write(); err != nil {
				t.Fatal(err)
			}
			w.at(5000)
			if value, err := w.KV.Get(w.ctx, "b", "k"); err != nil || string(value) != "1" {
				t.Errorf("%s: %q, %v", name, value, err)
			}
		}
	})
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	server := queuetest.Start(t)
	proxy := queuetest.NewProxy(t, server)
	w := newWorld(t, proxy.URL()+"?read_timeout=20s")
	w.set(t, "k", "1", 0)

	server.Pause()
	ctx, cancel := context.WithCancel(w.ctx)
	time.AfterFunc(20*time.Millisecond, cancel)
	for method, err := range w.each(ctx) { // the first of them waits, the others need not begin
		if !errors.Is(err, context.Canceled) || errors.Is(err, service.ErrUnavailable) {
			t.Errorf("%s: %v", method, err)
		}
	}
	ctx, cancel = context.WithTimeout(w.ctx, 20*time.Millisecond)
	defer cancel()
	for method, err := range w.each(ctx) {
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, service.ErrUnavailable) {
			t.Errorf("%s: %v", method, err)
		}
	}
	server.Resume()
	eventually(t, "an answer", func() bool { return w.rdb.Ping(w.ctx).Err() == nil })
	proxy.Refuse()
	for method, err := range w.each(w.ctx) {
		if !errors.Is(err, service.ErrUnavailable) {
			t.Errorf("%s with Redis away: %v", method, err)
		}
	}
	proxy.Pass()
	eventually(t, "Redis", func() bool { return w.KV.Set(w.ctx, "b", "k", []byte("2"), 0) == nil })

	proxy.CutReplies(1, "set-and-lost")
	if err := w.KV.Set(w.ctx, "b", "k", []byte("set-and-lost"), 0); !errors.Is(err, service.ErrUnavailable) {
		t.Errorf("an answer that was lost: %v", err)
	}
	proxy.CutReplies(0, "")
	eventually(t, "what was written all the same", func() bool {
		value, err := w.KV.Get(w.ctx, "b", "k")
		return err == nil && string(value) == "set-and-lost"
	})

	server.Kill()
	for method, err := range w.each(w.ctx) {
		if !errors.Is(err, service.ErrUnavailable) {
			t.Errorf("%s with Redis dead: %v", method, err)
		}
	}
}

// A Redis that is full refuses what needs room, lets the rest go on, and half does nothing.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, queuetest.Start(t).URL()+slow)
	w.set(t, "n", "1", 0)
	w.set(t, "gone", "1", 0)
	if err := w.rdb.ConfigSet(w.ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, increment := w.KV.Increment(w.ctx, "b", "n", 1)
	_, fresh := w.KV.Increment(w.ctx, "b", "m", 1)
	_, swap := w.KV.Swap(w.ctx, "b", "m", nil, []byte("1"), time.Second)
	set := w.KV.Set(w.ctx, "b", "m", []byte("1"), time.Second)
	for i, err := range []error{increment, fresh, swap, set} {
		if !errors.Is(err, service.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%d: %v", i, err)
		}
	}
	w.reads(t, "n", "1")
	w.holds(t, 2, 7)
	if was := must[bool](t)(w.KV.Delete(w.ctx, "b", "gone")); !was {
		t.Error("nothing was deleted")
	}
	w.holds(t, 1, 2)
}
