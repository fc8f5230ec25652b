package mover

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// ErrInUse means that a tenant has keys or listeners that stand in the way of an import or a deletion.
var ErrInUse = errors.New("the tenant is in use")

// Import writes the keys of an export into the tenant, under its own name, for who. It reads the whole file first, and
// writes nothing if that is damaged. It refuses a tenant that has any key, unless into is true: then a key of the
// file replaces the tenant's, and the others stay; so an import that was interrupted can be repeated. Members of sets,
// pauses, and limits of queues, are added one by one, and tasks that are in no list afterwards are put back. The
// tenant is paused until all keys are there; pauses of the export are left out. Tasks that ran at the time of the
// export count as those of dead hosts: hosts run them again within minutes.
func (m Mover) Import(
	ctx context.Context, path, who string, into bool, report func(Moved),
) (done Moved, err error) {
	file, err := os.Open(path)
	if err != nil {
		return Moved{}, err
	}
	defer file.Close()
	if err := checkExport(file); err != nil {
		return Moved{}, fmt.Errorf("%w: %s: %w", queue.ErrInvalid, path, err)
	}
	if err := m.receives(ctx, into); err != nil {
		return Moved{}, err
	}
	if err := m.Pause(ctx, who, ReasonImport); err != nil {
		return Moved{}, err
	}
	defer func() {
		if err != nil && done.Keys == 0 && !into { // the tenant is as empty as before
			err = errors.Join(err, m.Resume(context.WithoutCancel(ctx)))
		}
	}()
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return Moved{}, err
	}
	var late, block []keyPart // late has pauseKeys
	size := 0
	flush := func() error {
		err := m.load(ctx, block)
		block, size = nil, 0
		if report != nil {
			report(done)
		}
		return err
	}
	err = readExport(file, func(line *exportLine, _ hash.Hash, _ int64) error {
		if line.Key == "" {
			return nil
		}
		if err := line.decode(); err != nil {
			return err
		}
		if !line.More {
			done.Keys++
		}
		if i := slices.Index(pauseKeys, line.Key); i >= 0 {
			line.More = true                // it adds to what the tenant has
			if line.Type == pauseTypes[i] { // else it was damaged
				late = append(late, line.keyPart)
			}
			return nil
		}
		for _, v := range line.Values {
			size += len(v)
		}
		if block = append(block, line.keyPart); len(block) >= scanned || size > 8<<20 {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = m.relist(ctx)
	}
	if err == nil {
		err = m.finish(ctx, late)
	}
	return done, store.Wrap("import "+path, err)
}

// finish ends an import: it adds pauseKeys, without the pauses of an export, and ends those of the import. Then it
// derives the marks in NS_limits from all pauses and quotas, because the tenant may have had some before.
func (m Mover) finish(ctx context.Context, late []keyPart) error {
	ended := make(map[string]bool) // by field of NS_pauses
	for i := range late {
		if part := &late[i]; part.Key == "pauses" {
			lasting := part.Values[:0]
			for field := range slices.Chunk(part.Values, 2) {
				_, scope, _ := strings.Cut(field[0], " ")
				if _, note := store.ParsePause(field[1]); scope == store.TenantScope && slices.Contains(reasons, note.Reason) {
					ended[field[0]] = true
				} else {
					lasting = append(lasting, field...)
				}
			}
			part.Values = lasting
		}
	}
	for i := range late {
		if part := &late[i]; part.Key == "paused" {
			part.Values = slices.DeleteFunc(part.Values, func(scope string) bool { return ended["taking "+scope] })
		}
	}
	if err := m.load(ctx, late); err != nil {
		return err
	}
	if err := m.Resume(ctx); err != nil {
		return err
	}
	// There is no pause of an empty scope: to end it changes nothing but the marks.
	call := store.NewCall("pause", m.store.Keys.Paused(), m.store.Clock, "accepting", "", "", store.MaxPauses)
	if _, err := m.store.Eval(ctx, call); err != nil {
		return err
	}
	return manage.SetQuotas(ctx, m.client, nil)
}

// pauseKeys are the keys of pauses, without the tenant, and NS_limits with their mark.
var (
	pauseKeys  = []string{"paused", "pauses", "limits"}
	pauseTypes = []string{"set", "hash", "hash"}
)

func (m Mover) names(keys []string) []string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = m.store.Keys.Key(key)
	}
	return names
}

// receives checks that keys may be imported into the tenant.
func (m Mover) receives(ctx context.Context, into bool) error {
	now, err := m.store.Now(ctx)
	if err != nil {
		return err
	}
	live, err := m.store.RDB.ZRangeByScore(ctx, m.store.Keys.Nodes(), &redis.ZRangeBy{
		Min: strconv.FormatInt(now.Unix(), 10), Max: "+inf", Count: 5,
	}).Result()
	if err != nil {
		return store.Wrap("list hosts", err)
	}
	if len(live) > 0 {
		return fmt.Errorf("%w: %s serve it, and would drop tasks that are imported by halves: drain them first", ErrInUse,
			strings.Join(live, ", "))
	}
	if into {
		return nil
	}
	return m.eachBlock(ctx, func(keys []string) error {
		if len(keys) == 0 {
			return nil
		}
		return fmt.Errorf("%w: tenant %s has keys, such as %s: delete it first, or import into it", ErrInUse,
			m.store.Keys.Tenant, keys[0])
	})
}

