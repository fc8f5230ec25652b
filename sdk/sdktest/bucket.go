package sdktest

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk"
)

// The maximum sizes that quern_v1 takes, in bytes, and the maximum number of keys in a list (maxList).
const (
	maxName  = 256
	maxValue = 512 << 10
	maxList  = 1000
	maxBody  = 16 << 20

	maxCheckpoint = 1 << 20
)

// Bucket is a bucket that the handler is allowed to use. It has room for all values, and none expires.
type Bucket struct {
	mu       *sync.Mutex // the mutex of the harness
	values   map[string]entry
	readOnly bool
}

type entry struct {
	value []byte
	ttl   time.Duration
}

// ReadOnly makes the bucket read-only for the handler, like access: r in a manifest. The test itself can still write.
func (b *Bucket) ReadOnly() *Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readOnly = true
	return b
}

// Set sets the value of a key, whatever their sizes.
func (b *Bucket) Set(key, value string) *Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[key] = entry{value: []byte(value)}
	return b
}

// Get returns the value of a key; it returns false if there is none.
func (b *Bucket) Get(key string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.values[key]
	return string(e.value), ok
}

// TTL returns the time to live that the handler has set last for the value of a key; 0 means forever.
func (b *Bucket) TTL(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values[key].ttl
}

// Keys returns the keys of the bucket, in the order of their bytes.
func (b *Bucket) Keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.values))
}

// check returns the error of a host that does not take the key, the value or the time to live; nil if it takes them.
func (b *Bucket) check(key string, value []byte, ttl int64) error {
	switch {
	case !validName(key) || ttl < 0:
		return sdk.ErrInvalid
	case len(value) > maxValue:
		return sdk.ErrTooBig
	}
	return nil
}

// put sets a value with a time to live in milliseconds. The caller must hold the harness's lock.
func (b *Bucket) put(key string, value []byte, ttl int64) error {
	err := b.check(key, value, ttl)
	if err == nil {
		b.values[key] = entry{clone(value), time.Duration(ttl) * time.Millisecond}
	}
	return err
}

// clone copies bytes. If there are none, it returns an empty slice, not nil.
func clone(value []byte) []byte { return append([]byte{}, value...) }

// validName reports whether a host takes the name of a bucket or key.
func validName(name string) bool { return name != "" && validText(name) }

func validText(text string) bool {
	return len(text) <= maxName && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
