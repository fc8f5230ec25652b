package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/seal"
)

// with is the same tenant, seen by a client with these keys.
func (w *world) with(t *testing.T, keys ...string) *world {
	t.Helper()
	config := queue.Config{Tenant: w.Tenant()}
	if len(keys) > 0 {
		config.Keys = must[*seal.Ring](t)(seal.Parse(strings.Join(keys, "\n")))
	}
	client := must[*queue.Client](t)(queue.NewFromRedis(w.Store().Pool(), config))
	t.Cleanup(func() { _ = client.Close() })
	return &world{Client: client, rdb: w.rdb, ctx: w.ctx}
}

// plaintext lists where Redis has a text among the tenant's keys.
func (w *world) plaintext(t *testing.T, text string) (found []string) {
	t.Helper()
	for _, key := range must[[]string](t)(w.rdb.Keys(w.ctx, w.Tenant()+"_*").Result()) {
		var values []string
		switch kind := must[string](t)(w.rdb.Type(w.ctx, key).Result()); kind {
		case "hash":
			for field, value := range must[map[string]string](t)(w.rdb.HGetAll(w.ctx, key).Result()) {
				values = append(values, field, value)
			}
		case "list":
			values = must[[]string](t)(w.rdb.LRange(w.ctx, key, 0, -1).Result())
		case "set":
			values = must[[]string](t)(w.rdb.SMembers(w.ctx, key).Result())
		case "zset":
			values = must[[]string](t)(w.rdb.ZRange(w.ctx, key, 0, -1).Result())
		case "string":
			values = []string{must[string](t)(w.rdb.Get(w.ctx, key).Result())}
		case "stream":
			for _, message := range must[[]redis.XMessage](t)(w.rdb.XRange(w.ctx, key, "-", "+").Result()) {
				values = append(values, fmt.Sprint(message.Values))
			}
		default:
			t.Fatalf("key %s of type %s", key, kind)
		}
		for _, value := range append(values, key) {
			if strings.Contains(value, text) {
				found = append(found, fmt.Sprintf("%s: %q", key, value))
			}
		}
	}
	return found
}

