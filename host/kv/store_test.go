package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

func TestGetSetDelete(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if value, err := w.KV.Get(w.ctx, "b", "k"); !errors.Is(err, service.ErrNotFound) || value != nil {
			t.Errorf("nothing is %q, %v", value, err)
		}
		w.set(t, "k", "value", 0)
		w.reads(t, "k", "value")
		w.set(t, "k", "\x00\xff\r\n", 0)
		w.reads(t, "k", "\x00\xff\r\n")
		w.set(t, "k", "", 0)
		w.reads(t, "k", "")
		if err := w.KV.Set(w.ctx, "b", "nil", nil, 0); err != nil {
			t.Error(err)
		}
		w.reads(t, "nil", "")
		w.holds(t, 2, 4)
		for _, want := range []bool{true, false} {
			if was := must[bool](t)(w.KV.Delete(w.ctx, "b", "k")); was != want {
				t.Errorf("deleted: %t, want %t", was, want)
			}
		}
		must[bool](t)(w.KV.Delete(w.ctx, "b", "nil"))
		w.holds(t, 0, 0)
		if left := must[[]string](t)(w.rdb.Keys(w.ctx, w.keys.ns+"_*").Result()); len(left) != 0 {
			t.Errorf("an empty bucket leaves %q", left)
		}
	})
}

// The largest value goes in and out whole, and one byte more does not go in.
func TestMaxValue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		value := make([]byte, MaxValue)
		for i := range value {
			value[i] = byte(i * 7)
		}
		larger := make([]byte, MaxValue+1)
		w.set(t, "k", string(value), 0)
		w.reads(t, "k", string(value))
		w.holds(t, 1, MaxValue+1)
		if _, err := w.KV.Swap(w.ctx, "b", "k", value, larger, 0); !errors.Is(err, service.ErrTooBig) {
			t.Error(err)
		}
		if err := w.KV.Set(w.ctx, "b", "k", larger, 0); !errors.Is(err, service.ErrTooBig) || !strings.Contains(err.Error(), "524289") {
			t.Error(err)
		}
		if _, err := w.KV.Swap(w.ctx, "b", "k", value, []byte("less"), 0); err != nil {
			t.Error(err)
		}
		w.holds(t, 1, 5)
	})
}

// What has expired is gone for every method, at its millisecond, however little one call removes.
func TestExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.sweep = 2
		fill := func() {
			w.at(0)
			for i := range 9 {
				w.set(t, fmt.Sprintf("k%d", i), "7", time.Second)
			}
			w.set(t, "stays", "7", 0)
			w.at(999)
			w.reads(t, "k8", "7")
			w.holds(t, 10, 9*3+6)
			w.at(1000)
		}
		for name, look := range map[string]func() (any, error){
			"Get": func() (any, error) {
				_, err := w.KV.Get(w.ctx, "b", "k8")
				return errors.Is(err, service.ErrNotFound), nil
			},
			"Delete": func() (any, error) {
				was, err := w.KV.Delete(w.ctx, "b", "k8")
				return !was, err
			},
			"Increment": func() (any, error) {
				sum, err := w.KV.Increment(w.ctx, "b", "k8", 1)
				if err == nil {
					_, err = w.KV.Delete(w.ctx, "b", "k8")
				}
				return sum == 1, err
			},
			"Swap": func() (any, error) {
				_, err := w.KV.Swap(w.ctx, "b", "k8", []byte("7"), []byte("8"), 0)
				return errors.Is(err, service.ErrConflict), nil
			},
			"SwapAbsent": func() (any, error) {
				_, err := w.KV.Swap(w.ctx, "b", "k8", nil, []byte("8"), 0)
				if err == nil {
					_, err = w.KV.Delete(w.ctx, "b", "k8")
				}
				return true, err
			},
			"List": func() (any, error) {
				keys, err := w.KV.List(w.ctx, "b", "", "", 10)
				return slices.Equal(keys, []string{"stays"}), err
			},
			"Buckets": func() (any, error) {
				buckets, err := w.Buckets(w.ctx)
				return slices.Equal(buckets, []Bucket{{Name: "b", Keys: 1, Bytes: 6}}), err
			},
		} {
			fill()
			if right, err := look(); err != nil || right != true {
				t.Errorf("%s sees what has expired: %v", name, err)
			}
			w.holds(t, 1, 6)
		}
	})
}

