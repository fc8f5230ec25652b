package host

import (
	"cmp"
	"context"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
)

// boundedKV says of what the manifest grants and the host does not that it is the host.
type boundedKV struct {
	kv    service.KV
	terms *manifest.Permissions
}

func (b boundedKV) Get(ctx context.Context, bucket, key string) ([]byte, error) {
	if err := b.terms.DenyBucket(bucket, false); err != nil {
		return nil, err
	}
	return b.kv.Get(ctx, bucket, key)
}

func (b boundedKV) Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	if err := b.terms.DenyBucket(bucket, true); err != nil {
		return err
	}
	return b.kv.Set(ctx, bucket, key, value, ttl)
}

func (b boundedKV) Delete(ctx context.Context, bucket, key string) (bool, error) {
	if err := b.terms.DenyBucket(bucket, true); err != nil {
		return false, err
	}
	return b.kv.Delete(ctx, bucket, key)
}

func (b boundedKV) Increment(ctx context.Context, bucket, key string, delta int64) (int64, error) {
	if err := b.terms.DenyBucket(bucket, true); err != nil {
		return 0, err
	}
	return b.kv.Increment(ctx, bucket, key, delta)
}

func (b boundedKV) Swap(ctx context.Context, bucket, key string, old, value []byte, ttl time.Duration) ([]byte, error) {
	if err := b.terms.DenyBucket(bucket, true); err != nil {
		return nil, err
	}
	return b.kv.Swap(ctx, bucket, key, old, value, ttl)
}

func (b boundedKV) List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error) {
	if err := b.terms.DenyBucket(bucket, false); err != nil {
		return nil, err
	}
	return b.kv.List(ctx, bucket, prefix, after, limit)
}

// boundedEnqueuer is the same of queues.
type boundedEnqueuer struct {
	enqueuer service.Enqueuer
	terms    *manifest.Permissions
	depth    int // of the task
}

func (b boundedEnqueuer) Enqueue(ctx context.Context, child service.Child) (string, error) {
	if err := cmp.Or(b.terms.DenyQueue(child.Queue), b.terms.DenyDepth(b.depth)); err != nil {
		return "", err
	}
	return b.enqueuer.Enqueue(ctx, child)
}
