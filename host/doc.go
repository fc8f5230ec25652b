// Package host is one node: it reserves tasks from the queues that have a plugin here, runs each on a slot, and settles
// it in Redis.
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
// A Host serves several tenants. For each tenant it runs a session: the life of one listen.Listener, from joining to
// leaving. When the listener loses its lease, the session ends, its tasks are stopped, and another session begins under
// a new ID. The session builds its parts and runs them; no part refers to the session.
//
// Two parts are packages: host/schedule decides, without Redis and plugins, which queue gets a free slot and whether
// the memory suffices; host/upkeep has the duties that hosts do for a whole tenant, such as reclaiming from dead hosts.
// Imports go one way:
//
//	host ──▶ host/schedule ──▶ sdk/queue/periodic
//	  ├────▶ host/upkeep ────▶ sdk/queue/periodic
//	  ├────▶ sdk/queue/listen
//	  └────▶ host/guest, host/trace, host/account
//
// # Goroutines and connections
//
// A tenant has six goroutines: one runs the sessions, one renews the lease, one settles, one passes on messages, and
// two of go-redis read the subscription and check that it lives. All other work is a duty (periodic.Duty), which has a
// goroutine only while it works. Beside the duties of host/upkeep and of listen.Listener there are these:
//
//	poller       finds tasks that nobody announced, and when the next one is due
//	lookout      calls the poller within a second, where producers do not announce
//	shipper      sends log lines and progress, while there are tasks
//	tally        adds the outcomes of tasks to the fleet's counts by minute
//	auditor      looks for reserved tasks that the host does not know, once a lease
//
// A tenant has two connections of its own: one subscribes, and one renews the lease (sdk/queue/listen), so that a
// renewal waits neither for payloads nor for a stale connection of the pool. For everything else tenants share the pool
// of their Redis client. They do not share the subscription: after a reconnect go-redis subscribes to all channels in
// one command, and Redis refuses the whole command if the user may not read one channel. A flood of messages for one
// tenant would also delay the messages for the others.
//
// # Failure
//
// While Redis is away or refuses everybody, reserving stops, guests run on, and settles are repeated with a growing
// pause. The log reports the trouble once, and a metric counts the failed calls. An error about one queue, such as a
// key of the wrong type, blocks that queue alone: no more tasks are reserved from it until its results are written.
// When the answer to a reserve does not come, the queue is reconciled before the next reserve: the host compares the
// queue's reserved list with the tasks that it runs. It takes on the tasks that it does not know, and gives back those
// that it has no slot for. Once a lease the auditor looks for such tasks in all queues, because a reserve may reach
// Redis late, and Redis may fail over to an older state. A result that Redis refuses, because another host holds the
// task by now, is counted and dropped.
//
// A tenant may refuse the host: its protocol is newer, a key has the wrong type, or its Redis user lacks a right. The
// host tries again after a growing pause, and serves the others; when all tenants refuse it, it ends.
//
// When Run's first context ends, all tenants are drained; an operator can also drain one tenant, through Redis. Running
// tasks then have the grace period to end. Tasks that still run go back to the front of their queues. When Run's second
// context ends, the host does not wait any longer. The host ends when all tenants are drained.
package host
