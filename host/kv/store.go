package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/service"
)

const (
	// MaxValue is the maximum length of a value, in bytes. With a larger value, a script would block Redis for too long.
	MaxValue = 512 << 10
	// MaxName is the maximum length of a bucket's name and of a key, in bytes; see service.KV.
	MaxName = 256
	// MaxList is the maximum number of keys that one call lists; see service.KV.
	MaxList = 1000
)

// sweepAtOnce is the maximum number of expired values that one script removes, which takes Redis about a millisecond. A
// script sets at most one value, so values are removed faster than they are added.
const sweepAtOnce = 200

// Store stores the buckets of one tenant. Its methods are safe for concurrent use.
type Store struct {
	rdb  redis.UniversalClient
	keys keys
	// clock is the time for the scripts in tests, in milliseconds since the epoch. If it is "", they use Redis's own
	// clock.
	clock string
	sweep int
}

// New makes a store for a tenant that queue.ValidTenant accepts. On a Redis Cluster, rdb is the client that
// manage.OnTenant returns. The caller still owns the connection. The connection
// must not retry commands, or an increment whose answer was lost would be done twice. Connections of queue.Connect do
// not retry.
func New(rdb redis.UniversalClient, tenant string) *Store {
	return &Store{rdb: rdb, keys: keys{ns: tenant}, sweep: sweepAtOnce}
}

// Bucket counts the values of a bucket.
type Bucket struct {
	Name string
	// Keys is the number of values that have not expired.
	Keys int64
	// Bytes is the size of the bucket as a quota counts it: the bytes of each key and of its value.
	Bytes int64
}

// Buckets returns the buckets that are not empty, by name. If the keys of a bucket cannot be read, it returns the other
// buckets and an error. If Redis cannot be reached, the error wraps service.ErrUnavailable.
func (s *Store) Buckets(ctx context.Context) ([]Bucket, error) {
	names, err := ask(ctx, func() ([]string, error) { return s.rdb.HKeys(ctx, s.keys.buckets()).Result() })
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", s.keys.buckets(), err)
	}
	slices.Sort(names)
	var buckets []Bucket
	var missing error
	for _, name := range names {
		bucket, err := s.stat(ctx, name)
		missing = errors.Join(missing, err)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, service.ErrUnavailable)):
			return buckets, missing
		case err == nil && bucket.Keys > 0:
			buckets = append(buckets, bucket)
		}
	}
	return buckets, missing
}

func (s *Store) stat(ctx context.Context, name string) (Bucket, error) {
	counts, err := s.call(ctx, statScript, Grant{Bucket: name})
	if err != nil {
		return Bucket{}, fmt.Errorf("count bucket %q: %w", name, err)
	}
	bytes, bytesErr := strconv.ParseInt(counts[0], 10, 64)
	keys, keysErr := strconv.ParseInt(counts[1], 10, 64)
	return Bucket{Name: name, Keys: keys, Bytes: bytes}, errors.Join(bytesErr, keysErr)
}

// Get returns a value of any bucket, with the errors of service.KV. No bucket is denied.
func (s *Store) Get(ctx context.Context, bucket, key string) ([]byte, error) {
	if err := cmp.Or(validName("bucket", bucket), validName("key", key)); err != nil {
		return nil, err
	}
	values, err := s.call(ctx, getScript, Grant{Bucket: bucket}, key)
	if err != nil {
		return nil, fmt.Errorf("get key %q of bucket %q: %w", key, bucket, err)
	}
	return []byte(values[0]), nil
}

// List returns keys of any bucket as service.KV does. An empty bucket has no keys, and no bucket is denied.
func (s *Store) List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	err := cmp.Or(validName("bucket", bucket), validText("prefix", prefix), validText("key to list after", after))
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > MaxList {
		return nil, fmt.Errorf("%w: a limit of %d keys: use 1 to %d", service.ErrInvalid, limit, MaxList)
	}
	from, to := between(prefix, after)
	keys, err := s.call(ctx, listScript, Grant{Bucket: bucket}, from, to, limit)
	if err != nil {
		return nil, fmt.Errorf("list bucket %q: %w", bucket, err)
	}
	return keys, nil
}

