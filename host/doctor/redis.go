package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// minRedis is the oldest version of Redis that the scripts run on.
var minRedis = [2]int{6, 2}

const (
	slowRedis = 5 * time.Millisecond // latency from which there is a finding
	fullRedis = 85                   // percent of maxmemory from which there is a finding
	lastRedis = 95                   // percent of maxmemory from which the finding is an error
)

var redisChecks = []check{
	{"redis-version", func(p *patient) {
		var version [2]int
		if _, err := fmt.Sscanf(p.info["redis_version"], "%d.%d", &version[0], &version[1]); err != nil ||
			slices.Compare(version[:], minRedis[:]) >= 0 {
			return // also for another server that reports no such version: it may work
		}
		p.found(Error, fmt.Sprintf("upgrade it to %d.%d or later", minRedis[0], minRedis[1]), "Redis is version %s",
			p.info["redis_version"])
	}},
	{"redis-settings", func(p *patient) {
		for _, warning := range p.warnings {
			problem, remedy, _ := strings.Cut(warning, ": ")
			p.found(Error, remedy, "%s", problem)
		}
	}},
	{"redis-disk", func(p *patient) {
		for _, field := range []string{"rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status"} {
			if status := p.info[field]; status != "" && status != "ok" {
				p.found(Error, "look for the cause in the log of Redis: disk, memory for a fork, permissions",
					"Redis cannot write to its disk (%s is %s)", field, status)
			}
		}
	}},
	{"redis-memory", func(p *patient) {
		used, most := p.number("used_memory"), p.number("maxmemory")
		if most == 0 || used < most/100*fullRedis {
			return
		}
		level, problem := Warning, "Redis uses %d %% of its maxmemory: when it is full, nothing can be enqueued"
		if used >= most {
			problem = "Redis is full: it uses %d %% of its maxmemory, and nothing can be enqueued"
		}
		if used >= most/100*lastRedis {
			level = Error
		}
		p.found(level, "raise maxmemory, or delete finished tasks: see `quern queue purge --help`", problem, 100*used/most)
	}},
	{"redis-latency", func(p *patient) {
		if p.latency >= slowRedis {
			p.found(Warning, "run it near Redis; look for slow commands with `SLOWLOG GET`",
				"Redis answers in %s from here, the median of 11", p.latency.Round(100*time.Microsecond))
		}
	}},
	{"redis-role", func(p *patient) {
		if p.info["role"] == "slave" {
			p.found(Error, "name the primary with --redis", "this Redis is a replica, which takes no tasks")
		}
	}},
}

// access adds a finding for each part of the data that could not be read.
var access = check{"redis-access", func(p *patient) {
	for _, what := range slices.Sorted(maps.Keys(p.unread)) {
		level, remedy := Warning, "give the Redis user the commands that ACL.md names, or look as another one: see `quern help redis`"
		if manage.Refusal(p.unread[what]) == "WRONGTYPE" {
			level, remedy = Error, "something else wrote the key: delete it, or take another tenant"
		}
		p.found(level, remedy, "%s cannot be read, and is not checked: %v", what, p.unread[what])
	}
}}

// number returns a number in the fields of INFO, or 0 if the field is missing.
func (p *patient) number(field string) int64 {
	n, _ := strconv.ParseInt(p.info[field], 10, 64)
	return n
}

// latency returns the median response time of 11 pings.
func latency(ctx context.Context, client *queue.Client) (time.Duration, error) {
	var times []time.Duration
	for range 11 {
		begun := time.Now()
		if err := manage.New(client).Ping(ctx); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
