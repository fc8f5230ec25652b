// Package host is one node: it reserves tasks from the queues that have a plugin here, runs each on
// a slot, and settles it in Redis.
//
//	Pub/Sub, poll ──wake──▶ scheduler ◀──free── slots, memory
//	                            │ pick: which queue, how many
//	                            ▼
//	                         intake ──reserve──▶ Redis
//	                            │ a worker for each task
//	                            ▼
//	                          task ──plugins.Version.Run──▶ outcome
//	                            │
//	                            ▼
//	                         settler ──logs, settle──▶ Redis ──announce──▶ waiters
//
// A Host serves several tenants. For each it leads a session: one listener ID with a lease, from
// joining to leaving. When a lease is lost the session ends, what it ran is stopped, and another
// one begins under a new ID (tenant.go).
//
// Beside a session's tasks run its duties: it renews the lease (lease.go), reclaims from listeners that
// are dead (recovery.go), moves what is due or has expired (mover.go), stops what somebody cancels
// (control.go), sends logs and progress (log.go, progress.go), and keeps house (housekeeping.go).
//
// The scheduler is the only place that knows all queues, slots and memory. It grants slots to the
// queues that may have work, one at a time to the one with the fewest running tasks, and among equals
// to the one that was served longest ago: a queue with one task waits for no backlog of another. A task
// is admitted if its limits fit into the memory beside those of others and what the reservoir, the engine,
// holds for plugins; relief.go measures that, and has idle memory given back where it stands in the way.
//
// # Failure
//
// Redis away or refusing: reserving stops, guests run on, settles are repeated with a growing pause;
// a log line says so once, and a metric counts. An error that is about one queue alone, such as a key
// of the wrong type, pauses that queue alone: what it cannot settle is kept, and nothing more is taken
// from it until that is done. A reserve whose answer did not come makes its queue suspect: before the
// next reserve the host compares its reserved list with what it runs, takes on the rest, and gives back
// what it has no slot for. Once a lease it looks at the lists of all queues that it serves or served,
// because the reserve may still have been on its way, or Redis have failed over to an older state. A result that is
// refused, because somebody else holds the task by now, is counted and dropped. What goes wrong with
// one task ends that task alone.
//
// A tenant that refuses the host, by a newer protocol, a key of another type or what its Redis user may not do, is tried
// again after a growing pause, and the others are served; a host that all tenants refuse ends.
//
// Ending: Run's first context drains all tenants, and a drain in Redis the one; tasks then have the grace period, and what
// is not finished goes back to the front of its queue. Its second context ends that wait. The host ends when all tenants are
// drained.
package host
