package kv

import (
	"context"
	"crypto/sha1" //nolint:gosec // SHA-1 is how Redis names a script, not a protection
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// keys builds the name of every key that buckets have in Redis. Nothing parses a bucket's name out of one.
type keys struct{ ns string }

func (k keys) values(bucket string) string { return k.ns + "_kv_" + bucket }
func (k keys) names(bucket string) string  { return k.ns + "_kvkeys_" + bucket }
func (k keys) expiry(bucket string) string { return k.ns + "_kvttl_" + bucket }
func (k keys) buckets() string             { return k.ns + "_kvs" }

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Each script is one call, atomic in Redis; its file says what it takes and returns.
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

// newScript reads an embedded script and puts the prelude before it. A name that is not embedded is a mistake in
// this file and ends the program at its start.
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

// answer is what a script came back with: a word, and what belongs to it.
type answer struct {
	word string
	rest []string
}

// call runs a script on a bucket until it has an answer: each time that it has none yet, less is left to be
// removed.
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

// eval runs a script once; if Redis has forgotten it (a restart, SCRIPT FLUSH), once more in full: a NOSCRIPT ran
// nothing.
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

// types are those that the keys of a bucket have, in the order in which the scripts take them.
var types = []string{"hash", "zset", "zset", "hash"}

// explain adds to Redis's error about a key of another type which one that is. Scripts do not ask for the types
// themselves: that would be four more commands in each, for what is hardly ever so.
func (s *Store) explain(ctx context.Context, err error, keys []string) error {
	if !strings.Contains(err.Error(), "WRONGTYPE") {
		return err
	}
	is := make([]*redis.StatusCmd, len(keys))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // without an answer the error stays as it is
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

// ask asks Redis until ctx ends. An error that means that Redis cannot be reached wraps service.ErrUnavailable.
func ask[T any](ctx context.Context, f func() (T, error)) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	value, err = service.Await(ctx, f)
	return value, classify(ctx, err)
}

// classify makes an error of go-redis the service's.
func classify(ctx context.Context, err error) error {
	var reply redis.Error
	if err == nil {
		return nil
	}
	if !errors.As(err, &reply) { // Redis said nothing
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
