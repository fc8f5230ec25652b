package store

import (
	"context"
	"fmt"
	"math"
	"net"

	"github.com/redis/go-redis/v9"
)

// NoRoom makes the error for a payload that is larger than the caller has room for. It is both ErrInvalid and
// ErrTooLarge.
func NoRoom(what string, size, most int64) error {
	return fmt.Errorf("%w: %s has %d bytes, at most %d are read: %w", ErrInvalid, what, size, most, ErrTooLarge)
}

// Measures reports whether the size of a payload must be known before it is read: `most` is a real bound, or the
// connection is bounded.
func (s *Store) Measures(most int64) bool {
	_, is := s.RDB.(Bounded)
	return is || most < math.MaxInt64
}

// SizesOf returns the sizes of payloads, in bytes, by task and then by field: the size that ReadPayload would read, or
// up to maxMarker more. The size of a missing field is 0. With an error, all sizes are 0.
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
		if sizes[i] = text; text > 0 && text <= maxMarker && bytes > 0 { // the text is a marker for these bytes
			sizes[i] = bytes
		}
	}
	return sizes, Wrap("read sizes of payloads", err)
}

// ReadPayload reads a payload in a task's own hash, of up to `most` bytes; found reports whether the field exists.
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

// Companion returns the bytes that a marker stands for. It returns the text itself if it is no marker, or if there are
// no such bytes: a Python client may have written a text that looks like a marker.
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

// PayloadReader returns a client that can read a payload of `size` bytes, and a function that closes it. A payload too
// large for a bounded pool gets a connection of its own.
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

// PublicationSize reads the number of bytes of a publication's payload; kept reports whether the publication exists.
func (s *Store) PublicationSize(ctx context.Context, id string) (bytes int64, kept bool, err error) {
	var size, exists *redis.IntCmd
	_, err = s.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		size, exists = p.HStrLen(ctx, s.Keys.Publication(id), "parameters"), p.Exists(ctx, s.Keys.Publication(id))
		return nil
	})
	return size.Val(), exists.Val() > 0, Wrap("read size of publication "+id, err)
}
