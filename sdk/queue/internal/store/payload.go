package store

import (
	"context"
	"fmt"
	"math"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/seal"
)

// NoRoom makes the error for a payload of more than limit bytes. The error matches both ErrInvalid and ErrTooLarge.
func NoRoom(what string, size, limit int64) error {
	return fmt.Errorf("%w: %s has %d bytes, at most %d are read: %w", ErrInvalid, what, size, limit, ErrTooLarge)
}

// Measures reports whether the size of a payload must be known before the payload is read, because limit is below
// math.MaxInt64 or the connection is bounded.
func (s *Store) Measures(limit int64) bool {
	_, is := s.RDB.(Bounded)
	return is || limit < math.MaxInt64
}

// SizesOf returns the sizes of payloads in bytes: for each task in ids, the sizes of its fields. A size is the number
// of bytes that ReadPayload would read; for a short text, it can be wrong if another task left bytes in the companion
// hash. The size of a missing field is 0. If there is an error, all sizes are 0.
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

// ReadPayload reads a payload from a task's own hash, and decrypts it. If it has more than limit bytes, the error is
// that of NoRoom. found reports whether the field exists.
func (s *Store) ReadPayload(ctx context.Context, id, field string, limit int64) (value []byte, found bool, err error) {
	what := field + " of task " + id
	var size int64
	if s.Measures(limit) {
		sizes, err := s.SizesOf(ctx, []string{id}, field)
		if size = sizes[0]; err != nil {
			return nil, false, Wrap("read "+what, err)
		}
	}
	if size > s.SealedSize(limit) {
		return nil, false, NoRoom("the "+what, size, limit)
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
	if err == nil {
		value, err = s.Seal.Open([]byte(text))
	}
	return value, err == nil, Wrap("read "+what, err)
}

// SealedSize returns the maximum size in Redis of a payload that may have limit bytes.
func (s *Store) SealedSize(limit int64) int64 {
	if s.Seal == nil || limit > math.MaxInt64-int64(seal.Overhead) {
		return limit
	}
	return limit + int64(seal.Overhead)
}

// Companion returns the bytes that the marker text stands for. It returns text itself if it is not a marker, or if
// there are no such bytes, because a Python client may have written a text that looks like a marker.
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

// PayloadReader returns a client that can read a payload of this size in bytes, and a function that closes the client.
// A payload too large for a bounded pool gets a separate connection.
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

// PublicationSize reads the size of a publication's payload in bytes. kept reports whether the publication exists.
func (s *Store) PublicationSize(ctx context.Context, id string) (bytes int64, kept bool, err error) {
	var size, exists *redis.IntCmd
	_, err = s.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		size, exists = p.HStrLen(ctx, s.Keys.Publication(id), "parameters"), p.Exists(ctx, s.Keys.Publication(id))
		return nil
	})
	return size.Val(), exists.Val() > 0, Wrap("read size of publication "+id, err)
}
