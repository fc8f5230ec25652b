package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/service"
)

const (
	// MaxValue bounds a value, in bytes: with a larger one a script would block Redis for too long.
	MaxValue = 512 << 10
	// MaxName bounds a bucket's name and a key, in bytes, see service.KV.
	MaxName = 256
	// MaxList bounds the keys that one call lists, see service.KV.
	MaxList = 1000
)

// sweepAtOnce bounds the expired values that one script removes, which takes Redis about a millisecond. A script
// sets at most one value, so values are removed faster than they are added.
const sweepAtOnce = 200

// Store is the buckets of one tenant. Its methods may be called by many goroutines at once.
type Store struct {
	rdb   redis.UniversalClient
	keys  keys
	clock string // milliseconds since the epoch, in tests; "" is Redis's own clock
	sweep int
}

// New makes a store on a connection that stays the caller's, for a tenant that queue.ValidTenant accepts. The
// connection must not retry commands, which those of queue.Connect do not: an increment whose answer was lost would be
// done twice.
func New(rdb redis.UniversalClient, tenant string) *Store {
	return &Store{rdb: rdb, keys: keys{ns: tenant}, sweep: sweepAtOnce}
}

// Bucket counts the values of a bucket.
type Bucket struct {
	Name string
	// Keys is the number of values that have not expired.
	Keys int64
	// Bytes is what they count against a quota: the bytes of each key and of its value.
	Bytes int64
}

// Buckets returns the buckets that are not empty, by name. If the keys of one cannot be read, it returns the others and
// an error. Redis away is service.ErrUnavailable.
func (s *Store) Buckets(ctx context.Context) ([]Bucket, error) {
	names, err := ask(ctx, func() ([]string, error) { return s.rdb.HKeys(ctx, s.keys.buckets()).Result() })
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", s.keys.buckets(), err)
	}
	slices.Sort(names)
	var buckets []Bucket
	var errs []error
	for _, name := range names {
		bucket, err := s.stat(ctx, name)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, service.ErrUnavailable)):
			return buckets, errors.Join(append(errs, err)...)
		case err != nil:
			errs = append(errs, err)
		case bucket.Keys > 0:
			buckets = append(buckets, bucket)
		}
	}
	return buckets, errors.Join(errs...)
}

func (s *Store) stat(ctx context.Context, name string) (Bucket, error) {
	a, err := s.call(ctx, statScript, name)
	if err == nil && len(a.rest) != 2 {
		err = errUnknown(a)
	}
	if err != nil {
		return Bucket{}, fmt.Errorf("count bucket %q: %w", name, err)
	}
	bucket := Bucket{Name: name}
	var bytesErr, keysErr error
	bucket.Bytes, bytesErr = strconv.ParseInt(a.rest[0], 10, 64)
	bucket.Keys, keysErr = strconv.ParseInt(a.rest[1], 10, 64)
	return bucket, errors.Join(bytesErr, keysErr)
}

// Get returns a value of any bucket, with the errors of service.KV. No bucket is denied.
func (s *Store) Get(ctx context.Context, bucket, key string) ([]byte, error) {
	if err := valid(bucket, key); err != nil {
		return nil, err
	}
	a, err := s.call(ctx, getScript, bucket, key)
	if err == nil {
		err = verdict(a, 1)
	}
	if err != nil {
		return nil, fmt.Errorf("get key %q of bucket %q: %w", key, bucket, err)
	}
	return []byte(a.rest[0]), nil
}

// List returns keys of any bucket as service.KV does. An empty bucket has none, and no bucket is denied.
func (s *Store) List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	err := cmp.Or(validName("bucket", bucket), validText("prefix", prefix), validText("key to list after", after))
	if err != nil {
		return nil, err
	}
	if limit < 1 || limit > MaxList {
		return nil, fmt.Errorf("%w: a limit of %d keys: it may be 1 to %d", service.ErrInvalid, limit, MaxList)
	}
	from, to := between(prefix, after)
	a, err := s.call(ctx, listScript, bucket, from, to, limit)
	if err == nil {
		err = verdict(a, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("list bucket %q: %w", bucket, err)
	}
	return a.rest, nil
}

// between returns the bounds, as ZRANGEBYLEX takes them, of the keys that begin with prefix and come after another key.
// No byte of UTF-8 is 0xff and no key has a NUL: texts with these lie between the keys. A bound is never a "+" or "-"
// alone, which miniredis takes for the end of all keys even where it is a key.
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

func (s *Store) set(ctx context.Context, grant Grant, key string, value []byte, ttl time.Duration) error {
	if err := cmp.Or(valid(grant.Bucket, key), fits(value)); err != nil {
		return err
	}
	a, err := s.call(ctx, setScript, grant.Bucket, key, value, milliseconds(ttl), grant.Quota)
	if err == nil {
		err = grant.verdict(a, 0)
	}
	if err != nil {
		return fmt.Errorf("set key %q of bucket %q: %w", key, grant.Bucket, err)
	}
	return nil
}

func (s *Store) delete(ctx context.Context, bucket, key string) (bool, error) {
	if err := valid(bucket, key); err != nil {
		return false, err
	}
	a, err := s.call(ctx, deleteScript, bucket, key)
	if err == nil && a.word == "absent" {
		return false, nil
	}
	if err == nil {
		err = verdict(a, 0)
	}
	if err != nil {
		return false, fmt.Errorf("delete key %q of bucket %q: %w", key, bucket, err)
	}
	return true, nil
}

