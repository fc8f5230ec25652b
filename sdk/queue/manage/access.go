package manage

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
)

// Role is a kind of program with a Redis user of its own. Its user has the least permissions that the role needs, for
// one tenant.
type Role struct {
	Name    string
	Purpose string // what the programs do, as an object of "for"

	keys     string // the patterns of its keys, without the tenant, separated by spaces; "": all keys of the tenant
	channels string // the patterns of its channels, in the same form
	commands string // its commands, separated by spaces
	only     string // the only tenant that has the role; "": every tenant has it
}

// allChannels are the channels of a tenant, without its name.
const allChannels = "&_channel_* &_done_* &_control &_ended"

// Roles returns the roles of programs that use a tenant.
func Roles() []Role { return slices.Clone(roles) }

// roles is the only list of permissions in this module. ACL.md shows it for the tenant acme; tests compare both,
// and check that each role has what it needs and nothing else.
var roles = []Role{
	{
		Name: "host", Purpose: "`quern serve` and `quern admin`", channels: allChannels,
		commands: "auth hello ping select subscribe unsubscribe publish eval evalsha script|load time type exists del " +
			"unlink expire pttl wait get set hget hmget hgetall hset hsetnx hdel hexists hincrby hstrlen hkeys " +
			"hlen hscan getrange lpush rpush rpoplpush rpop lset lrange llen lrem lpos lindex ltrim sadd srem " +
			"scard smembers sismember smismember srandmember zadd zrem zrange zrevrange zrangebyscore " +
			"zrangebylex zscan zscore zcard zincrby xadd xrevrange zlexcount zrevrangebylex",
	},
	{
		Name: "worker", Purpose: "workers in Go (package worker), which may also enqueue", channels: allChannels,
		commands: "auth hello ping select subscribe unsubscribe publish eval evalsha time type exists del unlink " +
			"expire pttl get set hget hmget hgetall hset hsetnx hdel hexists hincrby hstrlen hlen lpush rpush " +
			"rpoplpush lrange llen lrem lpos ltrim sadd srem scard smembers smismember srandmember zadd zrem " +
			"zrange zscore zcard zincrby zrevrange rpop lindex zlexcount zrangebylex zrangebyscore " +
			"zrevrangebylex",
	},
	{
		Name: "producer", Purpose: "programs that enqueue, await, inspect, cancel, retry and delete tasks",
		channels: allChannels,
		commands: "auth hello ping select subscribe unsubscribe publish eval evalsha time type exists del unlink wait " +
			"get set hget hmget hgetall hset hsetnx hdel hexists hincrby hstrlen hkeys lpush rpush lrange llen " +
			"lrem lpos lindex ltrim sadd scard smembers smismember zadd zrem zrange zrevrange zrangebylex zcard " +
			"zscore rpop zincrby zlexcount zrevrangebylex",
	},
	{
		Name: "publisher", Purpose: "programs that only publish to topics", channels: "&_channel_*",
		keys: "%R~_generation %R~_subscriptions %R~_limits %R~_pauses ~_publi* ~_topic* ~_queues ~_task* ~_stats_* " +
			"~_pending_* ~_scheduled_tasks_* ~_complete_tasks_* ~_failed_tasks_* ~_blocked_* ~_priorities_* " +
			"~_expiry_* ~_keys_* ~_unique_* ~_bytes_* ~_log_* ~_attempts_* ~_after_* ~_children_* %R~_quotas " +
			"~_used ~_finished ~_fair_* ~_turns_* ~_lanes_* ~_line_*",
		commands: "auth hello ping select subscribe unsubscribe publish eval evalsha time type exists del unlink wait " +
			"get set hget hmget hgetall hset hsetnx hexists hincrby hstrlen hlen lpush rpush lrange llen " +
			"smembers sadd zadd zrem zrange zcard rpop hdel lindex zincrby zlexcount zrangebylex zrevrangebylex " +
			"zscore",
	},
	{
		Name: "outbox-relay", Purpose: "`quern relay` of an outbox alone", channels: allChannels,
		commands: "auth del eval evalsha exists expire get hdel hello hexists hget hgetall hincrby hlen hmget hset " +
			"hsetnx hstrlen llen lpush lrange ltrim ping publish rpush sadd select set smembers subscribe time " +
			"type unlink unsubscribe xdel xread zadd zcard zrange zrem rpop lindex zincrby zlexcount zrangebylex " +
			"zrevrangebylex zscore",
	},
	{
		Name: "relay", Purpose: "`quern relay` of any tables", channels: allChannels,
		commands: "auth del eval evalsha exists expire get hdel hello hexists hget hgetall hincrby hlen hmget hset " +
			"hsetnx hstrlen lindex llen lpos lpush lrange lrem ltrim ping publish rpush sadd scard select set " +
			"smismember smembers subscribe time type unlink unsubscribe xadd xdel xread zadd zcard zrange zrem " +
			"zscore rpop zincrby zlexcount zrangebylex zrevrangebylex",
	},
	{
		Name: "operator", Purpose: "the commands of `quern` that show and change a tenant", channels: allChannels,
		commands: "auth hello ping select subscribe unsubscribe publish eval evalsha time type exists del unlink " +
			"expire wait get set hget hmget hgetall hset hsetnx hdel hexists hincrby hstrlen hkeys hlen hscan " +
			"lpush rpush lset lrange llen lrem lpos lindex ltrim sadd srem scard smembers smismember zadd zrem " +
			"zrange zrevrange zrangebyscore zrangebylex zscan zscore zcard zincrby xrevrange rpop srandmember " +
			"zlexcount zrevrangebylex",
	},
	{
		Name: "mover", Purpose: "`quern tenant export`, `import` and `delete`; it sees the names of all keys in Redis",
		channels: allChannels,
		commands: "auth hello ping select subscribe unsubscribe publish eval evalsha time info scan type pttl get set " +
			"strlen hget hgetall hscan hset hdel hkeys hlen hstrlen hexists lrange llen rpop rpush sadd srem scard " +
			"smembers srandmember sscan zadd zcard zrange zrangebyscore zscan xadd xlen xrange del unlink pexpireat " +
			"exists hincrby hmget lindex lpush lrem ltrim zincrby zlexcount zrangebylex zrem zrevrangebylex zscore",
	},
	{
		Name: "python", Purpose: "Blueque's producers and workers in Python", only: queue.DefaultTenant,
		commands: "auth hello ping select multi exec watch del hgetall hset lindex lpush lrem rpoplpush sadd srem smembers " +
			"zadd zincrby zrangebyscore zremrangebyscore",
	},
}

// In reports whether programs of the role can use the tenant.
func (r Role) In(tenant string) bool { return r.only == "" || r.only == tenant }

// User is the name of the role's Redis user in the tenant.
func (r Role) User(tenant string) string { return tenant + "-" + r.Name }

// ACL returns the command that makes or changes the role's Redis user in the tenant, with the placeholder
// PASSWORD. The tenant must be valid.
func (r Role) ACL(tenant string) string {
	words := []string{"ACL", "SETUSER", r.User(tenant), "on", ">PASSWORD", "resetkeys"}
	for pattern := range strings.FieldsSeq(cmp.Or(r.keys, "~_*")) {
		words = append(words, strings.Replace(pattern, "~", "~"+tenant, 1))
	}
	words = append(words, "resetchannels")
	for pattern := range strings.FieldsSeq(r.channels) {
		words = append(words, strings.Replace(pattern, "&", "&"+tenant, 1))
	}
	words = append(words, "-@all")
	for command := range strings.FieldsSeq(r.commands) {
		words = append(words, "+"+command)
	}
	if strings.HasPrefix(tenant, "{") { // of a Cluster, whose slots a client asks for
		words = append(words, "+cluster|slots")
	}
	return strings.Join(words, " ")
}