// A bucket whose values have all expired holds nothing, and is not listed.
func TestExpiryOfTheLast(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.set(t, "k", "v", time.Millisecond)
		w.at(1)
		w.holds(t, 0, 0)
		if left := must[[]string](t)(w.rdb.Keys(w.ctx, w.keys.ns+"_*").Result()); len(left) != 0 {
			t.Errorf("what has expired leaves %q", left)
		}
	})
}

// Set and Swap give another time, or none; Increment leaves it.
func TestTTLOfAChangedValue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, test := range []struct {
			name   string
			change func() error
			until  int64 // 0: for ever
		}{
			{"Set", func() error { return w.KV.Set(w.ctx, "b", "k", []byte("1"), 0) }, 0},
			{"SetLonger", func() error { return w.KV.Set(w.ctx, "b", "k", []byte("1"), time.Minute) }, 60_010},
			{"SetShorter", func() error { return w.KV.Set(w.ctx, "b", "k", []byte("1"), time.Nanosecond) }, 11},
			{"SetNegative", func() error { return w.KV.Set(w.ctx, "b", "k", []byte("1"), -time.Second) }, 0},
			{"SetLongest", func() error { return w.KV.Set(w.ctx, "b", "k", []byte("1"), math.MaxInt64) }, 0},
			{"Swap", func() error {
				_, err := w.KV.Swap(w.ctx, "b", "k", []byte("1"), []byte("2"), 0)
				return err
			}, 0},
			{"SwapTTL", func() error {
				_, err := w.KV.Swap(w.ctx, "b", "k", []byte("1"), []byte("2"), 5*time.Second)
				return err
			}, 5010},
			{"Increment", func() error {
				_, err := w.KV.Increment(w.ctx, "b", "k", 5)
				return err
			}, 1000},
		} {
			w.at(0)
			w.set(t, "k", "1", time.Second)
			w.at(10)
			if err := test.change(); err != nil {
				t.Errorf("%s: %v", test.name, err)
				continue
			}
			if test.until == 0 {
				test.until = 1_000_000_000
			} else {
				w.at(test.until)
				if _, err := w.KV.Get(w.ctx, "b", "k"); !errors.Is(err, service.ErrNotFound) {
					t.Errorf("%s: it lives on: %v", test.name, err)
				}
				w.at(0)
				w.set(t, "k", "1", time.Second)
				w.at(10)
				_ = test.change()
			}
			w.at(test.until - 1)
			if _, err := w.KV.Get(w.ctx, "b", "k"); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		}
	})
}

// Without a clock of the test's, Redis's decides.
func TestTTLByRedisClock(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.set(t, "long", "v", time.Hour)
		w.set(t, "short", "v", 50*time.Millisecond)
		eventually(t, "the end of a value", func() bool {
			_, err := w.KV.Get(w.ctx, "b", "short")
			return errors.Is(err, service.ErrNotFound)
		})
		w.reads(t, "long", "v")
		w.holds(t, 1, 5)
	})
}

