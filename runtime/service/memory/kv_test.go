package memory

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/runtime/service"
)

func TestGetSetDelete(t *testing.T) {
	w := setup(t)
	if value, err := w.KV.Get(w.ctx, "b", "k"); !errors.Is(err, service.ErrNotFound) || value != nil {
		t.Errorf("nothing is %q, %v", value, err)
	}
	for _, value := range []string{"value", "\x00\xff\r\n", ""} {
		w.set(t, "k", value, 0)
		w.reads(t, "k", value)
	}
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
}

// What a caller does with its bytes afterwards changes nothing here.
func TestBytesAreCopied(t *testing.T) {
	w := setup(t)
	value := []byte("value")
	if err := w.KV.Set(w.ctx, "b", "k", value, 0); err != nil {
		t.Fatal(err)
	}
	value[0] = 'X'
	must[[]byte](t)(w.KV.Get(w.ctx, "b", "k"))[0] = 'Y'
	present, _ := w.KV.Swap(w.ctx, "b", "k", nil, nil, 0)
	present[0] = 'Z'
	w.reads(t, "k", "value")
}

func TestMaxValue(t *testing.T) {
	w := setup(t)
	value, larger := bytes.Repeat([]byte("v"), MaxValue), make([]byte, MaxValue+1)
	w.set(t, "k", string(value), 0)
	w.reads(t, "k", string(value))
	w.holds(t, 1, MaxValue+1)
	if _, err := w.KV.Swap(w.ctx, "b", "k", value, larger, 0); !errors.Is(err, service.ErrTooBig) {
		t.Error(err)
	}
	if err := w.KV.Set(w.ctx, "b", "k", larger, 0); !errors.Is(err, service.ErrTooBig) || !strings.Contains(err.Error(), "524289") {
		t.Error(err)
	}
}

// Set and Swap give another time, or none; Increment leaves it.
func TestTTLOfAChangedValue(t *testing.T) {
	w := setup(t)
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
		last := int64(1_000_000_000)
		if test.until != 0 {
			last = test.until - 1
		}
		w.at(last)
		if _, err := w.KV.Get(w.ctx, "b", "k"); err != nil {
			t.Errorf("%s: it ended before %d: %v", test.name, last, err)
		}
		w.at(test.until)
		if _, err := w.KV.Get(w.ctx, "b", "k"); test.until != 0 && !errors.Is(err, service.ErrNotFound) {
			t.Errorf("%s: it lives on: %v", test.name, err)
		}
	}
}

// What has expired is gone for every method, and counts no more.
func TestExpiry(t *testing.T) {
	w := setup(t)
	for name, gone := range map[string]func() bool{
		"Get": func() bool {
			_, err := w.KV.Get(w.ctx, "b", "k")
			return errors.Is(err, service.ErrNotFound)
		},
		"Delete":    func() bool { return !must[bool](t)(w.KV.Delete(w.ctx, "b", "k")) },
		"Increment": func() bool { return must[int64](t)(w.KV.Increment(w.ctx, "b", "k", 1)) == 1 },
		"Swap": func() bool {
			_, err := w.KV.Swap(w.ctx, "b", "k", nil, []byte("8"), 0)
			return err == nil
		},
		"List": func() bool {
			return slices.Equal(must[[]string](t)(w.KV.List(w.ctx, "b", "", "", 10)), []string{"stays"})
		},
	} {
		w.at(0)
		w.set(t, "k", "7", time.Second)
		w.set(t, "stays", "7", 0)
		w.at(999)
		w.reads(t, "k", "7")
		w.at(1000)
		if !gone() {
			t.Errorf("%s sees what has expired", name)
		}
		must[bool](t)(w.KV.Delete(w.ctx, "b", "k"))
		w.holds(t, 1, 6)
	}
}

