package kv

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// model is a bucket as it ought to be. Random calls are made of it and of the store alike, by plugins with
// different quotas; after each the two must agree, and what Redis holds must be what it counts.
type model struct {
	w      *world
	now    int64
	quotas []int64
	views  []service.KV
	values map[string]modelValue
}

type modelValue struct {
	value string
	until int64 // 0: for ever
}

func newModel(w *world) *model {
	store := New(w.rdb, queuetest.Tenant())
	store.sweep = 2
	m := &model{w: &world{Store: store, rdb: w.rdb, ctx: w.ctx}, quotas: []int64{0, 12, 40}, values: make(map[string]modelValue)}
	for _, quota := range m.quotas {
		m.views = append(m.views, store.For([]Grant{{Bucket: "b", Write: true, Quota: quota}}, nil))
	}
	m.w.KV = m.views[0]
	m.w.at(0)
	return m
}

func TestCountIsRight(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		most, runs, failing := 100, 0, false
		if embedded(t) {
			most = 10
		}
		rapid.Check(t, func(r *rapid.T) {
			if runs++; runs > most && !failing {
				return
			}
			failing = true // until it is known better: what fails is run again, to be made smaller
			m := newModel(w)
			r.Repeat(map[string]func(*rapid.T){
				"":          m.check,
				"get":       m.get,
				"set":       m.set,
				"set2":      m.set, // more often than others: what follows needs it
				"delete":    m.delete,
				"increment": m.increment,
				"swap":      m.swap,
				"list":      m.list,
				"wait":      m.wait,
			})
			m.w.at(m.now)
			failing = false
		})
	})
}

func (m *model) bytes() (n int64) {
	for key, value := range m.values {
		n += int64(len(key) + len(value.value))
	}
	return n
}

// check looks at Redis without removing anything: what has not expired, and what is counted of all.
func (m *model) check(r *rapid.T) {
	for key, value := range m.values {
		if value.until != 0 && value.until <= m.now {
			delete(m.values, key)
		}
	}
	values := must[map[string]string](r)(m.w.rdb.HGetAll(m.w.ctx, m.w.keys.values("b")).Result())
	names := must[[]string](r)(m.w.rdb.ZRange(m.w.ctx, m.w.keys.names("b"), 0, -1).Result())
	times := must[[]string](r)(m.w.rdb.ZRange(m.w.ctx, m.w.keys.expiry("b"), 0, -1).Result())
	counted := must[map[string]string](r)(m.w.rdb.HGetAll(m.w.ctx, m.w.keys.buckets()).Result())
	var sum int64
	for key, value := range values {
		sum += int64(len(key) + len(value))
		if !slices.Contains(names, key) {
			r.Fatalf("%q has no name", key)
		}
	}
	if len(names) != len(values) || sum > 0 && counted["b"] != strconv.FormatInt(sum, 10) || sum == 0 && len(counted) != 0 {
		r.Fatalf("Redis has %d values of %d bytes, %d names, and counts %v", len(values), sum, len(names), counted)
	}
	for _, key := range times {
		if _, ok := values[key]; !ok {
			r.Fatalf("a time of nothing: %q", key)
		}
	}
	for key, value := range m.values {
		if values[key] != value.value || slices.Contains(times, key) != (value.until != 0) {
			r.Fatalf("%q is %q, want %+v", key, values[key], value)
		}
	}
	if rapid.IntRange(0, 3).Draw(r, "count") == 0 { // not each time: it removes what has expired
		m.w.holds(r, int64(len(m.values)), m.bytes())
	}
}

func (m *model) key(r *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "aa", "ab", "é", "again"}).Draw(r, "key")
}

func (m *model) value(r *rapid.T) string {
	return rapid.SampledFrom([]string{"", "0", "9", "-1", "99", "9223372036854775807", "x\x00", "\xff", "again", "ok"}).Draw(r, "value")
}

func (m *model) view(r *rapid.T) (service.KV, int64) {
	i := rapid.IntRange(0, len(m.views)-1).Draw(r, "view")
	return m.views[i], m.quotas[i]
}

func (m *model) ttl(r *rapid.T) (time.Duration, int64) {
	ms := rapid.SampledFrom([]int64{0, 1, 2, 3, 10}).Draw(r, "ttl")
	if ms == 0 {
		return 0, 0
	}
	return time.Duration(ms) * time.Millisecond, m.now + ms
}

