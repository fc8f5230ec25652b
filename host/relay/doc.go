// Package relay makes tasks and publications of the rows that applications insert into a table of their PostgreSQL, in
// their own transactions, and writes the ends of such tasks back.
//
//	application ─ INSERT ─▶ quern.outbox ─ read ─▶ leader ─ enqueue, once ─▶ Redis
//	                             ▲                 │    ▲                    │
//	                             └──── delete ─────┘    └─── reports ────────┤
//	                        quern.ended ◀── write ──────┘                    ▼
//	                                                                        hosts
//
// A relay may have a table of Raquel or of nsj-queue-lib instead of the outbox: see Raquel and Nsj. Both share claims,
// which have their statements behind the interface rows.
//
//	due     a row of another library that a worker could take now
//	claim   to take a due row, as a worker of the library does; also the row that was taken
//	in hand claimed by this relay, and not ended yet
//	hold    to keep rows in hand claimed, and to find those that somebody has changed
//	give back, unclaim   to leave rows to others, as if they had never been claimed
//	refuse  to end a row that can be no task
//	park    to leave a row alone for a while that no statement can change
//	ahead   how many rows of a queue may be in hand beyond those that run
//	adopt   to take over the rows that an earlier leader has claimed
//
// A row whose task is gone before its end was read is given back: it is unknown how the task ended, so it runs again,
// and no attempt is counted. The tasks of rows that are lost or given back are cancelled and deleted.
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
//
// A damaged row of another library holds up no other. If one row makes a statement on a block of rows fail, the
// statement is done on the other rows: see each. All rows that others have locked are found at once. Sums of a row's
// numbers cannot exceed their types. Text that the relay cannot read ends its row, and characters that the database's
// encoding lacks are replaced. A row that no statement can change, because a constraint or a trigger refuses it, is
// parked: it is tried again each minute, and counts as a refused row with the error. Parked rows in hand are tried
// again in small blocks between other work, and keep their tasks. A queue with maxParked parked rows gets no others. So
// a rule that refuses all rows of a queue neither fills the relay's memory nor stops other queues. Retries, expired
// rows and publications count apart, by what they name.
package relay
