package mover

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

const (
	scanned     = 500      // keys that one SCAN looks at
	partValues  = 1000     // values of a key that are read or written at a time
	smallValues = 64 << 10 // bytes of a value up to which keys are read together
	together    = 32       // keys that are read together
)

// keyPart is a key of a tenant or a part of it, in a form that every version of Redis can take.
type keyPart struct {
	Key     string   `json:"key,omitempty"` // without the tenant and the underscore behind it
	Type    string   `json:"type,omitempty"`
	Expires int64    `json:"expires,omitempty"` // milliseconds since 1970
	More    bool     `json:"more,omitempty"`    // it adds to the parts before it; else the key begins with it
	Base64  bool     `json:"base64,omitempty"`  // the values are not UTF-8
	Values  []string `json:"values,omitempty"`  // of a hash, a sorted set and a stream: field and value, member and score, ID and JSON
}

// encode makes the values text.
func (p *keyPart) encode() {
	for _, v := range p.Values {
		p.Base64 = p.Base64 || !utf8.ValidString(v)
	}
	for i, v := range p.Values {
		if p.Base64 {
			p.Values[i] = base64.StdEncoding.EncodeToString([]byte(v))
		}
	}
}

// decode undoes encode, and checks that Redis takes the values.
func (p *keyPart) decode() error {
	for i, v := range p.Values {
		if p.Base64 {
			value, err := base64.StdEncoding.DecodeString(v)
			if err != nil {
				return err
			}
			p.Values[i] = string(value)
		}
	}
	wrong := len(p.Values) == 0
	switch p.Type {
	case "string":
		wrong = len(p.Values) != 1
	case "list", "set":
	case "hash", "zset", "stream":
		wrong = wrong || len(p.Values)%2 != 0 || p.Type != "hash" && slices.ContainsFunc(slices.Collect(slices.Chunk(p.Values, 2)), p.refused)
	default:
		return fmt.Errorf("key %s has the type %q", p.Key, p.Type)
	}
	if wrong {
		return fmt.Errorf("key %s has values that no %s has", p.Key, p.Type)
	}
	return nil
}

var streamID = regexp.MustCompile(`^\d{1,19}-\d{1,19}$`)

// refused reports whether Redis would refuse a pair of values of a sorted set or a stream.
func (p *keyPart) refused(pair []string) bool {
	if p.Type == "stream" {
		fields := map[string]string{}
		return !streamID.MatchString(pair[0]) || json.Unmarshal([]byte(pair[1]), &fields) != nil || len(fields) == 0
	}
	score, err := strconv.ParseFloat(pair[1], 64)
	return err != nil || math.IsNaN(score)
}

// passing reports whether a key, named without the tenant, says what lives now, or is made anew by housekeeping.
func passing(name string) bool {
	return name == "nodes" || name == "sample" || name == "waiters" || name == "finished" || strings.HasPrefix(name, "node_") ||
		strings.HasPrefix(name, "duty_")
}

// scan lists keys of the tenant from a cursor of SCAN on. The next cursor is 0 after the last keys.
func (m Mover) scan(ctx context.Context, cursor uint64) (keys []string, next uint64, err error) {
	keys, next, err = m.store.RDB.Scan(ctx, cursor, m.store.Keys.Key("*"), scanned).Result()
	return keys, next, store.Wrap("list keys of tenant "+m.store.Keys.Tenant, err)
}

// dump reads keys, a part at a time.
func (m Mover) dump(ctx context.Context, keys []string, write func(keyPart) error) error {
	type about struct {
		kind *redis.StatusCmd
		life *redis.DurationCmd
	}
	abouts, err := store.Pipelined(ctx, m.store, keys, func(p redis.Pipeliner, key string) about {
		return about{p.Type(ctx, key), p.PTTL(ctx, key)}
	})
	if err != nil {
		return err
	}
	now, err := m.store.Time(ctx)
	if err != nil {
		return err
	}
	parts := make([]keyPart, len(keys))
	for i, a := range abouts {
		if err := cmp.Or(a.kind.Err(), a.life.Err()); err != nil {
			return err
		}
		parts[i] = keyPart{Key: strings.TrimPrefix(keys[i], m.store.Keys.Key("")), Type: a.kind.Val()}
		if a.life.Val() > 0 {
			parts[i].Expires = now.Add(a.life.Val()).UnixMilli()
		}
	}
	sizes, err := store.Pipelined(ctx, m.store, parts, func(p redis.Pipeliner, part keyPart) []*redis.IntCmd {
		return sizesOf(ctx, p, m.store.Keys.Key(part.Key), part.Type)
	})
	if err != nil {
		return err
	}
	var small []keyPart
	for i, part := range parts {
		large := false
		for at, size := range sizes[i] {
			if err := size.Err(); err != nil && !store.IsNil(err) {
				return err
			}
			bytes := at > 0 || part.Type == "string"
			large = large || bytes && size.Val() > smallValues || !bytes && size.Val() > partValues
		}
		if !large && !strings.HasPrefix(part.Key, "kv_") { // the values of a bucket have up to 512 KiB

			small = append(small, part)
		} else if err := m.dumpLarge(ctx, part, write); err != nil {
			return fmt.Errorf("read key %s: %w", keys[i], err)
		}
		if len(small) == together || i == len(parts)-1 {
			if err := m.dumpSmall(ctx, small, write); err != nil {
				return err
			}
			small = nil
		}
	}
	return nil
}