// With a tenant's keys, Redis has no payload in plain, whoever wrote it, and everyone with the keys reads all of them.
func TestSealed(t *testing.T) {
	everywhere(t, func(t *testing.T, plain *world) {
		const secret = "4111-1111"
		key := seal.NewKey()
		w := plain.with(t, key)
		of := func(what string) string { return secret + " of " + what }
		w.subscribe(t, queue.Subscription{ID: "s", Topic: "orders", Queue: "published"})
		published := w.publish(t, "orders", of("publication"), queue.PublishOptions{})
		must[queue.Put](t)(w.PutSchedule(w.ctx, queue.Schedule{ID: "daily", Queue: "q", Cron: "@daily", Parameters: []byte(of("schedule"))}, false))
		w.enqueue(t, "q", of("parameters"), queue.Options{ID: "first"})
		w.enqueue(t, "q", "", queue.Options{ID: "then", After: []string{"first"}})
		w.enqueue(t, "bytes", of("bytes\xff"), queue.Options{ID: "bytes"})
		large := of(strings.Repeat("large ", listen.MaxInline))
		w.enqueue(t, "large", large, queue.Options{ID: "large"})

		node := w.node(t, "q", "bytes", "large", "children", "published")
		got := w.reserve(t, node, "q", true)
		if string(got.Parameters) != of("parameters") {
			t.Errorf("reserved %q", got.Parameters)
		}
		if err := node.Checkpoint(w.ctx, "q", got.Claim(), []byte(of("checkpoint"))); err != nil {
			t.Fatal(err)
		}
		if read, err := node.ReadCheckpoint(w.ctx, "first"); err != nil || string(read) != of("checkpoint") {
			t.Errorf("checkpoint %q, %v", read, err)
		}
		if err := w.keep(node, got.Claim(), []byte(of("record"))); err != nil {
			t.Fatal(err)
		}
		if read, err := manage.New(w.Client).Record(w.ctx, "first"); err != nil || string(read) != of("record") {
			t.Errorf("record %q, %v", read, err)
		}
		if found := w.plaintext(t, secret); len(found) > 0 {
			t.Errorf("in Redis while it runs: %s", strings.Join(found, "\n"))
		}
		child := listen.Child{Queue: "children", Spec: queue.Spec{Parameters: []byte(of("child")), Options: queue.Options{ID: "child"}}}
		w.settle(t, node, "q", listen.Settlement{Claim: got.Claim(), Result: []byte(of("result")), Children: []listen.Child{child}})
		w.advance(t)
		if task := w.task(t, "first"); string(task.Parameters) != of("parameters") || string(task.Result) != of("result") || task.Sealed != "" {
			t.Errorf("task: %q, %q, %q", task.Parameters, task.Result, task.Sealed)
		}
		for name, want := range map[string]string{"q": of("result"), "bytes": of("bytes\xff"), "children": of("child"), "published": of("publication")} {
			if got := w.reserve(t, node, name, true); string(got.Parameters) != want {
				t.Errorf("reserved %q from %s, want %q", got.Parameters, name, want)
			}
		}
		if got := w.reserve(t, node, "large", true); !got.Large {
			t.Errorf("%d bytes came with the reserve", len(got.Parameters))
		}
		if read, err := w.Parameters(w.ctx, "large", int64(len(large))); err != nil || string(read) != large {
			t.Errorf("large parameters: %d bytes, %v", len(read), err)
		}
		if _, err := w.Parameters(w.ctx, "large", int64(len(large))-int64(seal.Overhead)-1); !errors.Is(err, queue.ErrTooLarge) {
			t.Errorf("large parameters beyond a limit: %v", err)
		}
		if p, err := w.Publication(w.ctx, published.ID); err != nil || string(p.Payload) != of("publication") {
			t.Errorf("publication: %v, %v", p, err)
		}
		if s, err := w.Schedule(w.ctx, "daily"); err != nil || string(s.Parameters) != of("schedule") {
			t.Errorf("schedule: %v, %v", s, err)
		}
		if found := w.plaintext(t, secret); len(found) > 0 {
			t.Errorf("in Redis: %s", strings.Join(found, "\n"))
		}

		if receipt, err := w.Queue("q").EnqueueMany(w.ctx, []queue.Spec{{Parameters: []byte(of("parameters")), Options: queue.Options{ID: "first"}}}); err != nil || !receipt[0].Existed || receipt[0].Taken {
			t.Errorf("enqueued again: %+v, %v", receipt, err)
		}
		for name, other := range map[string]*world{"no key": plain, "another key": plain.with(t, seal.NewKey())} {
			if task := other.task(t, "first"); task.Parameters != nil || task.Result != nil || task.Sealed == "" {
				t.Errorf("task with %s: %q, %q, %q", name, task.Parameters, task.Result, task.Sealed)
			}
			_, result := other.Result(w.ctx, "first", 1000)
			_, publication := other.Publication(w.ctx, published.ID)
			_, scheduled := manage.New(other.Client).RunSchedule(w.ctx, "daily")
			for what, err := range map[string]error{"result": result, "publication": publication, "schedule": scheduled} {
				if !errors.Is(err, seal.ErrKey) {
					t.Errorf("%s with %s: %v", what, name, err)
				}
			}
		}
		other := must[*queue.Client](t)(w.In(w.newTenant()))
		defer other.Close()
		must[string](t)(other.Queue("q").Enqueue(w.ctx, []byte("of another tenant"), queue.Options{ID: "other"}))
		if task := must[*queue.Task](t)(other.Task(w.ctx, "other")); string(task.Parameters) != "of another tenant" {
			t.Errorf("the keys of a tenant encrypt for another one: %q", task.Parameters)
		}
		rotated := plain.with(t, seal.NewKey(), key)
		if task := rotated.task(t, "first"); string(task.Result) != of("result") {
			t.Errorf("task with a new key before the old one: %q", task.Result)
		}
		plain.enqueue(t, "mixed", "in plain", queue.Options{ID: "plain"})
		if task := w.task(t, "plain"); string(task.Parameters) != "in plain" {
			t.Errorf("task of a producer without keys: %q", task.Parameters)
		}
		w.enqueue(t, "mixed", of("mixed"), queue.Options{})
		blind := plain.node(t, "mixed")
		plain.reserve(t, blind, "mixed", true)
		if got := plain.reserve(t, blind, "mixed", true); !got.Large || got.Parameters != nil {
			t.Errorf("reserved without keys: %q", got.Parameters)
		}
	})
}

// Equal parameters are unique under keys, too, and their digest tells nobody without the keys what they are.
func TestSealedUnique(t *testing.T) {
	w := setup(t)
	sealed := w.with(t, seal.NewKey())
	options := func(id string) queue.Options { return queue.Options{ID: id, Unique: &queue.Unique{}} }
	sealed.enqueue(t, "q", "guess", options("a"))
	if id := sealed.enqueue(t, "q", "guess", options("b")); id != "a" {
		t.Errorf("a second task of the same parameters is %s", id)
	}
	if found := w.plaintext(t, (&queue.Unique{}).Hash("q", []byte("guess"))); len(found) > 0 {
		t.Errorf("the digest of the plain parameters: %v", found)
	}
}
