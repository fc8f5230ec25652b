package listen

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// protocolVersion is written to Redis by the first host. A host refuses to work with a newer version.
const protocolVersion = 1

// Prepare loads the scripts into Redis and checks the protocol's version. It returns ErrVersion if the version in Redis
// is newer than this program's, or not a number. A host calls Prepare after each connect; other programs need not.
func Prepare(ctx context.Context, c *queue.Client) error {
	// The first command is small: if a password is missing, Redis closes a connection on which it gets much data, without
	// replying with an error.
	if err := c.Store().RDB.Get(ctx, c.Store().Keys.Version()).Err(); err != nil && !store.IsNil(err) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	_, err := c.Store().RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, script := range store.AllScripts {
			p.ScriptLoad(ctx, script.Source)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("load scripts: %w", err)
	}
	if err := c.Store().RDB.SetNX(ctx, c.Store().Keys.Version(), protocolVersion, 0).Err(); err != nil &&
		!queue.IsUnavailable(err) {
		return fmt.Errorf("write protocol version: %w", err)
	}
	text, err := c.Store().RDB.Get(ctx, c.Store().Keys.Version()).Result()
	if err != nil && !store.IsNil(err) {
		return fmt.Errorf("read protocol version: %w", err)
	}
	version, err := strconv.Atoi(cmp.Or(text, "0"))
	if err != nil {
		return fmt.Errorf("%w: key %s is %.20q, not a number: delete the key, then hosts write their version",
			ErrVersion, c.Store().Keys.Version(), text)
	}
	if version > protocolVersion {
		return fmt.Errorf("%w: key %s is %d, and this program knows versions up to %d: upgrade the program",
			ErrVersion, c.Store().Keys.Version(), version, protocolVersion)
	}
	return nil
}