func TestQuota(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		w.sweep = 2
		kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: 10}}, nil)
		ok := func(key, value string, ttl time.Duration) {
			t.Helper()
			if err := kv.Set(w.ctx, "b", key, []byte(value), ttl); err != nil {
				t.Error(err)
			}
		}
		full := func(err error) {
			t.Helper()
			if !errors.Is(err, service.ErrQuota) || !strings.Contains(err.Error(), "may hold 10") {
				t.Errorf("over the quota: %v", err)
			}
		}
		full(kv.Set(w.ctx, "b", "a", []byte("0123456789"), 0))
		w.holds(t, 0, 0)
		ok("a", "012345678", 0) // exactly full
		w.holds(t, 1, 10)
		full(kv.Set(w.ctx, "b", "b", nil, 0))
		full(kv.Set(w.ctx, "b", "a", []byte("0123456789"), 0))
		_, err := kv.Swap(w.ctx, "b", "a", []byte("012345678"), []byte("0123456789"), 0)
		full(err)
		_, err = kv.Swap(w.ctx, "b", "b", nil, []byte("0"), 0)
		full(err)
		_, err = kv.Increment(w.ctx, "b", "b", 1)
		full(err)
		w.reads(t, "a", "012345678")
		w.holds(t, 1, 10)

		ok("a", "987654321", 0) // as large
		ok("a", "99", 0)        // smaller frees
		ok("b", "12345", 0)
		ok("b", "123456", 0) // larger, and full again
		w.holds(t, 2, 10)
		_, err = kv.Increment(w.ctx, "b", "a", 1)
		full(err)
		w.reads(t, "a", "99")
		if sum := must[int64](t)(kv.Increment(w.ctx, "b", "a", -90)); sum != 9 {
			t.Errorf("sum %d", sum)
		}
		w.holds(t, 2, 9)
		must[bool](t)(kv.Delete(w.ctx, "b", "b")) // delete frees
		w.holds(t, 1, 2)

		for i := range 8 { // expiry frees, also what one call does not remove
			ok(string(rune('g'+i)), "", time.Second)
		}
		full(kv.Set(w.ctx, "b", "z", []byte("1234567"), 0))
		w.at(1000)
		ok("z", "1234567", 0)
		w.holds(t, 2, 10)
		must[bool](t)(kv.Delete(w.ctx, "b", "z"))

		for i := range 8 {
			ok(string(rune('g'+i)), "", time.Second)
		}
		w.at(2000)
		if _, err := kv.Swap(w.ctx, "b", "z", nil, []byte("1234567"), time.Second); err != nil {
			t.Error(err)
		}
		w.holds(t, 2, 10)
		w.at(3000)
		for i := range 8 {
			ok(string(rune('g'+i)), "", time.Second)
		}
		w.at(4000)
		if sum := must[int64](t)(kv.Increment(w.ctx, "b", "z", -100000)); sum != -100000 {
			t.Errorf("sum %d", sum)
		}
		w.holds(t, 2, 10)
	})
}

// A tenant's quota bounds the bytes of all buckets together; the refusal names it, its value and the remedy, and is
// counted. Smaller values and other tenants pass.
func TestQuotaOfTheTenant(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.at(0)
		kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: 100}, {Bucket: "other", Write: true, Quota: 100}}, nil)
		set := func(bucket, key, value string) error { return kv.Set(w.ctx, bucket, key, []byte(value), time.Second) }
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		full := func(used int64, err error) {
			t.Helper()
			want := fmt.Sprintf("the quota kv_bytes of tenant %s is 20, and %d are used: delete keys, or have it raised with `quern tenant set --kv-bytes`", w.keys.ns, used)
			if !errors.Is(err, service.ErrQuota) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		ok(set("other", "k", "1234567890"))
		ok(w.rdb.HSet(w.ctx, w.keys.quotas(), "kv_bytes", "20").Err())
		ok(set("b", "k", "12345678"))
		full(20, set("b", "k", "123456789"))
		full(20, set("other", "x", ""))
		_, err := kv.Swap(w.ctx, "b", "new", nil, nil, 0)
		full(20, err)
		_, err = kv.Increment(w.ctx, "b", "n", 1)
		full(20, err)
		ok(set("b", "k", "87654321"))
		ok(set("b", "k", ""))
		if sum := must[int64](t)(kv.Increment(w.ctx, "b", "n", 1)); sum != 1 {
			t.Errorf("sum %d", sum)
		}
		full(14, set("b", "x", "1234567"))
		if n := w.rdb.HGet(w.ctx, w.keys.used(), "refused:kv_bytes").Val(); n != "5" {
			t.Errorf("%s refused", n)
		}
		w.at(1000)
		full(13, set("b", "x", "1234567")) // what has expired in the other bucket counts until it is used
		ok(w.rdb.HSet(w.ctx, w.keys.quotas(), "kv_bytes", "damaged").Err())
		ok(set("other", "x", strings.Repeat("x", 50)))
	})
}

