// Package host is one node: it reserves tasks from the queues that have a plugin here, runs each on
// a slot, and settles it in Redis.
//
//	Pub/Sub, poller ──wake──▶ scheduler ◀──── admission ◀── evictor
//	                             │ pick: which queue, how many slots
//	                             ▼ allocation
//	                          intake ──reserve──▶ Redis
//	                             │ a worker for each slot
//	                             ▼
//	                          runner ──plugins.Version.Run──▶ outcome; the next short task that waits for the slot
//	                             │
//	                             ▼
//	                          settler ──logs, settle──▶ Redis ──announce──▶ waiters
//
// A Host serves several tenants. For each a tenant leads a session: one listener ID with a lease, from joining to leaving.
// When the lease is lost the session ends, its tasks are stopped, and another session begins under a new ID. The session
// builds its parts and leads them; none of them knows the session.
//
// The scheduler gives the free slots to the queues that may have work (pick.go). Tasks of queues whose tasks are short are
// reserved ahead, wait in the scheduler, and get the next slots (lookahead.go). Admission lets a task run if its limits fit
// into the memory beside those of others and the memory of the cache, the engine. The evictor measures the cache, and evicts
// idle memory that stands in the way.
//
// # Goroutines and connections
//
// A tenant has six goroutines: one leads sessions, one renews the lease, one settles, one passes on messages, and two of
// go-redis read the subscription and check that it lives. All other work is a duty (duty.go):
//
//	poller       finds tasks that nobody announced, and when the next one is due
//	lookout      has the poller called within a second, where producers do not announce
//	mover        moves tasks that are due or have expired
//	recovery     reclaims from dead listeners
//	registrar    registers for queues, and leaves them
//	advancer     tells tasks that wait for others what has ended
//	publisher    makes the tasks of publications that are not done
//	ticker       enqueues the tasks of schedules that are due
//	declarer     keeps the schedules and subscriptions of manifests in Redis
//	canceller    looks for tasks to cancel, and for the mark to drain
//	shipper      sends log lines and progress, while there are tasks
//	tally        adds what was counted to the fleet's counts by minute
//	housekeeper  purges finished tasks and corrects counts
//	auditor      looks for reserved tasks that the host does not know, once a lease
//
// A tenant has two connections of its own: one subscribes, and one renews the lease (sdk/queue), which waits neither for
// payloads nor for a stale connection of the pool. For everything else tenants share the pool of their Redis client. They do
// not share the subscription: after a reconnect go-redis subscribes to all channels in one command, which Redis refuses as a
// whole when its user may not read one of them, and a flood of messages for one tenant would delay those of the others.
//
// # Failure
//
// While Redis is away or refuses everybody, reserving stops, guests run on, and settles are repeated with a growing pause; the
// log tells it once, and a metric counts. An error about one queue, such as a key of the wrong type, blocks that queue alone:
// no more tasks are taken from it until its results are written. When the answer to a reserve does not come, the queue is
// reconciled before the next reserve: the host compares its reserved list with the tasks that it runs, takes on the rest, and
// gives back those that it has no slot for. The auditor has that done for all queues once a lease, because a reserve may
// arrive late, and Redis may fail over to an older state. A result that Redis refuses, because another host holds the task by
// now, is counted and dropped.
//
// A tenant may refuse the host: by a newer protocol, a key of another type or the rights of its Redis user. The host tries
// again after a growing pause, and serves the others; when all tenants refuse it, it ends.
//
// Run's first context drains all tenants, and a drain in Redis one tenant. Tasks then have the grace period; those that have
// not ended go back to the front of their queues. Run's second context ends that wait. The host ends when all tenants are
// drained.
package host
