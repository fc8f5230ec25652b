// Package host implements one node. It reserves tasks from the queues that its plugins serve, runs each task on a slot,
// and settles it in Redis.
//
//	Pub/Sub, poller ──events──▶ schedule.Scheduler ◀──── schedule.Evictor
//	                             │ Plan: which queue, how many slots
//	                             ▼ Round
//	                         dispatcher
//	                             │ allocations                 tasks with a slot
//	                             ▼                                  │
//	                          intake ──reserve──▶ Redis             │
//	                             │ a worker for each slot           │
//	                             ▼                                  ▼
//	                          runner ──plugins.TenantVersion.Run──▶ outcome; the next short task that waits for the slot
//	                             │
//	                             ▼
//	                          settler ──logs, settle──▶ Redis ──announce──▶ waiters
//
// A Host serves several tenants. For each tenant it runs sessions, one after the other. A session is the life of one
// listen.Listener, from joining to leaving. When the listener loses its lease, the session ends, its tasks are stopped,
// and another session begins under a new ID. The session builds its parts and runs them; no part refers to the session.
//
// Two parts are packages. host/schedule decides which queue gets a free slot and whether the memory suffices; it uses
// neither Redis nor plugins. host/upkeep has the duties that hosts do for a whole tenant, such as reclaiming tasks from
// dead hosts. Imports go one way:
//
//	host ──▶ host/schedule ──▶ sdk/queue/periodic
//	  ├────▶ host/upkeep ────▶ sdk/queue/periodic
//	  ├────▶ sdk/queue/listen
//	  └────▶ host/guest, host/rollout, host/trace, host/account
//
// # Goroutines and connections
//
// A tenant has six goroutines. One runs the sessions, one renews the lease, one settles tasks, and one passes Pub/Sub
// messages on. The other two belong to go-redis: one reads the subscription, and one checks that its connection is
// alive. All other work is a duty (periodic.Duty), which has a goroutine only while it works. In addition to the duties
// of host/upkeep and of listen.Listener, a session has these:
//
//	poller       finds tasks that nobody announced, and when the next one is due
//	lookout      asks for a poll within a second of a change, if producers do not announce their tasks
//	shipper      sends log lines, progress and records, while there are any
//	tally        adds the outcomes of tasks to the fleet's counts by minute
//	Follower     fetches the releases that the tenant's hosts are to serve (host/rollout)
//	auditor      looks for reserved tasks that the host does not know, once per lease length
//
// A tenant has two connections that nobody else uses. One is for the subscription. The other renews the lease
// (sdk/queue/listen), so that a renewal waits neither for payloads nor for a stale connection of the pool. For
// everything else, tenants share the pool of their Redis client. They do not share the subscription: after a reconnect,
// go-redis subscribes to all channels in one command, and Redis refuses the whole command if the user lacks the right
// to read one channel. A flood of messages for one tenant would also delay the messages for the others.
//
// # Failure
//
// While Redis is away, or refuses all calls of a tenant, reserving stops, guests run on, and settling is tried again
// with a growing pause. The log reports the trouble once, and a metric counts the failed calls. An error about one
// queue, such as a key of the wrong type, blocks that queue alone: no more tasks are reserved from it until its results
// are written. When the answer to a reserve does not come, the queue is reconciled before the next reserve: the host
// compares the queue's reserved list with the tasks that it runs. It takes on the tasks that it does not know, and
// gives back those for which it has no slot. Once per lease length, the auditor looks for unknown tasks in all queues,
// because a reserve can reach Redis late, and Redis can fail over to an older state. A result that Redis refuses,
// because another host holds the task by now, is counted and dropped.
//
// A tenant can refuse the host: the version of its protocol is newer, a key has the wrong type, or its Redis user lacks
// a right. The host tries again after a growing pause, and serves the other tenants meanwhile. When all tenants refuse
// it, the host ends.
//
// When Run's first context ends, all tenants are drained; an operator can also drain one tenant, through Redis. Running
// tasks then have the grace period to end. Tasks that still run after it are stopped and go back to the front of their
// queues. When Run's second context ends, the host waits no longer for tasks. The host ends when all tenants are
// drained.
package host