// The quota is the bucket's, whoever wrote to it; one that was lowered keeps nobody from making room.
func TestQuotaOfABucketThatIsOverIt(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.set(t, "k", "12345", 0)
		for _, quota := range []int64{3, 0, -1, math.MinInt64} {
			kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: quota}}, nil)
			if err := kv.Set(w.ctx, "b", "k", []byte("123456"), 0); !errors.Is(err, service.ErrQuota) {
				t.Error(err)
			}
			if err := kv.Set(w.ctx, "b", "k", []byte("1234"), 0); err != nil {
				t.Error(err)
			}
			w.set(t, "k", "12345", 0)
		}
		kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: math.MaxInt64}}, nil)
		if err := kv.Set(w.ctx, "b", "k", []byte("123456"), 0); err != nil {
			t.Error(err)
		}
		w.holds(t, 1, 7)
	})
}

func TestIncrement(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		for _, test := range []struct {
			value string // "-" for none
			delta int64
			sum   int64
			err   error
		}{
			{"-", 0, 0, nil},
			{"-", 5, 5, nil},
			{"-", math.MaxInt64, math.MaxInt64, nil},
			{"-", math.MinInt64, math.MinInt64, nil},
			{"0", -1, -1, nil},
			{"9", 1, 10, nil},
			{"10", -1, 9, nil},
			{"9007199254740993", 2, 9007199254740995, nil}, // more than a double holds
			{"9223372036854775806", 1, math.MaxInt64, nil},
			{"-9223372036854775807", -1, math.MinInt64, nil},
			{"9223372036854775807", math.MinInt64, -1, nil},
			{"-9223372036854775808", math.MaxInt64, -1, nil},
			{"9223372036854775807", 1, 0, service.ErrLimit},
			{"9223372036854775807", math.MaxInt64, 0, service.ErrLimit},
			{"-9223372036854775808", -1, 0, service.ErrLimit},
			{"-9223372036854775808", math.MinInt64, 0, service.ErrLimit},
			{"9223372036854775808", -1, 0, service.ErrConflict},
			{"-9223372036854775809", 1, 0, service.ErrConflict},
			{"99999999999999999999", 1, 0, service.ErrConflict},
			{"", 1, 0, service.ErrConflict},
			{"x", 1, 0, service.ErrConflict},
			{"1.0", 1, 0, service.ErrConflict},
			{"1e3", 1, 0, service.ErrConflict},
			{"+1", 1, 0, service.ErrConflict},
			{"01", 1, 0, service.ErrConflict},
			{"-0", 1, 0, service.ErrConflict},
			{" 1", 1, 0, service.ErrConflict},
			{"1\n", 1, 0, service.ErrConflict},
			{"1\x00", 1, 0, service.ErrConflict},
			{"\x001", 1, 0, service.ErrConflict},
			{strings.Repeat("1", 1000), 1, 0, service.ErrConflict},
		} {
			must[bool](t)(w.KV.Delete(w.ctx, "b", "k"))
			if test.value != "-" {
				w.set(t, "k", test.value, 0)
			}
			sum, err := w.KV.Increment(w.ctx, "b", "k", test.delta)
			if sum != test.sum || !errors.Is(err, test.err) {
				t.Errorf("%q and %d: %d, %v", test.value, test.delta, sum, err)
			}
			want := fmt.Sprint(test.sum)
			if test.err != nil {
				want = test.value
			}
			w.reads(t, "k", want)
			w.holds(t, 1, int64(1+len(want)))
		}
	})
}

func TestSwap(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		swap := func(old, value []byte, present []byte, want error) {
			t.Helper()
			got, err := w.KV.Swap(w.ctx, "b", "k", old, value, 0)
			if !errors.Is(err, want) || !bytes.Equal(got, present) || (got == nil) != (present == nil) {
				t.Errorf("swap %q for %q: %q, %v", old, value, got, err)
			}
		}
		swap([]byte("x"), []byte("y"), nil, service.ErrConflict)
		swap([]byte{}, []byte("y"), nil, service.ErrConflict) // none is not an empty one
		swap(nil, []byte{}, nil, nil)
		swap(nil, []byte("y"), []byte{}, service.ErrConflict)
		swap([]byte("x"), []byte("y"), []byte{}, service.ErrConflict)
		swap([]byte{}, []byte("again"), nil, nil) // a word of the scripts' own
		swap([]byte("x"), []byte("y"), []byte("again"), service.ErrConflict)
		swap([]byte("again"), []byte("\x00\xff"), nil, nil)
		swap([]byte("\x00\xfe"), []byte("y"), []byte("\x00\xff"), service.ErrConflict)
		swap([]byte("\x00\xff"), []byte("y"), nil, nil)
		w.reads(t, "k", "y")
		w.holds(t, 1, 2)
	})
}

