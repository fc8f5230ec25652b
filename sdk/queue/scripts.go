package queue

import (
	"context"
	"crypto/sha1" //nolint:gosec // SHA-1 is how Redis names a script, not a protection
	"embed"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Each script is one transition, atomic in Redis; its file lists its KEYS, ARGV and RETURNS.
var (
	allScripts []script // what newScript made

	adoptScript      = newScript("adopt")
	cancelScript     = newScript("cancel")
	checkpointScript = newScript("checkpoint")
	condemnScript    = newScript("condemn")
	deleteScript     = newScript("delete")
	drainScript      = newScript("drain")
	dueScript        = newScript("due")
	enqueueScript    = newScript("batch", "enqueue")
	expireScript     = newScript("expire")
	joinScript       = newScript("join")
	keepScript       = newScript("keep")
	logScript        = newScript("log")
	lookScript       = newScript("look")
	pollScript       = newScript("poll")
	progressScript   = newScript("progress")
	purgeScript      = newScript("purge")
	reclaimScript    = newScript("reclaim")
	recountScript    = newScript("recount")
	registerScript   = newScript("register")
	releaseScript    = newScript("release")
	renewScript      = newScript("renew")
	reserveScript    = newScript("reserve")
	retireScript     = newScript("retire")
	retryScript      = newScript("retry")
	settleScript     = newScript("batch", "settle")
	startScript      = newScript("start")
	takeScript       = newScript("take")
	unregisterScript = newScript("unregister")
	yieldScript      = newScript("yield")
)

// script is a Lua script and the SHA-1 by which Redis caches it.
type script struct{ source, sha string }

// newScript joins the keys' names, the prelude and the named files. It panics over a name without a file: a mistake in the
// list above.
func newScript(names ...string) script {
	source := luaNames
	for _, name := range append([]string{"prelude"}, names...) {
		text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		source += string(text)
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	s := script{source: source, sha: hex.EncodeToString(sum[:])}
	allScripts = append(allScripts, s)
	return s
}

// call makes a call of a script that takes one key.
func (s script) call(key string, args ...any) call { return call{s, []string{key}, args} }

// call is a script with its arguments, sent alone or with others in one round trip.
type call struct {
	script script
	keys   []string
	args   []any
}

// reply is the answer to one call.
type reply struct {
	value any
	err   error
}

// store is one tenant's keys on a connection to Redis.
type store struct {
	rdb  redis.UniversalClient
	keys keys
	// clock replaces Redis's clock in scripts; only tests set it.
	clock string
	// poll is pollInterval; only tests set another.
	poll time.Duration
}

// pollInterval is how often idle listeners and waiters look by themselves: Python clients announce neither what they
// enqueue nor what they settle.
const pollInterval = 5 * time.Second

// Clock is Redis's time, by which leases, delays and ages are measured.
func (s *store) Clock(ctx context.Context) (time.Time, error) {
	now, err := s.rdb.Time(ctx).Result()
	return now, wrap("read Redis's clock", err)
}

// now is the time by which the scripts work.
func (s *store) now(ctx context.Context) (time.Time, error) {
	if s.clock != "" {
		return parseSeconds(s.clock), nil
	}
	return s.Clock(ctx)
}

// loadScripts loads every script in one round trip, so that EVALSHA finds them.
func (s *store) loadScripts(ctx context.Context) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, script := range allScripts {
			p.ScriptLoad(ctx, script.source)
		}
		return nil
	})
	return wrap("load scripts", err)
}

// eval runs one script; in full if Redis has forgotten it (a restart, SCRIPT FLUSH): a NOSCRIPT ran nothing.
func (s *store) eval(ctx context.Context, one call) (any, error) { return evalOn(ctx, s.rdb, one) }

func evalOn(ctx context.Context, rdb redis.UniversalClient, one call) (any, error) {
	value, err := rdb.EvalSha(ctx, one.script.sha, one.keys, one.args...).Result()
	if isNoScript(err) {
		value, err = rdb.Eval(ctx, one.script.source, one.keys, one.args...).Result()
	}
	return value, err
}

// evalReplicated runs one script and then, if replicas is not 0, waits for as many on the same connection: Redis counts
// them for its writes. It returns how many have it, or in waited why that is not known.
func (s *store) evalReplicated(ctx context.Context, one call, replicas int, timeout time.Duration) (value any, got int, waited, err error) {
	if replicas == 0 {
		value, err = s.eval(ctx, one)
		return value, 0, nil, err
	}
	send := func(script func(redis.Pipeliner) *redis.Cmd) (run, wait *redis.Cmd) {
		_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			run = script(p)
			wait = p.Do(ctx, "WAIT", replicas, timeout.Milliseconds())
			return nil
		})
		return run, wait
	}
	run, wait := send(func(p redis.Pipeliner) *redis.Cmd {
		return p.EvalSha(ctx, one.script.sha, one.keys, one.args...)
	})
	if isNoScript(run.Err()) {
		run, wait = send(func(p redis.Pipeliner) *redis.Cmd {
			return p.Eval(ctx, one.script.source, one.keys, one.args...)
		})
	}
	value, err = run.Result()
	return value, int(asInt(wait.Val())), wait.Err(), err
}

// evalAll runs the calls in one round trip and repeats those that Redis had forgotten. It never uses MULTI: there a
// forgotten script would fail all of them.
func (s *store) evalAll(ctx context.Context, calls []call) []reply {
	replies := make([]reply, len(calls))
	if len(calls) == 1 {
		replies[0].value, replies[0].err = s.eval(ctx, calls[0])
		return replies
	}
	cmds := make([]*redis.Cmd, len(calls))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, one := range calls {
			cmds[i] = p.EvalSha(ctx, one.script.sha, one.keys, one.args...)
		}
		return nil
	})
	for i, cmd := range cmds {
		replies[i].value, replies[i].err = cmd.Result()
		if isNoScript(replies[i].err) {
			replies[i].value, replies[i].err = s.rdb.Eval(ctx, calls[i].script.source, calls[i].keys, calls[i].args...).Result()
		}
	}
	return replies
}

func isNoScript(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOSCRIPT")
}

// pageTasks is how many items one pipeline reads.
const pageTasks = 1000

// pipelined reads something of each item, pageTasks in one round trip. A command that Redis refused, such as one on a key
// of another type, has its own error and fails no other.
func pipelined[T, C any](ctx context.Context, s *store, items []T, read func(p redis.Pipeliner, item T) C) ([]C, error) {
	cmds := make([]C, 0, len(items))
	for page := range slices.Chunk(items, pageTasks) {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, item := range page {
				cmds = append(cmds, read(p, item))
			}
			return nil
		})
		if err = passReplies(err); err != nil {
			return nil, err
		}
	}
	return cmds, nil
}
