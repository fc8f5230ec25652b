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
//	                          runner ──plugins.Version.Run──▶ outcome; the next short task that waits for the slot
//	                             │
//	                             ▼
//	                          settler ──logs, settle──▶ Redis ──announce──▶ waiters
//
// A Host serves several tenants. For each a tenant leads a session: one listen.Listener, from joining to leaving. When
// its lease is lost the session ends, its tasks are stopped, and another session begins under a new ID. The session
// builds its parts and leads them. None of them knows its type: the listener knows it as listen.User.
//
// Two of its parts are packages: host/schedule decides, without Redis and plugins, which queue gets a free slot and
// whether the memory suffices; host/upkeep is the duties that hosts do for a whole tenant, such as reclaiming from dead
// hosts. Imports go one way:
//
//	host ──▶ host/schedule ──▶ sdk/queue/periodic
//	  ├────▶ host/upkeep ────▶ sdk/queue/periodic
//	  ├────▶ sdk/queue/listen
//	  └────▶ host/guest, host/trace, host/account
//
// # Goroutines and connections
//
// A tenant has six goroutines: one leads sessions, one renews the lease, one settles, one passes on messages, and two
// of go-redis read the subscription and check that it lives. All other work is a duty (periodic.Duty), which has a
// goroutine only while it works. Beside those of host/upkeep and of listen.Listener:
//
//	poller       finds tasks that nobody announced, and when the next one is due
//	lookout      has the poller called within a second, where producers do not announce
//	shipper      sends log lines and progress, while there are tasks
//	tally        adds the outcomes of tasks to the fleet's counts by minute
//	auditor      looks for reserved tasks that the host does not know, once a lease
//
// A tenant has two connections of its own: one subscribes, and one renews the lease (sdk/queue/listen), which waits neither
// for payloads nor for a stale connection of the pool. For everything else tenants share the pool of their Redis
// client. They do not share the subscription: after a reconnect go-redis subscribes to all channels in one command,
// which Redis refuses as a whole when its user may not read one of them, and a flood of messages for one tenant would
// delay those of the others.
//
// # Failure
//
// While Redis is away or refuses everybody, reserving stops, guests run on, and settles are repeated with a growing
// pause; the log reports it once, and a metric counts. An error about one queue, such as a key of the wrong type,
// blocks that queue alone: no more tasks are reserved from it until its results are written. When the answer to a
// reserve does not come, the queue is reconciled before the next reserve: the host compares its reserved list with the
// tasks that it runs, takes on the rest, and gives back those that it has no slot for. The auditor has that done for
// all queues once a lease, because a reserve may arrive late, and Redis may fail over to an older state. A result that
// Redis refuses, because another host holds the task by now, is counted and dropped.
//
// A tenant may refuse the host: by a newer protocol, a key of another type or the rights of its Redis user. The host
// tries again after a growing pause, and serves the others; when all tenants refuse it, it ends.
//
// Run's first context drains all tenants, and a drain in Redis one tenant. Tasks then have the grace period; those that
// have not ended go back to the front of their queues. Run's second context ends that wait. The host ends when all
// tenants are drained.
package host