// sizesOf asks for the number of a key's values and, where these may be large, for their bytes.
func sizesOf(ctx context.Context, p redis.Pipeliner, key, kind string) []*redis.IntCmd {
	switch kind {
	case "string":
		return []*redis.IntCmd{p.StrLen(ctx, key)}
	case "hash":
		sizes := []*redis.IntCmd{p.HLen(ctx, key)}
		for _, field := range []string{"parameters", "result", "checkpoint", "record"} {
			sizes = append(sizes, redis.NewIntCmd(ctx, "hstrlen", key, field))
			_ = p.Process(ctx, sizes[len(sizes)-1])
		}
		return sizes
	case "list":
		return []*redis.IntCmd{p.LLen(ctx, key)}
	case "set":
		return []*redis.IntCmd{p.SCard(ctx, key)}
	case "zset":
		return []*redis.IntCmd{p.ZCard(ctx, key)}
	case "stream":
		return []*redis.IntCmd{p.XLen(ctx, key)}
	}
	return nil
}

// dumpSmall reads whole keys in one round trip.
func (m Mover) dumpSmall(ctx context.Context, parts []keyPart, write func(keyPart) error) error {
	cmds, err := store.Pipelined(ctx, m.store, parts, func(p redis.Pipeliner, part keyPart) redis.Cmder {
		key := m.store.Keys.Key(part.Key)
		switch part.Type {
		case "string":
			return p.Get(ctx, key)
		case "hash":
			return p.HGetAll(ctx, key)
		case "list":
			return p.LRange(ctx, key, 0, -1)
		case "set":
			return p.SMembers(ctx, key)
		case "zset":
			return p.ZRangeWithScores(ctx, key, 0, -1)
		case "stream":
			return p.XRange(ctx, key, "-", "+")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, cmd := range cmds {
		if cmd == nil {
			continue // deleted meanwhile, or of a type that Quern does not write
		}
		if err := cmd.Err(); store.IsNil(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read key %s: %w", m.store.Keys.Key(parts[i].Key), err)
		}
		part := parts[i]
		switch cmd := cmd.(type) {
		case *redis.StringCmd:
			part.Values = []string{cmd.Val()}
		case *redis.MapStringStringCmd:
			for field, value := range cmd.Val() {
				part.Values = append(part.Values, field, value)
			}
		case *redis.StringSliceCmd:
			part.Values = cmd.Val()
		case *redis.ZSliceCmd:
			for _, z := range cmd.Val() {
				part.Values = append(part.Values, store.AsString(z.Member), strconv.FormatFloat(z.Score, 'g', -1, 64))
			}
		case *redis.XMessageSliceCmd:
			part.Values = entriesOf(cmd.Val())
		}
		if len(part.Values) > 0 {
			if err := write(part); err != nil {
				return err
			}
		}
	}
	return nil
}

// dumpLarge reads a key in parts. Values that come or go meanwhile may be missing or there; the others are read.
func (m Mover) dumpLarge(ctx context.Context, part keyPart, write func(keyPart) error) error {
	key, rdb := m.store.Keys.Key(part.Key), m.store.RDB
	var cursor uint64
	var from int64
	after := "-"
	for {
		var values []string
		var err error
		more := false
		switch part.Type {
		case "string":
			var value string
			value, err = rdb.Get(ctx, key).Result()
			values = []string{value}
		case "hash": // its values may be large
			values, cursor, err = rdb.HScan(ctx, key, cursor, "", together).Result()
			more = cursor != 0
		case "set":
			values, cursor, err = rdb.SScan(ctx, key, cursor, "", partValues).Result()
			more = cursor != 0
		case "zset":
			values, cursor, err = rdb.ZScan(ctx, key, cursor, "", partValues).Result()
			more = cursor != 0
		case "list":
			values, err = rdb.LRange(ctx, key, from, from+partValues-1).Result()
			from += partValues
			more = len(values) == partValues
		case "stream":
			var entries []redis.XMessage
			entries, err = rdb.XRangeN(ctx, key, after, "+", partValues).Result()
			if values = entriesOf(entries); len(entries) == partValues {
				after, more = "("+entries[len(entries)-1].ID, true
			}
		}
		if store.IsNil(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(values) > 0 {
			one := part
			one.Values = values
			if err := write(one); err != nil {
				return err
			}
			part.More = true
		}
		if !more {
			return nil
		}
	}
}
