package store

import (
	"context"
	"fmt"
	"math"
	"net"

	"github.com/redis/go-redis/v9"
)

// NoRoom says that something is larger than its reader has room for: it is ErrInvalid, too.
func NoRoom(what string, size, most int64) error {
	return fmt.Errorf("%w: %s has %d bytes, at most %d are read: %w", ErrInvalid, what, size, most, ErrTooLarge)
}

// Measures tells whether anything depends on the size of a payload of which a caller has room for so many bytes.
func (s *Store) Measures(most int64) bool {
	_, is := s.RDB.(Bounded)
	return is || most < math.MaxInt64
}

// SizesOf are the sizes of these fields, by task and then by field, as ReadPayload would read them or up to maxMarker more; 0 for a
// missing one, and for all of them with an error.
func (s *Store) SizesOf(ctx context.Context, ids []string, fields ...string) ([]int64, error) {
	type field struct{ id, name string }
	asked := make([]field, 0, len(ids)*len(fields))
	for _, id := range ids {
		for _, name := range fields {
			asked = append(asked, field{id, name})
		}
	}
	cmds, err := Pipelined(ctx, s, asked, func(p redis.Pipeliner, f field) [2]*redis.IntCmd {
		return [2]*redis.IntCmd{p.HStrLen(ctx, s.Keys.Task(f.id), f.name), p.HStrLen(ctx, s.Keys.Bytes(f.id), f.name)}
	})
	sizes := make([]int64, len(asked))
	for i, cmd := range cmds {
		text, bytes := cmd[0].Val(), cmd[1].Val()
		if sizes[i] = text; text > 0 && text <= maxMarker && bytes > 0 { // which only a marker stands for
			sizes[i] = bytes
		}
	}
	return sizes, Wrap("read sizes of payloads", err)
}

// ReadPayload reads a field of a task's own hash, of at most that many bytes, and tells whether it is there.
func (s *Store) ReadPayload(ctx context.Context, id, field string, most int64) (value []byte, found bool, err error) {
	what := field + " of task " + id
	var size int64
	if s.Measures(most) {
		sizes, err := s.SizesOf(ctx, []string{id}, field)
		if size = sizes[0]; err != nil {
			return nil, false, Wrap("read "+what, err)
		}
	}
	if size > most {
		return nil, false, NoRoom("the "+what, size, most)
	}
	rdb, end := s.PayloadReader(size)
	defer end()
	text, err := rdb.HGet(ctx, s.Keys.Task(id), field).Result()
	if IsNil(err) {
		return nil, false, nil
	}
	if err == nil {
		text, err = s.Companion(ctx, rdb, id, field, text)
	}
	return []byte(text), err == nil, Wrap("read "+what, err)
}

// Companion is the bytes that a marker in a field stands for, or else the text: a Python client may have written a marker.
func (s *Store) Companion(ctx context.Context, rdb redis.UniversalClient, id, field, text string) (string, error) {
	if !IsMarker(text) {
		return text, nil
	}
	value, err := rdb.HGet(ctx, s.Keys.Bytes(id), field).Result()
	if IsNil(err) {
		return text, nil
	}
	return value, err
}

// PayloadReader returns what reads a payload of so many bytes, and ends it: a connection of its own for one that is larger than those of
// a bounded pool read.
func (s *Store) PayloadReader(size int64) (redis.UniversalClient, func()) {
	pool, is := s.RDB.(Bounded)
	if !is || size <= MaxValue/2 {
		return s.RDB, func() {}
	}
	options := alone(pool.Client)
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(context.WithValue(ctx, payloadBytes{}, size), network, address)
	}
	client := keyNaming(redis.NewClient(options))
	return client, func() { _ = client.Close() }
}

// PublicationSize is how many bytes the payload of a publication has, and whether it is kept.
func (s *Store) PublicationSize(ctx context.Context, id string) (bytes int64, kept bool, err error) {
	var size, exists *redis.IntCmd
	_, err = s.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		size, exists = p.HStrLen(ctx, s.Keys.Publication(id), "parameters"), p.Exists(ctx, s.Keys.Publication(id))
		return nil
	})
	return size.Val(), exists.Val() > 0, Wrap("read size of publication "+id, err)
}
