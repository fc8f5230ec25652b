package queue

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// protocolVersion is written to Redis by the first host; a host refuses a newer one.
const protocolVersion = 1

// Prepare loads the scripts and checks the protocol's version: ErrVersion if that in Redis is newer or not a number. A host
// calls it after each connect; other programs need not.
func (c *Client) Prepare(ctx context.Context) error {
	// The first command is small: a Redis that wants a password closes a connection that sends much, without an error.
	if err := c.store.rdb.Get(ctx, c.store.keys.version()).Err(); err != nil && !isNil(err) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	_, err := c.store.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, script := range allScripts {
			p.ScriptLoad(ctx, script.source)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load scripts: %w", err)
	}
	if err := c.store.rdb.SetNX(ctx, c.store.keys.version(), protocolVersion, 0).Err(); err != nil && !IsUnavailable(err) {
		return fmt.Errorf("write protocol version: %w", err)
	}
	text, err := c.store.rdb.Get(ctx, c.store.keys.version()).Result()
	if err != nil && !isNil(err) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	version, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		return fmt.Errorf("%w: key %s is %.20q: a number belongs there: delete the key, and hosts write theirs",
			ErrVersion, c.store.keys.version(), text)
	}
	if version > protocolVersion {
		return fmt.Errorf("%w: key %s is %d, and this program speaks %d: upgrade it",
			ErrVersion, c.store.keys.version(), version, protocolVersion)
	}
	return nil
}
