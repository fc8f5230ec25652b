package queue

import (
	"context"
	"crypto/sha1" //nolint:gosec // SHA-1 is how Redis names a script, not a protection
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Each script is one transition, atomic in Redis; its file says what it takes and returns.
var (
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

	allScripts = []script{
		adoptScript, cancelScript, checkpointScript, condemnScript, deleteScript, drainScript, dueScript,
		enqueueScript, expireScript, joinScript, keepScript, logScript, lookScript, pollScript, progressScript, purgeScript,
		reclaimScript, recountScript, registerScript, releaseScript, renewScript, reserveScript, retireScript, retryScript,
		settleScript, startScript, takeScript, unregisterScript, yieldScript,
	}
)

// script is a Lua script with the name by which Redis caches it.
type script struct{ source, sha string }

// newScript puts embedded files behind each other, and the keys' names and the prelude before them. A name that is not
// embedded is a mistake in this file and ends the program at its start.
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
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// call is one script with its arguments, ready to go alone or with others in one round trip.
type call struct {
	script script
	keys   []string
	args   []any
}

// reply is what one call came back with.
type reply struct {
	value any
	err   error
}

// loadScripts brings every script to Redis in one round trip, so that EVALSHA finds them.
func (c *Client) loadScripts(ctx context.Context) error {
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range allScripts {
			p.ScriptLoad(ctx, s.source)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load scripts: %w", err)
	}
	return nil
}

// eval runs one script; if Redis has forgotten it (a restart, SCRIPT FLUSH), once more in full:
// a NOSCRIPT ran nothing.
func (c *Client) eval(ctx context.Context, one call) (any, error) { return evalOn(ctx, c.rdb, one) }

func evalOn(ctx context.Context, rdb redis.UniversalClient, one call) (any, error) {
	value, err := rdb.EvalSha(ctx, one.script.sha, one.keys, one.args...).Result()
	if isNoScript(err) {
		value, err = rdb.Eval(ctx, one.script.source, one.keys, one.args...).Result()
	}
	return value, err
}

// evalReplicated runs one script as eval does, and then, if the client asks for replicas, waits for as
// many on the same connection, which is the one whose writes Redis counts them for. It returns how many
// have it, or in waited why that is not known.
func (c *Client) evalReplicated(ctx context.Context, one call) (value any, replicas int, waited, err error) {
	if c.config.Replicas == 0 {
		value, err = c.eval(ctx, one)
		return value, 0, nil, err
	}
	send := func(script func(redis.Pipeliner) *redis.Cmd) (run, wait *redis.Cmd) {
		_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			run = script(p)
			wait = p.Do(ctx, "WAIT", c.config.Replicas, c.config.ReplicaTimeout.Milliseconds())
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

// evalAll runs the calls in one round trip and repeats alone those that Redis had forgotten. Never
// in MULTI: there a forgotten script would fail all of them.
func (c *Client) evalAll(ctx context.Context, calls []call) []reply {
	replies := make([]reply, len(calls))
	if len(calls) == 1 {
		replies[0].value, replies[0].err = c.eval(ctx, calls[0])
		return replies
	}
	cmds := make([]*redis.Cmd, len(calls))
	_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, one := range calls {
			cmds[i] = p.EvalSha(ctx, one.script.sha, one.keys, one.args...)
		}
		return nil
	})
	for i, cmd := range cmds {
		replies[i].value, replies[i].err = cmd.Result()
		if isNoScript(replies[i].err) {
			replies[i].value, replies[i].err = c.rdb.Eval(ctx, calls[i].script.source, calls[i].keys, calls[i].args...).Result()
		}
	}
	return replies
}

func isNoScript(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOSCRIPT")
}
