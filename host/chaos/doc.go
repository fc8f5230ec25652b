// Package chaos tests a fleet whose parts break while it works, and then checks what became of every task. Nothing of
// the package is released.
//
//	producers ──proxy──▶ Redis ◀──proxy── host   killed, stopped, restarted
//	             ▲         ▲         ▲
//	       cut, slowed,   killed,   cut, slowed,
//	       half-closed    restarted half-closed
//
// All of it is real. Hosts are processes of the built program. Redis is a server that writes every command to its disk
// before it answers. Each host has its own toxiproxy between itself and Redis. A seed decides what breaks when.
//
// Afterwards every accepted task must be in exactly one final state. It may have run more often than its policy allows
// only if a fault hit it. The number of its runs is taken from the hosts' logs, whatever Redis says. An outage of Redis
// alone must cost no host its lease and cause no second run, even if it outlasts every lease.
//
// Guests tell the test over HTTP when they begin and end what only some tasks of a concurrency key may do at a time. So
// it is known that no key had more at once, whatever broke, and however Redis's clock was set meanwhile.
//
// The tasks come in every possible way: due at once, due later, by a schedule, in graphs and batches, in flows that are
// cancelled, and by publications. Producers and handlers publish to subscribed handlers, to a webhook, and to
// more subscribers than one call writes tasks for.
//
// `go test` runs a short version, and QUERN_CHAOS=full (`make chaos`) the long one. QUERN_CHAOS_SEED=N repeats the plan
// of an earlier run. QUERN_CHAOS_FAULTS lists what breaks, out of hosts, producers and redis: with
// QUERN_CHAOS_FAULTS=redis, hosts and producers are left alone. QUERN_CHAOS_LOGS=DIR keeps the hosts' logs.
package chaos
