package sdktest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk"
)

// The limits of the key-value store.
const (
	maxName      = 256       // bytes
	maxValue     = 512 << 10 // bytes
	maxList      = 1000
	defaultQuota = 10 << 20 // bytes
)

// Bucket is a bucket that the handler may use.
type Bucket struct {
	h        *Harness
	name     string
	values   map[string]entry
	readOnly bool
	quota    int64
}

type entry struct {
	value   []byte
	expires time.Duration // in the time of Harness.passed; 0 if it does not
}

// Bucket grants a bucket for reading and writing, if it is not granted yet, and returns it.
func (h *Harness) Bucket(name string) *Bucket {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !validName(name) {
		h.t.Fatalf("sdktest: bucket %q: use 1 to %d bytes of UTF-8 without control characters", name, maxName)
	}
	b := h.buckets[name]
	if b == nil {
		b = &Bucket{h: h, name: name, values: map[string]entry{}, quota: defaultQuota}
		h.buckets[name] = b
	}
	return b
}

// ReadOnly makes it the manifest's access: r. The test itself may go on writing.
func (b *Bucket) ReadOnly() *Bucket {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	b.readOnly = true
	return b
}

// Quota is how many bytes of keys and values the bucket may hold after a write of the handler that makes it grow. Without it
// they are 10 MiB.
func (b *Bucket) Quota(bytes int64) *Bucket {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	b.quota = bytes
	return b
}

// Set sets a value, for ever.
func (b *Bucket) Set(key, value string) *Bucket {
	b.h.t.Helper()
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if !validName(key) || len(value) > maxValue {
		b.h.t.Fatalf("sdktest: bucket %s: key %q with %d bytes: use a key of 1 to %d bytes of UTF-8 without control characters, and at most %d bytes",
			b.name, key, len(value), maxName, maxValue)
	}
	b.values[key] = entry{value: []byte(value)}
	return b
}

// Get is the value of a key; false if there is none.
func (b *Bucket) Get(key string) (string, bool) {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	value, ok := b.live()[key]
	return string(value.value), ok
}

// Keys are those of the bucket, in the order of their bytes.
func (b *Bucket) Keys() []string {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	return slices.Sorted(maps.Keys(b.live()))
}

// live is what has not expired. The harness is locked.
func (b *Bucket) live() map[string]entry {
	maps.DeleteFunc(b.values, func(_ string, e entry) bool { return e.expires != 0 && e.expires <= b.h.passed })
	return b.values
}

// put sets a value if there is room for it. What does not grow needs none.
func (b *Bucket) put(key string, e entry) error {
	held := int64(0)
	for k, v := range b.live() {
		held += int64(len(k) + len(v.value))
	}
	was := int64(0)
	if old, ok := b.values[key]; ok {
		was = int64(len(key) + len(old.value))
	}
	is := int64(len(key) + len(e.value))
	if is > was && held-was+is > b.quota {
		return sdk.ErrQuota
	}
	b.values[key] = e
	return nil
}

// lasting is an entry with a copy of the value. The time is in milliseconds, 0 for ever.
func (b *Bucket) lasting(value []byte, ttl int64) entry {
	e := entry{value: append(make([]byte, 0, len(value)), value...)}
	if ttl > 0 {
		e.expires = b.h.passed + min(time.Duration(min(ttl, maxLifetime.Milliseconds()))*time.Millisecond, maxLifetime)
	}
	return e
}

// maxLifetime is the longest that a value lasts, if it does not last for ever.
const maxLifetime = 100 * 365 * 24 * time.Hour

func validName(name string) bool { return name != "" && validText(name) }

func validText(text string) bool {
	return len(text) <= maxName && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// bucket is what a function of the handler uses; the harness is locked then, until unlock is called.
func (r *run) bucket(function, name string, write bool, texts ...string) (b *Bucket, unlock func(), err error) {
	for _, text := range append([]string{name}, texts...) {
		if err := passes(text); err != nil {
			return nil, nil, err
		}
	}
	if !validName(name) {
		return nil, nil, sdk.ErrInvalid
	}
	if unlock, err = r.ask(function); err != nil {
		return nil, nil, err
	}
	b = r.h.buckets[name]
	if b == nil || write && b.readOnly {
		unlock()
		return nil, nil, sdk.ErrDenied
	}
	return b, unlock, nil
}

func (r *run) Get(bucket, key string) ([]byte, error) {
	b, unlock, err := r.bucket("kv_get", bucket, false, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !validName(key) {
		return nil, sdk.ErrInvalid
	}
	e, ok := b.live()[key]
	if !ok {
		return nil, sdk.ErrNotFound
	}
	return append(make([]byte, 0), e.value...), nil
}

func (r *run) Set(bucket, key string, value []byte, ttl int64) error {
	if ttl < 0 {
		return sdk.ErrInvalid
	}
	b, unlock, err := r.bucket("kv_set", bucket, true, key)
	if err != nil {
		return err
	}
	defer unlock()
	if err := fits(key, value); err != nil {
		return err
	}
	return b.put(key, b.lasting(value, ttl))
}

// fits holds what is written to the limits.
func fits(key string, value []byte) error {
	switch {
	case !validName(key):
		return sdk.ErrInvalid
	case len(value) > maxValue:
		return sdk.ErrTooBig
	}
	return nil
}

func (r *run) Delete(bucket, key string) (bool, error) {
	b, unlock, err := r.bucket("kv_delete", bucket, true, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	if !validName(key) {
		return false, sdk.ErrInvalid
	}
	_, ok := b.live()[key]
	delete(b.values, key)
	return ok, nil
}

func (r *run) Increment(bucket, key string, delta int64) (int64, error) {
	b, unlock, err := r.bucket("kv_increment", bucket, true, key)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if !validName(key) {
		return 0, sdk.ErrInvalid
	}
	e, ok := b.live()[key]
	var old int64
	if ok {
		old, err = strconv.ParseInt(string(e.value), 10, 64)
		if err != nil || strconv.FormatInt(old, 10) != string(e.value) {
			return 0, sdk.ErrConflict
		}
	}
	sum := old + delta
	if (sum > old) != (delta > 0) && delta != 0 {
		return 0, sdk.ErrLimit
	}
	e.value = strconv.AppendInt(nil, sum, 10)
	return sum, b.put(key, e)
}

func (r *run) Swap(bucket, key string, old, value []byte, ttl int64) (present []byte, err error) {
	if ttl < 0 {
		return nil, sdk.ErrInvalid
	}
	b, unlock, err := r.bucket("kv_swap", bucket, true, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := fits(key, value); err != nil {
		return nil, err
	}
	e, ok := b.live()[key]
	switch {
	case !ok && old != nil:
		return nil, sdk.ErrConflict
	case ok && (old == nil || string(e.value) != string(old)):
		return append(make([]byte, 0), e.value...), sdk.ErrConflict
	}
	return nil, b.put(key, b.lasting(value, ttl))
}

func (r *run) List(bucket, prefix, after string, limit int) ([]string, error) {
	b, unlock, err := r.bucket("kv_list", bucket, false, prefix, after)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !validText(prefix) || !validText(after) || limit < 1 || limit > maxList {
		return nil, sdk.ErrInvalid
	}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(b.live())) {
		if len(keys) < limit && strings.HasPrefix(key, prefix) && key > after {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
