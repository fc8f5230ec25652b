package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quern-project/quern/runtime/service"
)

const (
	// MaxValue is how many bytes a value may have, as on a host.
	MaxValue = 512 << 10

	maxName = 256  // bytes of a bucket's name and of a key
	maxList = 1000 // keys that one call lists
)

// Grant is what a plugin may do with one bucket.
type Grant struct {
	Bucket string
	// Write allows to set, delete, increment and swap; to read is allowed without.
	Write bool
	// Quota is how many bytes of keys and values the bucket may hold after a write that makes it grow.
	Quota int64
}

// Store is the buckets of one tenant. Its methods may be called by many goroutines at once.
type Store struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[string]*bucket // by name; guarded by mu, as is what they hold
}

// NewStore makes a store that holds nothing.
func NewStore() *Store { return &Store{now: time.Now, buckets: map[string]*bucket{}} }

// bucket is the values of one bucket.
type bucket struct {
	values map[string]entry
	bytes  int64 // of all keys and values
}

type entry struct {
	value []byte
	until time.Time // zero is for ever
}

// For is the store as one plugin may use it. Of two grants for one bucket the later holds.
func (s *Store) For(grants []Grant) service.KV { return s.ForUnder(grants, nil) }

// ForUnder is For, where deny says why something that the grants do not allow is denied; nil for no word of its own.
// deny itself may be nil.
func (s *Store) ForUnder(grants []Grant, deny func(bucket string, write bool) error) service.KV {
	v := &view{store: s, deny: deny, grants: make(map[string]Grant, len(grants))}
	for _, grant := range grants {
		v.grants[grant.Bucket] = grant
	}
	return v
}

// open is a bucket without what has expired. It is there until mu is released, and kept only if something is put in.
func (s *Store) open(name string) *bucket {
	b := s.buckets[name]
	if b == nil {
		return &bucket{values: map[string]entry{}}
	}
	now := s.now()
	for key, e := range b.values {
		if !e.until.IsZero() && !now.Before(e.until) {
			b.remove(key)
		}
	}
	return b
}

func (b *bucket) remove(key string) {
	b.bytes -= int64(len(key) + len(b.values[key].value))
	delete(b.values, key)
}

// put sets a value, unless the bucket would grow over the quota.
func (s *Store) put(b *bucket, grant Grant, key string, e entry) error {
	var was int64
	if old, ok := b.values[key]; ok {
		was = int64(len(key) + len(old.value))
	}
	is := int64(len(key) + len(e.value))
	if is > was && b.bytes-was+is > grant.Quota {
		return fmt.Errorf("%w: the bucket holds %d bytes and may hold %d", service.ErrQuota, b.bytes, grant.Quota)
	}
	b.bytes += is - was
	b.values[key] = e
	s.buckets[grant.Bucket] = b
	return nil
}

// ends is when a value with a time to live expires. What is shorter than a millisecond is one.
func (s *Store) ends(ttl time.Duration) time.Time {
	if ttl <= 0 {
		return time.Time{}
	}
	return s.now().Add(max(ttl, time.Millisecond))
}

// view is a Store behind the grants of one plugin.
type view struct {
	store  *Store
	deny   func(bucket string, write bool) error // may be nil
	grants map[string]Grant                      // by bucket; never changed
}

// enter checks a call and locks the store for it; leave ends that.
func (v *view) enter(ctx context.Context, name string, write bool, wrong error) (b *bucket, grant Grant, leave func(), err error) {
	if grant, err = v.grant(name, write); err != nil {
		return nil, grant, nil, err
	}
	if err := cmp.Or(wrong, ctx.Err()); err != nil {
		return nil, grant, nil, err
	}
	v.store.mu.Lock()
	return v.store.open(name), grant, v.store.mu.Unlock, nil
}

// grant finds what allows to use a bucket, or tells what the manifest lacks for it.
func (v *view) grant(name string, write bool) (Grant, error) {
	if err := checkName("bucket", name); err != nil {
		return Grant{}, err
	}
	grant, ok := v.grants[name]
	what := "is not granted"
	switch {
	case ok && (grant.Write || !write):
		return grant, nil
	case ok:
		what = "is granted for reading only"
	}
	if v.deny != nil {
		if err := v.deny(name, write); err != nil {
			return Grant{}, err
		}
	}
	return Grant{}, fmt.Errorf("%w: bucket %q %s: the manifest would say capabilities.kv: [{bucket: %q, access: rw}]",
		service.ErrDenied, name, what, name)
}

