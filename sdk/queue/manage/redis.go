package manage

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Ping checks that Redis answers.
func (m *Manager) Ping(ctx context.Context) error {
	return store.Wrap("ping", m.store.RDB.Ping(ctx).Err())
}

// Info reads Redis's INFO: the named sections, or the default ones if none is named.
func (m *Manager) Info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := m.store.RDB.Info(ctx, sections...).Result()
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, store.Wrap("read INFO", err)
}

// Warnings describes settings of Redis that put tasks at risk. If it also returns an error, some settings could not be
// read, for example because the Redis user has no permission.
func (m *Manager) Warnings(ctx context.Context) (warnings []string, err error) {
	setting := func(name string) (string, bool) {
		values, failed := m.store.RDB.ConfigGet(ctx, name).Result()
		err = cmp.Or(err, store.Wrap("read setting "+name, failed))
		value, ok := values[name]
		return value, ok
	}
	if policy, ok := setting("maxmemory-policy"); ok && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("Redis evicts keys when its memory is full (maxmemory-policy %s), tasks too: run `redis-cli CONFIG SET maxmemory-policy noeviction`, and write it into redis.conf", policy))
	}
	save, saves := setting("save")
	aof, appends := setting("appendonly")
	if saves && appends && strings.TrimSpace(save) == "" && aof == "no" {
		warnings = append(warnings, "Redis keeps nothing on disk, a restart loses every task: run `redis-cli CONFIG SET appendonly yes`, and write it into redis.conf")
	}
	return warnings, err
}

// OnTenant returns the client that reaches the keys of a tenant: rdb, or, if that is a Cluster, a client of the
// tenant's shard. It needs no Close. NewFromRedis has accepted the tenant on rdb.
func OnTenant(rdb redis.UniversalClient, tenant string) redis.UniversalClient {
	if own, err := store.ForTenant(rdb, tenant); err == nil {
		return own
	}
	return rdb
}

// Address returns the address of Redis: HOST:PORT, or the path of a socket. It is "" if the client's connection does
// not reveal the address.
func (m *Manager) Address() string {
	if rdb := store.Single(m.store.RDB); rdb != nil {
		return rdb.Options().Addr
	}
	return ""
}

// Refusal returns the first word of an error that Redis replied with, such as OOM; "" if Redis did not reply.
func Refusal(err error) string {
	text, _ := store.Answered(err)
	word, _, _ := strings.Cut(text, " ")
	return word
}
