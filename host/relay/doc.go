// Package relay makes tasks and publications of the rows that applications insert into a table of their PostgreSQL, in
// their own transactions, and writes the ends of such tasks back.
//
//	application ─ INSERT ─▶ quern.outbox ─ read ─▶ leader ─ enqueue, once ─▶ Redis
//	                             ▲                 │    ▲                    │
//	                             └──── delete ─────┘    └─── reports ────────┤
//	                        quern.ended ◀── write ──────┘                    ▼
//	                                                                        hosts
//
// A relay may have a table of Raquel or of nsj-queue-lib instead of the outbox: see Raquel and Nsj.
//
// # Failure
//
// One relay leads: it holds a lease in quern.relays, by the clock of the database. Two leaders at a time may
// change the order, but make no task twice, because Redis remembers the IDs. A leader that was stopped for longer
// than that does not send the rows that it has read. No transaction stays open while Redis is asked. A row is
// deleted when its task is in Redis. If the relay dies between the two, the next one sends the row again; Redis
// remembers the ID, by the write that made the task, until some time after the row is deleted. While Redis or the
// database is away, rows wait. A row that can be no task is moved to quern.outbox_refused, and a row for a full
// queue waits without holding up others.
package relay
