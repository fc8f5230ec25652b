// Package chaos holds tests that break a fleet while it works, and then read the books. Nothing of it
// ships.
//
//	producers ──proxy──▶ Redis ◀──proxy── host   killed, stopped, restarted
//	             ▲         ▲         ▲
//	       cut, slowed,   killed,   cut, slowed,
//	       half-closed    restarted half-closed
//
// All of it is real: hosts are processes of the built program, Redis is a server that writes every
// command to its disk before it answers, and each host has a toxiproxy of its own before it. A seed
// decides what breaks when. Afterwards every task that was accepted must be in one final state, once,
// and must have run more often than its own policy says only where a fault had hit it. How often it
// ran is told by the hosts' logs, whatever Redis says. An outage of Redis alone, also one that outlasts
// every lease, costs no host its lease and no task a second run.
//
// The tasks come in every way there is: at once, later, by a schedule, in graphs and batches, in flows that are
// cancelled, and by publications of producers and handlers, to handlers, to a webhook, and to more subscribers than one
// call writes tasks for.
//
// `go test` runs a short version, QUERN_CHAOS=full (`make chaos`) the long one, and
// QUERN_CHAOS_SEED=N repeats the plan of a run. QUERN_CHAOS_FAULTS=redis leaves hosts and producers
// alone, and so on: it takes a list of hosts, producers, redis. QUERN_CHAOS_LOGS=DIR keeps the hosts' logs.
package chaos
