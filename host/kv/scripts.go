package kv

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// keys builds the names of all keys in Redis. No code parses a bucket's name out of a key.
type keys struct{ ns string }

func (k keys) values(bucket string) string { return k.ns + "_kv_" + bucket }
func (k keys) names(bucket string) string  { return k.ns + "_kvkeys_" + bucket }
func (k keys) expiry(bucket string) string { return k.ns + "_kvttl_" + bucket }
func (k keys) buckets() string             { return k.ns + "_kvs" }

// The tenant's quotas, and how much they refused, belong to package manage.
func (k keys) quotas() string { return k.ns + "_quotas" }
func (k keys) used() string   { return k.ns + "_used" }

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Each script is one call, atomic in Redis; its file documents what it takes and returns.
var (
	deleteScript    = newScript("delete")
	getScript       = newScript("get")
	incrementScript = newScript("increment")
	listScript      = newScript("list")
	setScript       = newScript("set")
	statScript      = newScript("stat")
	swapScript      = newScript("swap")
)

// newScript reads an embedded script and puts the prelude before it. An unknown name is a bug in this file, and panics
// when the program starts.
func newScript(name string) *redis.Script {
	var source string
	for _, file := range []string{"prelude", name} {
		text, err := scriptFiles.ReadFile("scripts/" + file + ".lua")
		if err != nil {
			panic(err)
		}
		source += string(text)
	}
	return redis.NewScript(source)
}

// ask calls f, which asks Redis, and waits for its answer until ctx ends. If Redis cannot be reached, the error wraps
// service.ErrUnavailable.
func ask[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	value, err = service.Await(ctx, f)
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) { // there is no reply
		if ended := ctx.Err(); ended != nil {
			return value, ended
		}
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			return value, context.DeadlineExceeded // the connection timed out just before ctx
		}
	}
	if errors.Is(err, queue.ErrTooLarge) { // somebody wrote the value by hand
		err = fmt.Errorf("%w: %w", service.ErrTooBig, err)
	}
	if queue.IsUnavailable(err) {
		err = fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	return value, err
}