// put is what a write does to the model, and the error that it must have.
func (m *model) put(key string, value modelValue, quota int64) error {
	old, is := m.values[key]
	after := m.bytes() + int64(len(value.value))
	if is {
		after -= int64(len(old.value))
	} else {
		after += int64(len(key))
	}
	if after > m.bytes() && after > quota {
		return service.ErrQuota
	}
	m.values[key] = value
	return nil
}

func (m *model) wait(r *rapid.T) {
	m.now += rapid.Int64Range(1, 4).Draw(r, "ms")
	m.w.at(m.now)
}

func (m *model) get(r *rapid.T) {
	key := m.key(r)
	kv, _ := m.view(r)
	got, err := kv.Get(m.w.ctx, "b", key)
	want, is := m.values[key]
	if is && (err != nil || string(got) != want.value) || !is && !errors.Is(err, service.ErrNotFound) {
		r.Fatalf("%q, %v, want %+v (%t)", got, err, want, is)
	}
}

func (m *model) set(r *rapid.T) {
	key, value := m.key(r), m.value(r)
	kv, quota := m.view(r)
	ttl, until := m.ttl(r)
	want := m.put(key, modelValue{value, until}, quota)
	if err := kv.Set(m.w.ctx, "b", key, []byte(value), ttl); !errors.Is(err, want) {
		r.Fatalf("%v, want %v", err, want)
	}
}

func (m *model) delete(r *rapid.T) {
	key := m.key(r)
	kv, _ := m.view(r)
	_, is := m.values[key]
	delete(m.values, key)
	if was, err := kv.Delete(m.w.ctx, "b", key); err != nil || was != is {
		r.Fatalf("%t, %v, want %t", was, err, is)
	}
}

func (m *model) increment(r *rapid.T) {
	key := m.key(r)
	kv, quota := m.view(r)
	delta := rapid.SampledFrom([]int64{0, 1, -1, 1000, math.MaxInt64, math.MinInt64}).Draw(r, "delta")
	old, is := m.values[key]
	if !is {
		old.value = "0"
	}
	number, parseErr := strconv.ParseInt(old.value, 10, 64)
	sum := number + delta
	var want error
	switch {
	case parseErr != nil:
		want = service.ErrConflict
	case (sum > number) != (delta > 0) && delta != 0:
		want = service.ErrLimit
	default:
		want = m.put(key, modelValue{fmt.Sprint(sum), old.until}, quota)
	}
	if want != nil {
		sum = 0
	}
	if got, err := kv.Increment(m.w.ctx, "b", key, delta); got != sum || !errors.Is(err, want) {
		r.Fatalf("%d, %v, want %d, %v", got, err, sum, want)
	}
}

func (m *model) swap(r *rapid.T) {
	key, value := m.key(r), m.value(r)
	kv, quota := m.view(r)
	ttl, until := m.ttl(r)
	present, is := m.values[key]
	var old []byte
	switch rapid.IntRange(0, 2).Draw(r, "old") {
	case 0:
		if is {
			old = []byte(present.value)
		}
	case 1:
		old = []byte(m.value(r))
	}
	want := service.ErrConflict
	if (old != nil) == is && string(old) == present.value {
		want = m.put(key, modelValue{value, until}, quota)
	}
	got, err := kv.Swap(m.w.ctx, "b", key, old, []byte(value), ttl)
	if !errors.Is(err, want) {
		r.Fatalf("%v, want %v", err, want)
	}
	if shown := errors.Is(want, service.ErrConflict) && is; (got != nil) != shown || shown && string(got) != present.value {
		r.Fatalf("present is %q, want %+v (%t)", got, present, is)
	}
}

func (m *model) list(r *rapid.T) {
	kv, _ := m.view(r)
	prefix := rapid.SampledFrom([]string{"", "a", "ag", "é", "z"}).Draw(r, "prefix")
	after := rapid.SampledFrom([]string{"", "a", "aa", "é", "0"}).Draw(r, "after")
	limit := rapid.IntRange(1, 3).Draw(r, "limit")
	var want []string
	for key := range m.values {
		if strings.HasPrefix(key, prefix) && key > after {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	want = want[:min(len(want), limit)]
	if got := must[[]string](r)(kv.List(m.w.ctx, "b", prefix, after, limit)); !slices.Equal(got, want) {
		r.Fatalf("%q, want %q", got, want)
	}
}