func (v *view) Get(ctx context.Context, name, key string) ([]byte, error) {
	b, _, leave, err := v.enter(ctx, name, false, checkName("key", key))
	if err != nil {
		return nil, err
	}
	defer leave()
	e, ok := b.values[key]
	if !ok {
		return nil, fmt.Errorf("get key %q of bucket %q: %w", key, name, service.ErrNotFound)
	}
	return append([]byte{}, e.value...), nil
}

func (v *view) Set(ctx context.Context, name, key string, value []byte, ttl time.Duration) error {
	b, grant, leave, err := v.enter(ctx, name, true, cmp.Or(checkName("key", key), fits(value)))
	if err != nil {
		return err
	}
	defer leave()
	if err := v.store.put(b, grant, key, entry{bytes.Clone(value), v.store.ends(ttl)}); err != nil {
		return fmt.Errorf("set key %q of bucket %q: %w", key, name, err)
	}
	return nil
}

func (v *view) Delete(ctx context.Context, name, key string) (bool, error) {
	b, _, leave, err := v.enter(ctx, name, true, checkName("key", key))
	if err != nil {
		return false, err
	}
	defer leave()
	_, was := b.values[key]
	if was {
		b.remove(key)
	}
	return was, nil
}

func (v *view) Increment(ctx context.Context, name, key string, delta int64) (int64, error) {
	b, grant, leave, err := v.enter(ctx, name, true, checkName("key", key))
	if err != nil {
		return 0, err
	}
	defer leave()
	e, ok := b.values[key]
	if !ok {
		e.value = []byte("0")
	}
	sum, err := add(string(e.value), delta)
	if err == nil {
		err = v.store.put(b, grant, key, entry{strconv.AppendInt(nil, sum, 10), e.until})
	}
	if err != nil {
		return 0, fmt.Errorf("increment key %q of bucket %q: %w", key, name, err)
	}
	return sum, nil
}

// add adds to a number as Redis writes it: no sign but a minus, no zero before other digits.
func add(text string, delta int64) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || strconv.FormatInt(number, 10) != text:
		return 0, fmt.Errorf("%w: the value is no whole number of 64 bits in decimal digits", service.ErrConflict)
	case delta > 0 && number > math.MaxInt64-delta, delta < 0 && number < math.MinInt64-delta:
		return 0, fmt.Errorf("%w: the value and %d have a sum of more than 64 bits", service.ErrLimit, delta)
	}
	return number + delta, nil
}

func (v *view) Swap(ctx context.Context, name, key string, old, value []byte, ttl time.Duration) ([]byte, error) {
	b, grant, leave, err := v.enter(ctx, name, true, cmp.Or(checkName("key", key), fits(value)))
	if err != nil {
		return nil, err
	}
	defer leave()
	var present []byte
	e, ok := b.values[key]
	switch {
	case !ok && old != nil:
		err = fmt.Errorf("%w: there is no value", service.ErrConflict)
	case ok && (old == nil || !bytes.Equal(e.value, old)):
		present = append([]byte{}, e.value...)
		err = fmt.Errorf("%w: the value is another one", service.ErrConflict)
	default:
		err = v.store.put(b, grant, key, entry{bytes.Clone(value), v.store.ends(ttl)})
	}
	if err != nil {
		return present, fmt.Errorf("swap key %q of bucket %q: %w", key, name, err)
	}
	return nil, nil
}

func (v *view) List(ctx context.Context, name, prefix, after string, limit int) ([]string, error) {
	wrong := cmp.Or(checkText("prefix", prefix), checkText("key to list after", after))
	if wrong == nil && (limit < 1 || limit > maxList) {
		wrong = fmt.Errorf("%w: a limit of %d keys: it may be 1 to %d", service.ErrInvalid, limit, maxList)
	}
	b, _, leave, err := v.enter(ctx, name, false, wrong)
	if err != nil {
		return nil, err
	}
	defer leave()
	keys := slices.Sorted(maps.Keys(b.values))
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, prefix) || key <= after })
	return keys[:min(len(keys), limit)], nil
}

// checkName holds a bucket or a key to what service.KV says.
func checkName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: a %s without a name: it has 1 to %d bytes", service.ErrInvalid, what, maxName)
	}
	return checkText(what, name)
}

func checkText(what, text string) error {
	switch {
	case len(text) > maxName:
		return fmt.Errorf("%w: a %s of %d bytes: it may have %d", service.ErrInvalid, what, len(text), maxName)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s %q is not UTF-8", service.ErrInvalid, what, text)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: %s %q has control characters", service.ErrInvalid, what, text)
	}
	return nil
}

func fits(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: a value of %d bytes: it may have %d", service.ErrTooBig, len(value), MaxValue)
	}
	return nil
}
