package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// Grant lets a plugin use one bucket.
type Grant struct {
	Bucket string
	// Write allows the plugin to set, delete, increment and swap. Reading is always allowed.
	Write bool
	// Quota is the maximum size of the bucket, in bytes, after a write of this plugin that makes the bucket grow. With 0
	// or less, the plugin cannot make it grow. Bytes that other plugins wrote count as well. Plugins can have different
	// quotas for one bucket.
	Quota int64
}

// For returns the store as one plugin can use it. Of two grants for one bucket, the later one counts. deny returns the
// error for reading or changing a bucket for which the plugin has no grant.
func (s *Store) For(grants []Grant, deny func(bucket string, write bool) error) service.KV {
	v := &view{store: s, deny: deny, grants: make(map[string]Grant, len(grants))}
	for _, grant := range grants {
		v.grants[grant.Bucket] = grant
	}
	return v
}

// view is a Store behind the grants of one plugin.
type view struct {
	store  *Store
	deny   func(bucket string, write bool) error
	grants map[string]Grant // by bucket; never changed
}

// grant returns the grant of a bucket, or the error that denies it.
func (v *view) grant(bucket string, write bool) (Grant, error) {
	if err := validName("bucket", bucket); err != nil {
		return Grant{}, err
	}
	grant, ok := v.grants[bucket]
	if !ok || write && !grant.Write {
		return Grant{}, cmp.Or(v.deny(bucket, write), service.ErrDenied)
	}
	return grant, nil
}

func (v *view) Get(ctx context.Context, bucket, key string) ([]byte, error) {
	if _, err := v.grant(bucket, false); err != nil {
		return nil, err
	}
	return v.store.Get(ctx, bucket, key)
}

func (v *view) Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	grant, err := v.grant(bucket, true)
	if err := cmp.Or(err, validName("key", key), fits(value)); err != nil {
		return err
	}
	_, err = v.store.call(ctx, setScript, grant, key, value, milliseconds(ttl), grant.Quota)
	return about("set", bucket, key, err)
}

func (v *view) Delete(ctx context.Context, bucket, key string) (bool, error) {
	grant, err := v.grant(bucket, true)
	if err := cmp.Or(err, validName("key", key)); err != nil {
		return false, err
	}
	_, err = v.store.call(ctx, deleteScript, grant, key)
	if errors.Is(err, service.ErrNotFound) {
		return false, nil
	}
	return err == nil, about("delete", bucket, key, err)
}

func (v *view) Increment(ctx context.Context, bucket, key string, delta int64) (sum int64, err error) {
	grant, err := v.grant(bucket, true)
	if err := cmp.Or(err, validName("key", key)); err != nil {
		return 0, err
	}
	values, err := v.store.call(ctx, incrementScript, grant, key, delta, grant.Quota)
	switch {
	case err == nil:
		sum, err = strconv.ParseInt(values[0], 10, 64)
	case errors.Is(err, service.ErrConflict):
		err = fmt.Errorf("%w: the value is no whole number of 64 bits in decimal digits", err)
	case errors.Is(err, service.ErrLimit):
		err = fmt.Errorf("%w: the value and %d have a sum of more than 64 bits", err, delta)
	}
	return sum, about("increment", bucket, key, err)
}

func (v *view) Swap(ctx context.Context, bucket, key string, old, value []byte,
	ttl time.Duration,
) (present []byte, err error) {
	grant, err := v.grant(bucket, true)
	if err := cmp.Or(err, validName("key", key), fits(value)); err != nil {
		return nil, err
	}
	args := []any{key, value, milliseconds(ttl), grant.Quota}
	if old != nil {
		args = append(args, old)
	}
	values, err := v.store.call(ctx, swapScript, grant, args...)
	switch conflict := errors.Is(err, service.ErrConflict); {
	case conflict && len(values) == 0:
		err = fmt.Errorf("%w: there is no value", err)
	case conflict:
		present, err = []byte(values[0]), fmt.Errorf("%w: the key has another value", err)
	}
	return present, about("swap", bucket, key, err)
}

func (v *view) List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	if _, err := v.grant(bucket, false); err != nil {
		return nil, err
	}
	return v.store.List(ctx, bucket, prefix, after, limit)
}

func fits(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: a value of %d bytes: the maximum is %d", service.ErrTooBig, len(value), MaxValue)
	}
	return nil
}

// milliseconds returns a time to live as the scripts take it: 0 is forever, and less than a millisecond counts as
// one.
func milliseconds(ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return max(ttl.Milliseconds(), 1)
}

// about adds the call, the key and the bucket to an error; nil stays nil.
func about(verb, bucket, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s key %q of bucket %q: %w", verb, key, bucket, err)
}
