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

// What quern_v1 takes, in bytes, and keys of a list.
const (
	maxName  = 256
	maxValue = 512 << 10
	maxList  = 1000
	maxBody  = 16 << 20

	maxCheckpoint = 1 << 20
)

// Bucket is a bucket that the handler may use: a map, which has room for all values, and in which none expires.
type Bucket struct {
	mu       *sync.Mutex // the harness's
	values   map[string]entry
	readOnly bool
}

type entry struct {
	value []byte
	ttl   time.Duration
}

// ReadOnly makes it the manifest's access: r. The test itself may go on writing.
func (b *Bucket) ReadOnly() *Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readOnly = true
	return b
}

// Set sets a value, whatever its key and size are.
func (b *Bucket) Set(key, value string) *Bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[key] = entry{value: []byte(value)}
	return b
}

// Get is the value of a key; false if there is none.
func (b *Bucket) Get(key string) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.values[key]
	return string(e.value), ok
}

// TTL is how long the value of a key is to live, as the handler has set it last; 0 for ever.
func (b *Bucket) TTL(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values[key].ttl
}

// Keys are those of the bucket, in the order of their bytes.
func (b *Bucket) Keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.values))
}

// check returns the error of a value that a host does not take.
func (b *Bucket) check(key string, value []byte, ttl int64) error {
	switch {
	case !validName(key) || ttl < 0:
		return sdk.ErrInvalid
	case len(value) > maxValue:
		return sdk.ErrTooBig
	}
	return nil
}

// put sets a value with a time to live in milliseconds. The harness is locked.
func (b *Bucket) put(key string, value []byte, ttl int64) error {
	err := b.check(key, value, ttl)
	if err == nil {
		b.values[key] = entry{clone(value), time.Duration(ttl) * time.Millisecond}
	}
	return err
}

// clone copies bytes; none is an empty value, not nil.
func clone(value []byte) []byte { return append([]byte{}, value...) }

// validName tells whether a host takes the name of a bucket or key.
func validName(name string) bool { return name != "" && validText(name) }

func validText(text string) bool {
	return len(text) <= maxName && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
