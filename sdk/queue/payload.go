package queue

import (
	"context"
	"fmt"
	"math"
	"net"

	"github.com/redis/go-redis/v9"
)

// Payloads are the parameters and results of tasks and the payloads of publications, which may be larger than any other value. Their
// size is asked before they are read.

// Parameters reads only the parameters of a task: ErrNoTask if there is none. Those of a dead letter are the failed task's.
func (c *Client) Parameters(ctx context.Context, id string) ([]byte, error) {
	return c.ParametersWithin(ctx, id, math.MaxInt64)
}

// ParametersWithin is Parameters for a caller that has room for this many bytes: ErrTooLarge, and nothing is read, if there are more.
func (c *Client) ParametersWithin(ctx context.Context, id string, most int64) ([]byte, error) {
	value, found, err := c.readPayload(ctx, id, "parameters", most)
	if found || err != nil {
		return value, err
	}
	live, err := c.rdb.HGet(ctx, c.keys.task(id), "live_id").Result()
	if err == nil {
		value, _, err = c.readPayload(ctx, live, "parameters", most)
		return value, err
	}
	exists, err := c.rdb.Exists(ctx, c.keys.task(id)).Result()
	if err == nil && exists == 0 {
		return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
	}
	return nil, wrap("read parameters of task "+id, err) // nil: a task without parameters, written by hand
}

// Result reads the result of a task alone: ErrNoTask if it has none, because it is not complete or is deleted. If there are more than
// this many bytes, nothing is read: ErrInvalid.
func (c *Client) Result(ctx context.Context, id string, most int64) ([]byte, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	value, found, err := c.readPayload(ctx, id, "result", most)
	if err == nil && !found {
		err = fmt.Errorf("result of task %s: %w", id, ErrNoTask)
	}
	return value, err
}

// PayloadSizes tells how many bytes the parameters and the result have that Task would read, 0 for none.
func (c *Client) PayloadSizes(ctx context.Context, id string) (parameters, result int64, err error) {
	if err := ValidID(id); err != nil {
		return 0, 0, err
	}
	sizes, err := c.sizesOf(ctx, []string{id}, "parameters", "result")
	if err != nil || sizes[0] > 0 {
		return sizes[0], sizes[1], err
	}
	live, err := c.rdb.HGet(ctx, c.keys.task(id), "live_id").Result() // a dead letter has those of the failed task
	if passReplies(err) != nil {
		return 0, 0, fmt.Errorf("read sizes of task %s: %w", id, err)
	}
	if live == "" {
		return 0, sizes[1], nil
	}
	ofLive, err := c.sizesOf(ctx, []string{live}, "parameters")
	return ofLive[0], sizes[1], err
}

// ResultSize is how many bytes the result of a task has; 0 if there is none.
func (c *Client) ResultSize(ctx context.Context, id string) (int64, error) {
	if err := ValidID(id); err != nil {
		return 0, err
	}
	sizes, err := c.sizesOf(ctx, []string{id}, "result")
	return sizes[0], err
}

// Publication reads a publication: ErrNoPublication if it is not kept (any more).
func (c *Client) Publication(ctx context.Context, id string) (*Publication, error) {
	return c.PublicationWithin(ctx, id, math.MaxInt64)
}

// PublicationWithin is Publication for a caller that has room for a payload of this many bytes: ErrTooLarge, and nothing is read, if
// there are more.
func (c *Client) PublicationWithin(ctx context.Context, id string, most int64) (*Publication, error) {
	if err := validName("publication", id); err != nil {
		return nil, err
	}
	var size int64
	if c.measures(most) {
		var err error
		if size, err = c.PublicationSize(ctx, id); err != nil {
			return nil, err
		}
	}
	if size > most {
		return nil, noRoom("the payload of publication "+id, size, most)
	}
	rdb, end := c.payloadReader(size)
	defer end()
	hash, err := rdb.HGetAll(ctx, c.keys.publication(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read publication %s: %w", id, err)
	}
	if len(hash) == 0 {
		return nil, fmt.Errorf("publication %s: %w", id, ErrNoPublication)
	}
	return newPublication(id, hash), nil
}

// PublicationSize is how many bytes the payload of a publication has: ErrNoPublication if it is not kept (any more).
func (c *Client) PublicationSize(ctx context.Context, id string) (int64, error) {
	if err := validName("publication", id); err != nil {
		return 0, err
	}
	var size, exists *redis.IntCmd
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		size, exists = p.HStrLen(ctx, c.keys.publication(id), "parameters"), p.Exists(ctx, c.keys.publication(id))
		return nil
	})
	if err == nil && exists.Val() == 0 {
		return 0, fmt.Errorf("publication %s: %w", id, ErrNoPublication)
	}
	return size.Val(), wrap("read size of publication "+id, err)
}

