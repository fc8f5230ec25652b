package store

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// nameKeys is a hook that puts the command's key into the errors that lack it, so that whoever reads one knows what to repair.
type nameKeys struct{}

// keyNaming gives a client the hook.
func keyNaming(client *redis.Client) *redis.Client {
	client.AddHook(nameKeys{})
	return client
}

func (nameKeys) DialHook(next redis.DialHook) redis.DialHook { return next }

func (nameKeys) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return nameKey(cmd, next(ctx, cmd))
	}
}

func (nameKeys) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		var reply *ReplyError
		if errors.As(err, &reply) && reply.at < len(cmds) {
			err = nameKey(cmds[reply.at], err)
			for _, cmd := range cmds { // go-redis takes the answers of none
				cmd.SetErr(err)
			}
			return err
		}
		for _, cmd := range cmds {
			if cmd.Err() == nil {
				continue
			}
			named := nameKey(cmd, cmd.Err())
			cmd.SetErr(named)
			if errors.Is(named, err) {
				err = named
			}
		}
		return err
	}
}

// nameKey puts the command's key into a ReplyError, and into Redis's answer that the key is of another type, or not for this user.
func nameKey(cmd redis.Cmder, err error) error {
	var reply *ReplyError
	large := errors.As(err, &reply)
	if !large && !redis.HasErrorPrefix(err, "WRONGTYPE Operation") && !redis.HasErrorPrefix(err, "NOPERM") {
		return err
	}
	args, at := cmd.Args(), 1
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		at = 3
	}
	var key string
	if at < len(args) {
		key, _ = args[at].(string)
	}
	switch {
	case large:
		return &ReplyError{Command: cmd.Name(), Key: key, Is: reply.Is}
	case key == "" || at == 3: // which of its keys a script means it says itself
		return err
	}
	return &keyError{err, key}
}

// keyError is Redis's answer to a command on a key.
type keyError struct {
	error
	key string
}

// Error keeps Redis's word in front, by which answers are told apart.
func (e *keyError) Error() string {
	word, text, _ := strings.Cut(e.error.Error(), " ")
	return word + " key " + e.key + ": " + text
}

// RedisError makes it a redis.Error.
func (e *keyError) RedisError() {}

func (e *keyError) Unwrap() error { return e.error }
