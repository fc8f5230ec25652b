package kv

import (
	"context"
	"crypto/sha1" //nolint:gosec // SHA-1 is how Redis names a script, not a protection
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// keys builds the names of all keys in Redis. Nothing parses a bucket's name out of one.
type keys struct{ ns string }

func (k keys) values(bucket string) string { return k.ns + "_kv_" + bucket }
func (k keys) names(bucket string) string  { return k.ns + "_kvkeys_" + bucket }
func (k keys) expiry(bucket string) string { return k.ns + "_kvttl_" + bucket }
func (k keys) buckets() string             { return k.ns + "_kvs" }

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

// script is a Lua script with the name by which Redis caches it.
type script struct{ source, sha string }

// newScript reads an embedded script and puts the prelude before it. An unknown name is a bug in this file, and panics
// when the program starts.
func newScript(name string) script {
	prelude, err := scriptFiles.ReadFile("scripts/prelude.lua")
	if err != nil {
		panic(err)
	}
	body, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	source := string(prelude) + string(body)
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// answer is the reply of a script: a word, and what belongs to it.
type answer struct {
	word string
	rest []string
}

// ask asks Redis until ctx ends. An error that means that Redis cannot be reached wraps service.ErrUnavailable.
func ask[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	value, err = service.Await(ctx, f)
	return value, classify(ctx, err)
}

// classify turns an error of go-redis into one of package service.
func classify(ctx context.Context, err error) error {
	var reply redis.Error
	if err == nil {
		return nil
	}
	if !errors.As(err, &reply) { // there is no reply
		if ended := ctx.Err(); ended != nil {
			return ended
		}
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			return context.DeadlineExceeded // the connection noticed first
		}
	}
	if queue.IsUnavailable(err) {
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	return err
}