// noRoom says that something is larger than its reader has room for: it is ErrInvalid, too.
func noRoom(what string, size, most int64) error {
	return fmt.Errorf("%w: %s has %d bytes, at most %d are read: %w", ErrInvalid, what, size, most, ErrTooLarge)
}

// measures tells whether anything depends on the size of a payload of which a caller has room for so many bytes.
func (c *Client) measures(most int64) bool {
	_, is := c.rdb.(bounded)
	return is || most < math.MaxInt64
}

// sizesOf are the sizes of these fields, by task and then by field, as readPayload would read them or up to maxMarker more; 0 for a
// missing one, and for all of them with an error.
func (c *Client) sizesOf(ctx context.Context, ids []string, fields ...string) ([]int64, error) {
	type field struct{ id, name string }
	asked := make([]field, 0, len(ids)*len(fields))
	for _, id := range ids {
		for _, name := range fields {
			asked = append(asked, field{id, name})
		}
	}
	cmds, err := pipelined(ctx, &c.store, asked, func(p redis.Pipeliner, f field) [2]*redis.IntCmd {
		return [2]*redis.IntCmd{p.HStrLen(ctx, c.keys.task(f.id), f.name), p.HStrLen(ctx, c.keys.bytes(f.id), f.name)}
	})
	sizes := make([]int64, len(asked))
	for i, cmd := range cmds {
		text, bytes := cmd[0].Val(), cmd[1].Val()
		if sizes[i] = text; text > 0 && text <= maxMarker && bytes > 0 { // which only a marker stands for
			sizes[i] = bytes
		}
	}
	return sizes, wrap("read sizes of payloads", err)
}

// readPayload reads a field of a task's own hash, of at most that many bytes, and tells whether it is there.
func (c *Client) readPayload(ctx context.Context, id, field string, most int64) (value []byte, found bool, err error) {
	what := field + " of task " + id
	var size int64
	if c.measures(most) {
		sizes, err := c.sizesOf(ctx, []string{id}, field)
		if size = sizes[0]; err != nil {
			return nil, false, wrap("read "+what, err)
		}
	}
	if size > most {
		return nil, false, noRoom("the "+what, size, most)
	}
	rdb, end := c.payloadReader(size)
	defer end()
	text, err := rdb.HGet(ctx, c.keys.task(id), field).Result()
	if isNil(err) {
		return nil, false, nil
	}
	if err == nil {
		text, err = c.companion(ctx, rdb, id, field, text)
	}
	return []byte(text), err == nil, wrap("read "+what, err)
}

// companion is the bytes that a marker in a field stands for, or else the text: a Python client may have written a marker.
func (c *Client) companion(ctx context.Context, rdb redis.UniversalClient, id, field, text string) (string, error) {
	if !isMarker(text) {
		return text, nil
	}
	value, err := rdb.HGet(ctx, c.keys.bytes(id), field).Result()
	if isNil(err) {
		return text, nil
	}
	return value, err
}

// payloadReader returns what reads a payload of so many bytes, and ends it: a connection of its own for one that is larger than those of
// a bounded pool read.
func (s *store) payloadReader(size int64) (redis.UniversalClient, func()) {
	pool, is := s.rdb.(bounded)
	if !is || size <= maxValue/2 {
		return s.rdb, func() {}
	}
	options := alone(pool.Client)
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(context.WithValue(ctx, payloadBytes{}, size), network, address)
	}
	client := keyNaming(redis.NewClient(options))
	return client, func() { _ = client.Close() }
}
