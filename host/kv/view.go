package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// For is the store as one plugin may use it. Of two grants for one bucket the later counts.
func (s *Store) For(grants []Grant) service.KV { return s.ForUnder(grants, nil) }

// ForUnder is For with a function that explains why a bucket is denied. If it is nil or returns nil, the manifest is named.
func (s *Store) ForUnder(grants []Grant, deny func(bucket string, write bool) error) service.KV {
	v := &view{store: s, deny: deny, grants: make(map[string]Grant, len(grants))}
	for _, grant := range grants {
		v.grants[grant.Bucket] = grant
	}
	return v
}

// view is a Store behind the grants of one plugin.
type view struct {
	store  *Store
	deny   func(bucket string, write bool) error // may be nil
	grants map[string]Grant                      // by bucket; never changed
}

var _ service.KV = (*view)(nil)

// grant finds the grant of a bucket, or returns an error with the line that the manifest lacks.
func (v *view) grant(bucket string, write bool) (Grant, error) {
	if err := validName("bucket", bucket); err != nil {
		return Grant{}, err
	}
	grant, ok := v.grants[bucket]
	what := "is not granted"
	switch {
	case ok && (grant.Write || !write):
		return grant, nil
	case ok:
		what = "is granted for reading only"
	}
	if v.deny != nil {
		if err := v.deny(bucket, write); err != nil {
			return Grant{}, err
		}
	}
	return Grant{}, fmt.Errorf("%w: bucket %q %s: the manifest would say capabilities.kv: [{bucket: %q, access: rw}]",
		service.ErrDenied, bucket, what, bucket)
}

func (v *view) Get(ctx context.Context, bucket, key string) ([]byte, error) {
	if _, err := v.grant(bucket, false); err != nil {
		return nil, err
	}
	return v.store.Get(ctx, bucket, key)
}

func (v *view) Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	grant, err := v.grant(bucket, true)
	if err != nil {
		return err
	}
	return v.store.set(ctx, grant, key, value, ttl)
}

func (v *view) Delete(ctx context.Context, bucket, key string) (bool, error) {
	if _, err := v.grant(bucket, true); err != nil {
		return false, err
	}
	return v.store.delete(ctx, bucket, key)
}

func (v *view) Increment(ctx context.Context, bucket, key string, delta int64) (int64, error) {
	grant, err := v.grant(bucket, true)
	if err != nil {
		return 0, err
	}
	return v.store.increment(ctx, grant, key, delta)
}

func (v *view) Swap(ctx context.Context, bucket, key string, old, value []byte, ttl time.Duration) ([]byte, error) {
	grant, err := v.grant(bucket, true)
	if err != nil {
		return nil, err
	}
	return v.store.swap(ctx, grant, key, old, value, ttl)
}

func (v *view) List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	if _, err := v.grant(bucket, false); err != nil {
		return nil, err
	}
	return v.store.List(ctx, bucket, prefix, after, limit)
}