func (s *Store) increment(ctx context.Context, grant Grant, key string, delta int64) (sum int64, err error) {
	if err := valid(grant.Bucket, key); err != nil {
		return 0, err
	}
	a, err := s.call(ctx, incrementScript, grant.Bucket, key, delta, grant.Quota)
	switch {
	case err != nil:
	case a.word == "conflict":
		err = fmt.Errorf("%w: the value is no whole number of 64 bits in decimal digits", service.ErrConflict)
	case a.word == "limit":
		err = fmt.Errorf("%w: the value and %d have a sum of more than 64 bits", service.ErrLimit, delta)
	default:
		if err = grant.verdict(a, 1); err == nil {
			sum, err = strconv.ParseInt(a.rest[0], 10, 64)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("increment key %q of bucket %q: %w", key, grant.Bucket, err)
	}
	return sum, nil
}

func (s *Store) swap(ctx context.Context, grant Grant, key string, old, value []byte, ttl time.Duration) (present []byte, err error) {
	if err := cmp.Or(valid(grant.Bucket, key), fits(value)); err != nil {
		return nil, err
	}
	args := []any{key, value, milliseconds(ttl), grant.Quota}
	if old != nil {
		args = append(args, old)
	}
	a, err := s.call(ctx, swapScript, grant.Bucket, args...)
	switch {
	case err != nil:
	case a.word == "conflict" && len(a.rest) == 0:
		err = fmt.Errorf("%w: there is no value", service.ErrConflict)
	case a.word == "conflict":
		present = []byte(a.rest[0])
		err = fmt.Errorf("%w: the value is another one", service.ErrConflict)
	default:
		err = grant.verdict(a, 0)
	}
	if err != nil {
		return present, fmt.Errorf("swap key %q of bucket %q: %w", key, grant.Bucket, err)
	}
	return nil, nil
}

// milliseconds is a time to live as the scripts take it: 0 for ever, and one for less than a millisecond.
func milliseconds(ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return max(ttl.Milliseconds(), 1)
}

// call runs a script on a bucket until it does not answer "again": each time fewer expired values are left.
func (s *Store) call(ctx context.Context, script script, bucket string, args ...any) (answer, error) {
	keys := []string{s.keys.values(bucket), s.keys.names(bucket), s.keys.expiry(bucket), s.keys.buckets()}
	args = append([]any{s.clock, bucket, s.sweep}, args...)
	for {
		a, err := ask(ctx, func() (answer, error) { return s.eval(ctx, script, keys, args) })
		if err != nil || a.word != "again" {
			return a, err
		}
	}
}

// eval runs a script. If Redis does not know it (after a restart or SCRIPT FLUSH), eval sends it in full: a script that
// answered NOSCRIPT did nothing.
func (s *Store) eval(ctx context.Context, script script, keys []string, args []any) (answer, error) {
	items, err := s.rdb.EvalSha(ctx, script.sha, keys, args...).StringSlice()
	var reply redis.Error
	if errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOSCRIPT") {
		items, err = s.rdb.Eval(ctx, script.source, keys, args...).StringSlice()
	}
	if err != nil {
		return answer{}, s.explain(ctx, err, keys)
	}
	if len(items) == 0 {
		return answer{}, errors.New("the script answered nothing")
	}
	return answer{word: items[0], rest: items[1:]}, nil
}

// types are the types of a bucket's keys, in the order in which the scripts take them.
var types = []string{"hash", "zset", "zset", "hash"}

// explain names the key if Redis's error is about its type. Scripts do not check the types themselves: that would be
// four more commands in each, for a rare error.
func (s *Store) explain(ctx context.Context, err error, keys []string) error {
	if !strings.Contains(err.Error(), "WRONGTYPE") {
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

// Grant lets a plugin use one bucket.
type Grant struct {
	Bucket string
	// Write allows it to set, delete, increment and swap. Reading is always allowed.
	Write bool
	// Quota bounds the bytes of the bucket after a write of this plugin that makes it grow; with 0 or less it cannot
	// grow. Bytes that other plugins wrote count as well. Plugins may have different quotas for one bucket.
	Quota int64
}

// verdict is the error of an answer to a write; nil for "ok".
func (g Grant) verdict(a answer, rest int) error {
	if a.word == "quota" && len(a.rest) == 1 {
		return fmt.Errorf("%w: the bucket holds %s bytes and may hold %d", service.ErrQuota, a.rest[0], g.Quota)
	}
	return verdict(a, rest)
}

// verdict is the error of an answer; nil for "ok" with at least rest values.
func verdict(a answer, rest int) error {
	switch {
	case a.word == "ok" && len(a.rest) >= rest:
		return nil
	case a.word == "absent":
		return service.ErrNotFound
	default:
		return errUnknown(a)
	}
}

func errUnknown(a answer) error {
	return fmt.Errorf("the script answered %q and %d more", a.word, len(a.rest))
}

func valid(bucket, key string) error {
	return cmp.Or(validName("bucket", bucket), validName("key", key))
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
		return fmt.Errorf("%w: a %s of %d bytes: it may have %d", service.ErrInvalid, what, len(text), MaxName)
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