// between returns bounds for ZRANGEBYLEX. Between them are the keys that begin with prefix and, unless after is "",
// sort after it. No byte of UTF-8 is 0xff and no key has a NUL, so bounds with these bytes lie between the keys. A
// bound is never a "+" or "-" alone, which miniredis takes for the end of all keys even where it is a key.
func between(prefix, after string) (from, to string) {
	from, to = "-", "+"
	if last := len(prefix) - 1; last >= 0 {
		from = "(" + prefix[:last] + string([]byte{prefix[last] - 1, 0xff})
		to = "(" + prefix + "\xff"
	}
	if after != "" && after >= prefix {
		from = "[" + after + "\x00"
	}
	return from, to
}

// call runs a script on a bucket, and repeats it while the answer is "again": each run leaves fewer expired values. An
// answer is a word and values. call returns the values, and the error for which the word stands.
func (s *Store) call(ctx context.Context, script *redis.Script, grant Grant, args ...any) (values []string, err error) {
	bucket := grant.Bucket
	keys := []string{
		s.keys.values(bucket), s.keys.names(bucket), s.keys.expiry(bucket), s.keys.buckets(), s.keys.quotas(), s.keys.used(),
	}
	declared := keys
	if strings.HasPrefix(s.keys.ns, "{") { // so that a Cluster refuses the script while it moves the keys
		declared = append(slices.Clip(keys), s.keys.values("")) // which never exists
	}
	args = append([]any{s.clock, bucket, s.sweep}, args...)
	word := "again"
	for word == "again" {
		reply, err := ask(ctx, func() ([]string, error) {
			reply, err := script.Run(ctx, s.rdb, declared, args...).StringSlice()
			return reply, s.explain(ctx, err, keys)
		})
		if err != nil {
			return nil, err
		}
		word, values = reply[0], reply[1:]
	}
	switch word {
	case "ok":
		return values, nil
	case "absent":
		return nil, service.ErrNotFound
	case "conflict":
		return values, service.ErrConflict
	case "limit":
		return nil, service.ErrLimit
	case "quota":
		return nil, fmt.Errorf("%w: the bucket holds %s bytes and may hold %d", service.ErrQuota, values[0], grant.Quota)
	case "tenant":
		return nil, fmt.Errorf("%w: the quota kv_bytes of tenant %s is %s, and %s are used: delete keys, or have it raised with `quern tenant set --kv-bytes`",
			service.ErrQuota, s.keys.ns, values[1], values[0])
	}
	return nil, fmt.Errorf("the script answered %q and %d more", word, len(values))
}

// types are the types of a bucket's keys, in the order in which the scripts take them.
var types = []string{"hash", "zset", "zset", "hash", "hash", "hash"}

// explain adds the name of the key to an error of Redis about the type of a key. Scripts do not check the types
// themselves: that would be four more commands in each, for a rare error.
func (s *Store) explain(ctx context.Context, err error, keys []string) error {
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		return err
	}
	is := make([]*redis.StatusCmd, len(keys))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // without a reply the error stays as it is
		for i, key := range keys {
			is[i] = p.Type(ctx, key)
		}
		return nil
	})
	for i, key := range keys {
		if is := is[i].Val(); is != "" && is != "none" && is != types[i] {
			err = fmt.Errorf("key %s is a %s, expected a %s: %w", key, is, types[i], err)
		}
	}
	return err
}

// validName checks the name of a bucket or a key, see service.KV.
func validName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: a %s without a name: it has 1 to %d bytes", service.ErrInvalid, what, MaxName)
	}
	return validText(what, name)
}

func validText(what, text string) error {
	switch {
	case len(text) > MaxName:
		return fmt.Errorf("%w: a %s of %d bytes: the maximum is %d", service.ErrInvalid, what, len(text), MaxName)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s %q is not UTF-8", service.ErrInvalid, what, text)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: %s %q has control characters", service.ErrInvalid, what, text)
	}
	return nil
}