func TestQuota(t *testing.T) {
	w := setup(t)
	kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: 10}})
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
	full(kv.Set(w.ctx, "b", "b", nil, 0))
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
	ok("b", "123456", time.Second)
	w.holds(t, 2, 10)
	_, err = kv.Increment(w.ctx, "b", "a", 1)
	full(err)
	w.at(1000) // expiry frees
	ok("b", "123456", 0)
	must[bool](t)(kv.Delete(w.ctx, "b", "b")) // delete frees
	ok("c", "123456", 0)
	w.holds(t, 2, 10)

	lowered := w.For([]Grant{{Bucket: "b", Write: true, Quota: -1}}) // keeps nobody from making room
	if err := lowered.Set(w.ctx, "b", "c", []byte("1"), 0); err != nil {
		t.Error(err)
	}
	if err := lowered.Set(w.ctx, "b", "c", []byte("12"), 0); !errors.Is(err, service.ErrQuota) {
		t.Error(err)
	}
}

func TestIncrement(t *testing.T) {
	w := setup(t)
	for _, test := range []struct {
		value string // "-" for none
		delta int64
		sum   int64
		err   error
	}{
		{"-", 0, 0, nil},
		{"-", math.MaxInt64, math.MaxInt64, nil},
		{"-", math.MinInt64, math.MinInt64, nil},
		{"9", 1, 10, nil},
		{"9007199254740993", 2, 9007199254740995, nil},
		{"9223372036854775806", 1, math.MaxInt64, nil},
		{"-9223372036854775807", -1, math.MinInt64, nil},
		{"9223372036854775807", math.MinInt64, -1, nil},
		{"9223372036854775807", 1, 0, service.ErrLimit},
		{"-9223372036854775808", -1, 0, service.ErrLimit},
		{"-9223372036854775808", math.MinInt64, 0, service.ErrLimit},
		{"9223372036854775808", -1, 0, service.ErrConflict},
		{"", 1, 0, service.ErrConflict},
		{"x", 1, 0, service.ErrConflict},
		{"1.0", 1, 0, service.ErrConflict},
		{"+1", 1, 0, service.ErrConflict},
		{"01", 1, 0, service.ErrConflict},
		{"-0", 1, 0, service.ErrConflict},
		{" 1", 1, 0, service.ErrConflict},
		{"1\n", 1, 0, service.ErrConflict},
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
}

func TestSwap(t *testing.T) {
	w := setup(t)
	for _, step := range []struct {
		old, value, present []byte
		err                 error
	}{
		{[]byte("x"), []byte("y"), nil, service.ErrConflict},
		{[]byte{}, []byte("y"), nil, service.ErrConflict}, // none is not an empty one
		{nil, []byte{}, nil, nil},
		{nil, []byte("y"), []byte{}, service.ErrConflict},
		{[]byte("x"), []byte("y"), []byte{}, service.ErrConflict},
		{[]byte{}, []byte("\x00\xff"), nil, nil},
		{[]byte("\x00\xfe"), []byte("y"), []byte("\x00\xff"), service.ErrConflict},
		{[]byte("\x00\xff"), []byte("y"), nil, nil},
	} {
		present, err := w.KV.Swap(w.ctx, "b", "k", step.old, step.value, 0)
		if !errors.Is(err, step.err) || !bytes.Equal(present, step.present) || (present == nil) != (step.present == nil) {
			t.Errorf("swap %q for %q: %q, %v", step.old, step.value, present, err)
		}
	}
	w.reads(t, "k", "y")
}

func TestNames(t *testing.T) {
	w := setup(t)
	for _, name := range []string{"", "\x00", "a\n", "\x7f", "\u0085", "\xff", strings.Repeat("x", 257), strings.Repeat("é", 129)} {
		kv := w.For([]Grant{{Bucket: "b", Write: true, Quota: room}, {Bucket: name, Write: true, Quota: room}})
		for _, at := range []struct{ bucket, key string }{{"b", name}, {name, "k"}} {
			_, get := kv.Get(w.ctx, at.bucket, at.key)
			_, del := kv.Delete(w.ctx, at.bucket, at.key)
			_, increment := kv.Increment(w.ctx, at.bucket, at.key, 1)
			_, swap := kv.Swap(w.ctx, at.bucket, at.key, nil, nil, 0)
			_, list := kv.List(w.ctx, name, "", "", 1)
			for i, err := range []error{get, kv.Set(w.ctx, at.bucket, at.key, nil, 0), del, increment, swap, list} {
				if !errors.Is(err, service.ErrInvalid) {
					t.Errorf("%d of %.20q in %.20q: %v", i, at.key, at.bucket, err)
				}
			}
		}
	}
	for _, limit := range []int{0, -1, 1001, math.MinInt} {
		if _, err := w.KV.List(w.ctx, "b", "", "", limit); !errors.Is(err, service.ErrInvalid) {
			t.Errorf("a limit of %d: %v", limit, err)
		}
	}
	for _, name := range []string{" ", "a b", "日本", strings.Repeat("x", 256), strings.Repeat("é", 128)} {
		kv := w.For([]Grant{{Bucket: name, Write: true, Quota: room}})
		if err := kv.Set(w.ctx, name, name, []byte(name), 0); err != nil {
			t.Error(err)
		}
		if got := must[[]string](t)(kv.List(w.ctx, name, name, "", 2)); !slices.Equal(got, []string{name}) {
			t.Errorf("%.20q lists %.20q", name, got)
		}
	}
}

func TestDenied(t *testing.T) {
	w := setup(t)
	kv := w.For([]Grant{{Bucket: "b", Quota: room}, {Bucket: "both"}, {Bucket: "both", Write: true, Quota: room}})
	w.set(t, "k", "v", 0)
	if got := must[[]byte](t)(kv.Get(w.ctx, "b", "k")); string(got) != "v" {
		t.Errorf("%q", got)
	}
	if err := kv.Set(w.ctx, "both", "k", nil, 0); err != nil {
		t.Error(err)
	}
	for bucket, word := range map[string]string{"b": "for reading only", "other": "is not granted"} {
		_, get := kv.Get(w.ctx, "other", "k")
		_, list := kv.List(w.ctx, "other", "", "", 1)
		set := kv.Set(w.ctx, bucket, "k", nil, 0)
		_, del := kv.Delete(w.ctx, bucket, "k")
		_, increment := kv.Increment(w.ctx, bucket, "k", 1)
		_, swap := kv.Swap(w.ctx, bucket, "k", []byte("v"), nil, 0)
		for i, err := range []error{get, list, set, del, increment, swap} {
			if !errors.Is(err, service.ErrDenied) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if line := `capabilities.kv: [{bucket: "` + bucket + `", access: rw}]`; !strings.Contains(set.Error(), word) || !strings.Contains(set.Error(), line) {
			t.Errorf("%v", set)
		}
	}
	w.reads(t, "k", "v")
}

// Who bounds the grants says why something is denied, and is asked of nothing that is granted.
func TestDeniedByAnother(t *testing.T) {
	w := setup(t)
	own := errors.New("the ceiling denies it")
	kv := w.ForUnder([]Grant{{Bucket: "b"}}, func(bucket string, write bool) error {
		if bucket == "b" && !write {
			t.Error("it is asked of a bucket that is granted")
		}
		if bucket == "b" {
			return own
		}
		return nil
	})
	if _, err := kv.List(w.ctx, "b", "", "", 1); err != nil {
		t.Error(err)
	}
	if err := kv.Set(w.ctx, "b", "k", nil, 0); !errors.Is(err, own) {
		t.Errorf("%v", err)
	}
	if _, err := kv.Get(w.ctx, "other", "k"); !errors.Is(err, service.ErrDenied) || !strings.Contains(err.Error(), "the manifest would say") {
		t.Errorf("%v", err)
	}
}

func TestIncrementsAddUp(t *testing.T) {
	w := setup(t)
	var group errgroup.Group
	var sums sync.Map
	for range 8 {
		group.Go(func() error {
			for range 100 {
				sum, err := w.KV.Increment(w.ctx, "b", "k", 3)
				if err != nil {
					return err
				}
				if _, twice := sums.LoadOrStore(sum, true); twice {
					return fmt.Errorf("%d came out twice", sum)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	w.reads(t, "k", "2400")
}