func TestList(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		keys := []string{"again", "a_b", "b", "ba", "bb", "bz", "c", "é", "ê", "日", "日本", "\U0010ffff", "\U0010ffffx", "(b", "[b", "+", "-", " ", "*", "**", ",", "+x", "-x", "\u00a0", "\u07ff"}
		for _, key := range slices.Backward(keys) {
			w.set(t, key, "", 0)
		}
		slices.Sort(keys)
		for _, prefix := range append([]string{"", "b", "日", "zz", "\U0010ffff", "again?"}, keys...) {
			for _, after := range append([]string{"", "bb", "a", "zz", "\U0010ffff"}, keys...) {
				for _, limit := range []int{2, 1000} {
					var want []string
					for _, key := range keys {
						if strings.HasPrefix(key, prefix) && key > after && len(want) < limit {
							want = append(want, key)
						}
					}
					if got := must[[]string](t)(w.KV.List(w.ctx, "b", prefix, after, limit)); !slices.Equal(got, want) {
						t.Fatalf("%d that begin with %q after %q: %q, want %q", limit, prefix, after, got, want)
					}
					if embedded(t) {
						break // each is a script to compile
					}
				}
			}
		}
		for _, limit := range []int{0, -1, 1001, math.MinInt} {
			if _, err := w.KV.List(w.ctx, "b", "", "", limit); !errors.Is(err, service.ErrInvalid) {
				t.Errorf("a limit of %d: %v", limit, err)
			}
		}
	})
}

// People see what plugins keep, whatever they are granted.
func TestPeople(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		if got := must[[]Bucket](t)(w.Buckets(w.ctx)); len(got) != 0 {
			t.Errorf("buckets: %v", got)
		}
		var want []Bucket
		for _, name := range []string{"a b", "b", "b_", "s", "é"} {
			kv := w.For([]Grant{{Bucket: name, Write: true, Quota: 100}}, nil)
			if err := kv.Set(w.ctx, name, "key", []byte(name), 0); err != nil {
				t.Fatal(err)
			}
			want = append(want, Bucket{Name: name, Keys: 1, Bytes: int64(3 + len(name))})
			if got := must[[]byte](t)(w.Store.Get(w.ctx, name, "key")); string(got) != name {
				t.Errorf("%q holds %q", name, got)
			}
			if got := must[[]string](t)(w.Store.List(w.ctx, name, "", "", 1)); !slices.Equal(got, []string{"key"}) {
				t.Errorf("%q holds %q", name, got)
			}
		}
		if got := must[[]Bucket](t)(w.Buckets(w.ctx)); !slices.Equal(got, want) {
			t.Errorf("buckets %v, want %v", got, want)
		}
		if _, err := w.Store.Get(w.ctx, "none", "key"); !errors.Is(err, service.ErrNotFound) {
			t.Error(err)
		}
		if got := must[[]string](t)(w.Store.List(w.ctx, "none", "", "", 1)); len(got) != 0 {
			t.Errorf("no bucket holds %q", got)
		}
	})
}

// Redis that has forgotten the scripts gets them again.
func TestForgottenScripts(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.set(t, "k", "v", 0)
		if err := w.rdb.ScriptFlush(w.ctx).Err(); err != nil {
			t.Fatal(err)
		}
		w.reads(t, "k", "v")
	})
}

// each calls every method once.
func (w *world) each(ctx context.Context) map[string]error {
	_, get := w.KV.Get(ctx, "b", "k")
	set := w.KV.Set(ctx, "b", "k", []byte("1"), 0)
	_, del := w.KV.Delete(ctx, "b", "k")
	_, increment := w.KV.Increment(ctx, "b", "k", 1)
	_, swap := w.KV.Swap(ctx, "b", "k", nil, []byte("1"), 0)
	_, list := w.KV.List(ctx, "b", "", "", 1)
	_, buckets := w.Buckets(ctx)
	return map[string]error{"Get": get, "Set": set, "Delete": del, "Increment": increment, "Swap": swap, "List": list, "Buckets": buckets}
}
