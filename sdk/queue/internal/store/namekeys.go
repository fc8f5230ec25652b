package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// nameKeys is a go-redis hook that adds the command's key to errors that do not name it, so that a reader of the error
// knows which key to repair.
type nameKeys struct{}

// keyNaming adds the hook nameKeys to a client, and returns the client.
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
			for _, cmd := range cmds { // go-redis has read no reply of the pipeline
				cmd.SetErr(err)
			}
			return err
		}
		var answer redis.Error
		failed := func(cmd redis.Cmder) bool { return cmd.Err() != nil }
		if errors.As(err, &answer) && !slices.ContainsFunc(cmds, failed) { // the login of a new connection failed
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
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

// nameKey adds the command's key to a ReplyError, and to Redis's errors WRONGTYPE and NOPERM. It adds the remedy to
// errors of the login.
func nameKey(cmd redis.Cmder, err error) error {
	if redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS") {
		return &loginError{err}
	}
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
	case key == "" || at == 3: // a script's error names the key itself
		return err
	}
	return &keyError{err, key}
}

// keyError adds the key of a command to the error that Redis replied with.
type keyError struct {
	error
	key string
}

// Error keeps the first word of Redis's error in front, because errors are distinguished by that word.
func (e *keyError) Error() string {
	word, text, _ := strings.Cut(e.error.Error(), " ")
	return word + " key " + e.key + ": " + text
}

// RedisError makes keyError a redis.Error.
func (e *keyError) RedisError() {}

func (e *keyError) Unwrap() error { return e.error }

// loginError adds the remedy to Redis's errors NOAUTH and WRONGPASS.
type loginError struct{ error }

func (e *loginError) Error() string {
	return e.error.Error() + ": give user and password in the URL: redis://USER:PASSWORD@HOST:PORT/DB"
}

// RedisError makes loginError a redis.Error.
func (e *loginError) RedisError() {}

func (e *loginError) Unwrap() error { return e.error }