// checkExport checks that an export is whole.
func checkExport(file *os.File) error {
	var first, end *exportLine
	var last keyPart
	var sum string
	err := readExport(file, func(line *exportLine, all hash.Hash, _ int64) error {
		if first == nil {
			if first = line; line.Format != exportFormat {
				return fmt.Errorf("the first line is none of an export of format %d: was it made by `quern tenant export` of a newer version?",
					exportFormat)
			}
		}
		if line.End {
			end, sum = line, hex.EncodeToString(all.Sum(nil))
		}
		if line.Key == "" {
			return nil
		}
		want := line.Type
		if line.More {
			want = last.Type
		}
		if line.More && line.Key != last.Key || line.Type != want {
			return fmt.Errorf("key %s has a part of another key or type", line.Key)
		}
		last = keyPart{Key: line.Key, Type: line.Type}
		return line.decode()
	})
	switch {
	case err != nil:
		return fmt.Errorf("it is damaged: %w", err)
	case end == nil:
		return errors.New("its end is missing: export it again, or go on with the export to FILE.part")
	case end.SHA256 != sum:
		return errors.New("its checksum is wrong: copy it again, or export it again")
	}
	return nil
}

// load writes keys and parts of keys.
func (m Mover) load(ctx context.Context, parts []keyPart) error {
	if len(parts) == 0 {
		return nil
	}
	_, err := m.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, part := range parts {
			key := m.store.Keys.Key(part.Key)
			if !part.More && part.Type != "set" && part.Type != "zset" {
				p.Del(ctx, key)
			}
			values := make([]any, len(part.Values))
			for i, v := range part.Values {
				values[i] = v
			}
			for block := range slices.Chunk(values, 2*partValues) {
				if err := write(ctx, p, key, part.Type, block); err != nil {
					return fmt.Errorf("key %s: %w", key, err)
				}
			}
			if part.Expires > 0 {
				p.PExpireAt(ctx, key, time.UnixMilli(part.Expires))
			}
		}
		return nil
	})
	return err
}

// write adds values to a key.
func write(ctx context.Context, p redis.Pipeliner, key, kind string, values []any) error {
	switch kind {
	case "string":
		p.Set(ctx, key, values[0], 0)
	case "hash":
		p.HSet(ctx, key, values...)
	case "list":
		p.RPush(ctx, key, values...)
	case "set":
		p.SAdd(ctx, key, values...)
	case "zset":
		words := []any{"zadd", key}
		for pair := range slices.Chunk(values, 2) {
			words = append(words, pair[1], pair[0])
		}
		p.Do(ctx, words...)
	case "stream":
		for entry := range slices.Chunk(values, 2) {
			fields := map[string]any{}
			if err := json.Unmarshal([]byte(store.AsString(entry[1])), &fields); err != nil {
				return err
			}
			p.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: store.AsString(entry[0]), Values: fields})
		}
	default:
		return fmt.Errorf("%w: a key of the type %q", queue.ErrInvalid, kind)
	}
	return nil
}

// erasePasses is how often Erase looks for keys that came meanwhile.
const erasePasses = 20

// Erase deletes all keys of the tenant, in blocks. It pauses the tenant first, so that neither producers nor hosts
// make new tasks, and looks again until nothing is left; so it may be interrupted, and repeated. Hosts must have
// left: they would write their leases and the schedules of their manifests again. The error is ErrInUse, with some
// keys, if something goes on writing.
func (m Mover) Erase(ctx context.Context, report func(Moved)) (Moved, error) {
	if has, err := m.HasKeys(ctx, true); err != nil || !has {
		return Moved{}, err
	}
	if err := m.Pause(ctx, "", ReasonDeletion); err != nil {
		return Moved{}, err
	}
	kept := m.names(pauseKeys)
	done := Moved{}
	pass := func() (found []string, err error) {
		err = m.eachBlock(ctx, func(keys []string) error {
			keys = slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(kept, key) })
			if len(keys) == 0 {
				return nil
			}
			n, err := m.store.RDB.Unlink(ctx, keys...).Result()
			if err != nil {
				return store.Wrap("delete keys", err)
			}
			found = keys
			done.Keys += n
			if report != nil {
				report(done)
			}
			return nil
		})
		return found, err
	}
	for range erasePasses {
		found, err := pass()
		if err != nil {
			return done, err
		}
		if len(found) > 0 {
			continue
		}
		if len(kept) > 0 { // nothing else is left
			n, err := m.store.RDB.Unlink(ctx, kept...).Result()
			if err != nil {
				return done, store.Wrap("delete keys", err)
			}
			done.Keys, kept = done.Keys+n, nil
			continue
		}
		return done, nil
	}
	found, err := pass()
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: somebody goes on writing to tenant %s, the last keys were %s: end it, and delete the tenant again", ErrInUse, m.store.Keys.Tenant,
			strings.Join(found[:min(5, len(found))], ", "))
	}
	return done, err
}
